// SPDX-License-Identifier: Apache-2.0
//
// powersgd: gradients of matrices as products of two thin matrices (Vogels, Karimireddy, Jaggi 2019, "PowerSGD: Practical
// Low-Rank Gradient Compression for Distributed Optimization", algorithms 1 and 2). For the sum over W ranks of the gradients
// M_w, of n rows and m columns, with the Q (m x r) of the step before:
//
//   M_w = gradient + E_w                what this rank left out in earlier steps
//   round 0: message P_w = M_w Q        (n x r); P = orthogonal(sum of P_w)
//   round 1: message Q_w = M_w^T P      (m x r); Q = sum of Q_w
//   sum of the M_w is about D = P Q^T;  E_w = M_w - D / W
//
// Bytes on each rank: 4 (n m + n r + m r) for a matrix: E, P and Q. Sums in a step: (n + m) r elements instead of n m. Vectors,
// and matrices that would save less than half, are summed as without a codec.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ddh/sdk/codec.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/options.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    {"rank", "integer", "4", R"("minimum": 1, "maximum": 256)", "columns of the thin matrices"},
    {"warmup_steps", "integer", "100", R"("minimum": 0)", "first steps, in which gradients are summed whole"},
    {"error_feedback", "boolean", "true", "", "add to a gradient what earlier steps left out of it"},
};
constexpr const char* kNeeds[] = {DDH_ALLOC_IFACE, DDH_CONFIG_IFACE, nullptr};

// The columns of an n x r matrix, made orthonormal from the first to the last (modified Gram-Schmidt). A column that is nearly
// a sum of those before it becomes 0: what is left of it is rounding, and would not be orthogonal to them.
void make_orthonormal(float* matrix, uint64_t n, uint64_t r) {
  constexpr double kLeast = 1e-5;  // of its length before
  const auto dot = [&](uint64_t a, uint64_t b) {
    double sum = 0;
    for (uint64_t i = 0; i < n; ++i)
      sum += static_cast<double>(matrix[i * r + a]) * static_cast<double>(matrix[i * r + b]);
    return sum;
  };
  for (uint64_t c = 0; c < r; ++c) {
    const double before = std::sqrt(dot(c, c));
    for (uint64_t b = 0; b < c; ++b) {
      const auto share = static_cast<float>(dot(b, c));
      for (uint64_t i = 0; i < n; ++i) matrix[i * r + c] -= share * matrix[i * r + b];
    }
    const double length = std::sqrt(dot(c, c));
    const auto scale = static_cast<float>(length > kLeast * before ? 1 / length : 0);
    for (uint64_t i = 0; i < n; ++i) matrix[i * r + c] *= scale;
  }
}

class PowerSgd final : public ddh::Codec {
 public:
  explicit PowerSgd(const ddh_create& create)
      : Codec(create),
        rank_(static_cast<uint64_t>(options.i64("rank"))),
        warmup_steps_(options.i64("warmup_steps")),
        has_error_(options.flag("error_feedback")) {}

  void open(const ddh_codec_args& args) override {
    world_size_ = static_cast<float>(args.world_size);
    model_ = args.model;
    params_.clear();
    for (uint32_t p = 0; p < model_->n_params; ++p) params_.push_back(matrix_of(*model_->params[p]));
  }

  uint64_t plan() override {
    uint64_t bytes = 0;
    for (const Param& p : params_) bytes += (error_numel(p) + (p.rows + p.columns) * p.rank) * sizeof(float);
    return bytes;
  }

  void attach() override {
    for (size_t i = 0; i < params_.size(); ++i) {
      Param& p = params_[i];
      if (p.rank == 0) continue;
      const std::string name = model_->params[i]->name;
      const auto buffer = [&](uint64_t numel, const char* what) {
        return ddh::Buffer(host, DDH_TAG_COMM, numel * sizeof(float), what + (" of " + name));
      };
      if (has_error_) p.error = buffer(error_numel(p), "error");
      p.left = buffer(p.rows * p.rank, "P");
      p.right = buffer(p.columns * p.rank, "Q");
      const ddh::CounterRng random(0, name);  // the same on every rank
      for (uint64_t k = 0; k < p.columns * p.rank; ++k) p.right.f32()[k] = random.normal_pair(k).first;
    }
  }

  uint32_t rounds(int32_t param, int64_t step) override { return step > warmup_steps_ ? max_rounds(param) : 0; }
  uint32_t max_rounds(int32_t param) override { return at(param).rank > 0 ? 2 : 0; }
  uint64_t message_numel(int32_t param, uint32_t round) override {
    const Param& p = at(param);
    return (round == 0 ? p.rows : p.columns) * p.rank;
  }

