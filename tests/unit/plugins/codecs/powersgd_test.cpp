// SPDX-License-Identifier: Apache-2.0
//
// The example codec powersgd against a fold of its own in double precision, which keeps whole matrices and is written from the
// paper (Vogels 2019, algorithms 1 and 2). Three ranks, several steps, with and without error feedback.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "config/config.hpp"
#include "ddh/sdk/model.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/host_services.hpp"
#include "plugin/registry.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

constexpr size_t kRows = 24, kColumns = 16, kRank = 3, kRanks = 3;

// Column-major, in double.
struct Matrix {
  size_t rows, columns;
  std::vector<double> values = std::vector<double>(rows * columns, 0.0);
  double& operator()(size_t i, size_t j) { return values[j * rows + i]; }
  double operator()(size_t i, size_t j) const { return values[j * rows + i]; }
};
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out{a.rows, b.columns};
  for (size_t j = 0; j < b.columns; ++j)
    for (size_t k = 0; k < a.columns; ++k)
      for (size_t i = 0; i < a.rows; ++i) out(i, j) += a(i, k) * b(k, j);
  return out;
}
Matrix transposed(const Matrix& a) {
  Matrix out{a.columns, a.rows};
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t j = 0; j < a.columns; ++j) out(j, i) = a(i, j);
  return out;
}
// Classical Gram-Schmidt, twice.
Matrix orthonormal(Matrix a) {
  for (size_t j = 0; j < a.columns; ++j) {
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<double> share(j, 0.0);
      for (size_t k = 0; k < j; ++k)
        for (size_t i = 0; i < a.rows; ++i) share[k] += a(i, k) * a(i, j);
      for (size_t k = 0; k < j; ++k)
        for (size_t i = 0; i < a.rows; ++i) a(i, j) -= share[k] * a(i, k);
    }
    double square = 0;
    for (size_t i = 0; i < a.rows; ++i) square += a(i, j) * a(i, j);
    for (size_t i = 0; i < a.rows; ++i) a(i, j) /= std::sqrt(square);
  }
  return a;
}

// One step of the paper, with sums instead of means.
Matrix reference_step(const std::vector<Matrix>& gradients, std::vector<Matrix>& errors, Matrix& q, bool feedback) {
  Matrix all{kRows, kColumns};
  for (size_t w = 0; w < gradients.size(); ++w)
    for (size_t k = 0; k < all.values.size(); ++k) all.values[k] += gradients[w].values[k] + errors[w].values[k];
  const Matrix p = orthonormal(product(all, q));
  q = product(transposed(all), p);
  Matrix decoded = product(p, transposed(q));
  for (size_t w = 0; feedback && w < gradients.size(); ++w)
    for (size_t k = 0; k < all.values.size(); ++k)
      errors[w].values[k] += gradients[w].values[k] - decoded.values[k] / static_cast<double>(gradients.size());
  return decoded;
}

// The codec of one rank.
class Rank {
 public:
  Rank(const Plugin& plugin, int32_t rank, const ddh_model_desc& model, bool feedback)
      : host_("codec:powersgd"), model_(model) {
    host_.config().set("codec.rank", static_cast<int64_t>(kRank), "test");
    host_.config().set("codec.warmup_steps", int64_t{2}, "test");
    host_.config().set("codec.error_feedback", feedback, "test");
    instance_ = Instance(plugin, host_.caller.host(), "codec");
    const auto& table = instance_.require<ddh_codec_api>(DDH_CODEC_IFACE, DDH_CODEC_API_MIN_SIZE);
    codec_ = std::make_unique<RunCodec>(instance_.get(), table, instance_.caller(), model_);
    const ddh_codec_args args{sizeof args, rank, kRanks, 0, &model_};
    planned = codec_->plan(args);
    codec_->attach(args);
  }
  [[nodiscard]] RunCodec& codec() { return *codec_; }
  [[nodiscard]] uint64_t taken() const { return host_.services.memory.usage(DDH_TAG_COMM).now_bytes; }
  uint64_t planned = 0;

 private:
  HostServices host_;
  const ddh_model_desc& model_;
  Instance instance_;
  std::unique_ptr<RunCodec> codec_;
};

