// SPDX-License-Identifier: Apache-2.0
//
// Synchronized batch norms: the same bits under every strategy, although each norm is a collective of its own, and the
// gradients of one rank that has all images.
#include "equivalence/vision.hpp"

using namespace ddhost::test;

namespace {

const Options kSynced = {"data.micro_batch=4", "model.sync_batch_norm=true"};

// MobileNetV3 whose last two convolutions alone are trained, with their batch norms and the head.
const Options kPartlyFrozen = {"model.network=mobilenet_v3_small", "model.image_size=32", "model.freeze=features",
                               "model.unfrozen=2"};

void check_synced(const Computation& c, int accum_steps) {
  check_vision("cnn", c.world,
               cnn(joined(joined(kSynced, options_of(c)), {"train.grad_accum_steps=" + std::to_string(accum_steps)})));
}

double norm(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

// Checks that training has moved every tensor from `start` to the same place. With plain gradient descent the way of a
// parameter is the sum of its gradients. Rounded are the gradients (measured: 1e-4 of the way), the values, and gradients that
// would be 0, as of a bias before a batch norm.
void check_same_way(const Result& result, const Result& expected, const Result& start) {
  constexpr double kOfWay = 3e-4, kOfValue = 1e-7, kOfNothing = 1e-8;
  INFO(expected.command << "\n" << result.command);
  const Tensors ends = tensors_of(result), expected_ends = tensors_of(expected);
  size_t moved = 0;
  for (const auto& [name, tensor] : tensors_of(start)) {
    if (tensor.dtype != "F32") continue;
    CAPTURE(name);
    const std::vector<float> from = tensor.f32();
    std::vector<float> way = expected_ends.at(name).f32(), difference = ends.at(name).f32();
    for (size_t i = 0; i < way.size(); ++i) difference[i] -= way[i], way[i] -= from[i];
    CHECK(norm(difference) <= kOfWay * norm(way) + kOfValue * norm(from) + kOfNothing);
    moved += norm(way) > 0 ? 1 : 0;
  }
  CHECK(moved >= 10);
}

}  // namespace

TEST_CASE("a network with synchronized batch norms trains with the same bits under every strategy",
          "[equivalence][torch]") {
  check_synced({2, "fp32", false}, 1);
  check_synced({3, "bf16", true}, 2);
}

TEST_CASE("synchronized batch norms train with the same bits in every world and dtype, recomputed and accumulated",
          "[.worlds]") {
  const Computation c = GENERATE(from_range(all_computations()));
  check_synced(c, 1);
  check_synced(c, 2);
}

TEST_CASE("a partly frozen trunk with synchronized batch norms trains with the same bits under every strategy",
          "[.worlds]") {
  const TempFolder folder;
  const Options network = joined(kSynced, kPartlyFrozen);
  check_vision("cnn", 2, vision(joined(network, {weights_with_features(folder, network)})));
}

TEST_CASE(
    "synchronized batch norms make several ranks one: the losses, gradients and statistics of one with all images",
    "[equivalence][torch]") {
  struct Comparison {
    Options (*with_options)(const Options&);
    Options network;
    int images;  // in a micro-batch of all ranks
    std::vector<int> worlds;
  };
  const Comparison c = GENERATE(from_range(std::vector<Comparison>{
      {cnn, {"train.grad_accum_steps=2"}, 8, {2, 4}},
      {vision, kPartlyFrozen, 8, {2}},
      {cnn, {"data.drop_last=false"}, 1026, {3}},  // of 2048: the last rank has fewer in the last step of an epoch
  }));
  const TempFolder folder;
  Options network = c.network;
  if (c.with_options == vision) network.push_back(weights_with_features(folder, network));
  const auto with = [&](int world, const char* sync, const char* lr) {
    return run({kReference, world,
                c.with_options(joined(network, {"data.micro_batch=" + std::to_string(c.images / world), sync, lr,
                                                "model.dropout=0", "optimizer.plugin=sgd", "train.clip_norm=0",
                                                "train.eval_every=4", "train.eval_batches=all"})),
                4, "cnn"});
  };
  const Result start = with(1, "model.sync_batch_norm=false", "optimizer.lr=0");
  const Result one = with(1, "model.sync_batch_norm=false", "optimizer.lr=0.1");
  const auto loss = [](const Result& r, size_t step) { return r.record.steps.at(step).at("loss").get<double>(); };
  const auto val = [](const Result& r) { return r.record.evaluations.at(0).at("val_loss").get<double>(); };
  for (const int world : c.worlds) {
    const Result together = with(world, "model.sync_batch_norm=true", "optimizer.lr=0.1");
    for (size_t step = 0; step < 4; ++step) CHECK(loss(together, step) == Approx(loss(one, step)).epsilon(1e-5));
    CHECK(val(together) == Approx(val(one)).epsilon(1e-4));  // by running statistics
    check_same_way(together, one, start);
  }
  if (c.worlds.size() == 1) return;
  const Result apart = with(2, "model.sync_batch_norm=false", "optimizer.lr=0.1");
  CHECK(std::abs(loss(apart, 1) / loss(one, 1) - 1) > 1e-4);
}

TEST_CASE("synchronized batch norms refuse a last step in which a rank has no images", "[equivalence][torch]") {
  // 2 of 2048 images are left for the last step of an epoch.
  const Result result = attempt(
      {kReference, 2, cnn({"model.sync_batch_norm=true", "data.micro_batch=1023", "data.drop_last=false"}), 2, "cnn"});
  CHECK(result.code != 0);
  CHECK_THAT(result.err, Catch::Contains("a rank has no samples in the last step of an epoch") &&
                             Catch::Contains("set data.drop_last=true"));
}