  void encode(int32_t param, uint32_t round, float* grad, float* message) override {
    Param& p = at(param);
    if (round == 0 && has_error_)
      for (uint64_t k = 0; k < p.rows * p.columns; ++k) grad[k] += p.error.f32()[k];
    std::fill_n(message, message_numel(param, round), 0.0F);
    const float* const thin = round == 0 ? p.right.f32() : p.left.f32();
    for (uint64_t i = 0; i < p.rows; ++i)
      for (uint64_t j = 0; j < p.columns; ++j) {
        const float value = grad[i * p.columns + j];
        float* const to = message + (round == 0 ? i : j) * p.rank;
        const float* const from = thin + (round == 0 ? j : i) * p.rank;
        for (uint64_t c = 0; c < p.rank; ++c) to[c] += value * from[c];
      }
  }

  void decode(int32_t param, uint32_t round, const float* message, float* grad) override {
    Param& p = at(param);
    const uint64_t numel = message_numel(param, round);
    const bool is_finite = std::all_of(message, message + numel, [](float x) { return std::isfinite(x); });
    p.is_finite = (round == 0 || p.is_finite) && is_finite;
    if (round == 0) {
      std::copy_n(message, numel, p.left.f32());
      if (p.is_finite) make_orthonormal(p.left.f32(), p.rows, p.rank);
      return;
    }
    if (!p.is_finite) {  // the host leaves such a step out, or ends the run; nothing of it may stay in the state
      std::fill_n(grad, p.rows * p.columns, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    keep_right(p, message);
    for (uint64_t i = 0; i < p.rows; ++i)
      for (uint64_t j = 0; j < p.columns; ++j) {
        float decoded = 0;
        for (uint64_t c = 0; c < p.rank; ++c) decoded += p.left.f32()[i * p.rank + c] * message[j * p.rank + c];
        float& value = grad[i * p.columns + j];
        if (has_error_) p.error.f32()[i * p.columns + j] = value - decoded / world_size_;
        value = decoded;
      }
  }

  std::vector<ddh_codec_state> state() override {
    std::vector<ddh_codec_state> out;
    for (size_t i = 0; i < params_.size(); ++i) {
      const Param& p = params_[i];
      const auto add = [&](const char* name, const ddh::Buffer& buffer, int32_t scope) {
        out.push_back({sizeof(ddh_codec_state), static_cast<int32_t>(i), name, buffer.f32(),
                       buffer.bytes() / sizeof(float), scope, 0});
      };
      if (p.rank == 0) continue;
      add("q", p.right, DDH_SCOPE_SHARED);
      if (has_error_) add("error", p.error, DDH_SCOPE_RANK);
    }
    return out;
  }

 private:
  struct Param {
    uint64_t rows = 0, columns = 0, rank = 0;  // rank 0: it is not compressed
    ddh::Buffer error, left, right;            // E (rows x columns), P (rows x rank), Q (columns x rank)
    bool is_finite = true;                     // the sums of this step
  };

  // The first axis has the rows, all others together the columns.
  Param matrix_of(const ddh_param_desc& param) const {
    Param p;
    if (param.n_dims < 2 || param.numel == 0) return p;
    p.rows = static_cast<uint64_t>(param.shape[0]);
    p.columns = param.numel / p.rows;
    const uint64_t rank = std::min({rank_, p.rows, p.columns});
    if (2 * (p.rows + p.columns) * rank < param.numel) p.rank = rank;
    return p;
  }
  uint64_t error_numel(const Param& p) const { return has_error_ && p.rank > 0 ? p.rows * p.columns : 0; }
  Param& at(int32_t param) { return params_[static_cast<size_t>(param)]; }

  // A column for which P is 0 keeps its direction; the sum for it is 0, from which no later step would get away.
  static void keep_right(Param& p, const float* sum) {
    for (uint64_t c = 0; c < p.rank; ++c) {
      bool is_zero = true;
      for (uint64_t i = 0; i < p.rows; ++i) is_zero = is_zero && p.left.f32()[i * p.rank + c] == 0;
      for (uint64_t j = 0; !is_zero && j < p.columns; ++j) p.right.f32()[j * p.rank + c] = sum[j * p.rank + c];
    }
  }

  const uint64_t rank_;
  const int64_t warmup_steps_;
  const bool has_error_;
  float world_size_ = 1;
  const ddh_model_desc* model_ = nullptr;
  std::vector<Param> params_;
};

}  // namespace

DDH_CXX_PLUGIN(PowerSgd, codec, "powersgd", "0.1.0", "gradients of matrices in low rank, with error feedback",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_LOSSY, .license = "Apache-2.0");