struct World {
  explicit World(bool feedback) {
    const int32_t unit = desc.add_unit("u", {desc.add_param(0, "w", {kRows, 4, kColumns / 4}, {DDH_INIT_ZERO, 0, 0}),
                                             desc.add_param(0, "b", {kRows}, {DDH_INIT_ZERO, 0, 0})});
    REQUIRE(unit == 0);
    for (size_t r = 0; r < kRanks; ++r)
      ranks.push_back(std::make_unique<Rank>(plugin(), static_cast<int32_t>(r), desc.get(), feedback));
  }
  static const Plugin& plugin() {
    static Registry registry(&host_interface, "/no/such/folder");
    static const Plugin found = registry.find(DDH_KIND_CODEC, test_plugin("powersgd"), "/");
    return found;
  }
  // Encodes, sums in rank order, decodes; the gradients become the decoded sums.
  void step(std::vector<std::vector<float>>& gradients) {
    for (uint32_t round = 0; round < ranks[0]->codec().max_rounds(0); ++round) {
      std::vector<float> sum(ranks[0]->codec().message_numel(0, round), 0.0F), message(sum.size());
      for (size_t r = 0; r < kRanks; ++r) {
        ranks[r]->codec().encode(0, round, gradients[r].data(), message.data());
        for (size_t k = 0; k < sum.size(); ++k) sum[k] += message[k];
      }
      for (size_t r = 0; r < kRanks; ++r) ranks[r]->codec().decode(0, round, sum.data(), gradients[r].data());
    }
  }
  ddh::ModelDesc desc{"m"};
  std::vector<std::unique_ptr<Rank>> ranks;
};

const ddh_codec_state& state_named(const std::vector<ddh_codec_state>& all, const std::string& name) {
  return *std::find_if(all.begin(), all.end(), [&](const ddh_codec_state& s) { return s.name == name; });
}

}  // namespace

TEST_CASE("powersgd follows the paper", "[unit]") {
  for (const bool feedback : {true, false}) {
    INFO("error feedback " << feedback);
    World world(feedback);
    CHECK(world.ranks[0]->planned == world.ranks[0]->taken());
    CHECK(world.ranks[0]->codec().max_rounds(1) == 0);  // a vector
    CHECK(world.ranks[0]->codec().rounds(0, 2) == 0);
    CHECK(world.ranks[0]->codec().rounds(0, 3) == 2);

    Matrix q{kColumns, kRank};
    const std::vector<ddh_codec_state> states = world.ranks[0]->codec().state();
    const ddh_codec_state first_q = state_named(states, "q");
    for (size_t j = 0; j < kColumns; ++j)
      for (size_t c = 0; c < kRank; ++c) q(j, c) = first_q.data[j * kRank + c];
    std::vector<Matrix> errors(kRanks, Matrix{kRows, kColumns});
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    for (int step = 0; step < 6; ++step) {
      std::vector<Matrix> gradients(kRanks, Matrix{kRows, kColumns});
      std::vector<std::vector<float>> given(kRanks, std::vector<float>(kRows * kColumns));
      for (size_t r = 0; r < kRanks; ++r)
        for (size_t i = 0; i < kRows; ++i)
          for (size_t j = 0; j < kColumns; ++j)
            gradients[r](i, j) = given[r][i * kColumns + j] = static_cast<float>(normal(random));
      world.step(given);
      const Matrix decoded = reference_step(gradients, errors, q, feedback);
      double difference = 0, size = 0;
      for (size_t i = 0; i < kRows; ++i)
        for (size_t j = 0; j < kColumns; ++j) {
          difference = std::max(difference, std::abs(decoded(i, j) - static_cast<double>(given[0][i * kColumns + j])));
          size = std::max(size, std::abs(decoded(i, j)));
        }
      INFO("step " << step);
      CHECK(difference < 2e-5 * size);
      for (size_t r = 1; r < kRanks; ++r) CHECK(given[r] == given[0]);  // to the bit
    }
  }
}

TEST_CASE("a gradient that is not finite leaves nothing in powersgd's state", "[unit]") {
  World world(true);
  std::vector<std::vector<float>> given(kRanks, std::vector<float>(kRows * kColumns, 0.5F));
  world.step(given);
  const auto snapshot = [&] {
    std::vector<float> out;
    for (const auto& rank : world.ranks)
      for (const ddh_codec_state& s : rank->codec().state()) out.insert(out.end(), s.data, s.data + s.numel);
    return out;
  };
  const std::vector<float> before = snapshot();
  given.assign(kRanks, std::vector<float>(kRows * kColumns, 0.5F));
  given[1][7] = INFINITY;
  world.step(given);
  for (const std::vector<float>& decoded : given) CHECK(std::isnan(decoded[0]));
  CHECK(snapshot() == before);
}
