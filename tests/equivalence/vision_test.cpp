// SPDX-License-Identifier: Apache-2.0
//
// Models of images give the same bits under every strategy, in every world and with any number of threads, with all kinds
// of randomness in their training.
#include <cstdlib>

#include "equivalence/vision.hpp"

using namespace ddhost::test;

namespace {

Options vit(const Options& more) {
  Options all = {"model.dataset=made_up",
                 "model.size=custom",
                 "model.n_layer=2",
                 "model.n_head=2",
                 "model.width=16",
                 "model.patch=7",
                 "model.dropout=0.1",
                 "model.attention_dropout=0.1",
                 "model.stochastic_depth=0.3",
                 "model.mixup=0.4",
                 "model.crop_padding=2",
                 "model.flip=true",
                 "model.label_smoothing=0.1",
                 "train.clip_norm=0.5",
                 "train.eval_every=3",
                 "train.eval_batches=3"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void check_vit(const Computation& c) {
  check_vision("vit", c.world,
               vit(joined(options_of(c), {"data.micro_batch=4", c.recompute ? "model.names=hf" : "model.names=tv"})));
}

void check_cnn(const Computation& c) {
  check_vision("cnn", c.world,
               cnn(joined(options_of(c), {"data.micro_batch=4",
                                          c.recompute ? "model.channels_last=true" : "model.channels_last=false"})));
}

// Networks with other layers, of images and of videos.
Options mobilenet(const Options& more) {
  return vision(joined({"data.micro_batch=4", "model.network=mobilenet_v3_small", "model.image_size=32"}, more));
}
Options lstm(const Options& more) {
  return cnn(joined({"data.micro_batch=4", "model.network=cnn_lstm", "model.dataset=moving_mnist", "model.lstm=[6, 4]",
                     "model.frames=3", "model.batch_norm=false"},
                    more));
}

// 6 micro-batches in a step, spread over ranks and threads.
using Spread = std::pair<int, int>;  // ranks, and threads of each
const std::vector<Spread> kSpreads = {{1, 2}, {3, 2}}, kOtherSpreads = {{2, 2}, {3, 1}};
void check_spreads(const std::string& model, const Options& options, const std::vector<Spread>& spreads) {
  const auto with = [&](int world, int threads) {
    setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
    Options all = options;
    all.push_back("train.grad_accum_steps=" + std::to_string(6 / world));
    const Result result = run({kReference, world, all, 3, model});
    unsetenv("OMP_NUM_THREADS");
    return result;
  };
  const Result one = with(1, 1);
  for (const auto& [world, threads] : spreads) {
    const Result other = with(world, threads);
    INFO(one.command << " with 1 thread, " << other.command << " with " << threads);
    CHECK(same_bits(one, other));
  }
}

void check_spreads_of_vit(const std::vector<Spread>& spreads) {
  const std::string compute = GENERATE("fp32", "bf16");
  check_spreads("vit", vit({"data.micro_batch=12", "precision.compute=" + compute}), spreads);
}
void check_spreads_of_cnn(const std::vector<Spread>& spreads) {
  const std::string compute = GENERATE("fp32", "bf16"), channels_last = compute == "bf16" ? "true" : "false";
  check_spreads("cnn",
                cnn({"data.micro_batch=12", "precision.compute=" + compute, "model.channels_last=" + channels_last}),
                spreads);
}

// The default tests run further networks under three strategies: those that store gradients, parameters and optimizer state
// in other ways than ddp.
const std::vector<Variant> kThree = {kOneOfEachStrategy[2], kOneOfEachStrategy[3], kOneOfEachStrategy[5]};

Options volumes() {
  return vision({"data.micro_batch=4", "model.network=conv3d", "model.widths=[4, 6]", "model.hidden=8",
                 "model.dataset=moving_mnist", "model.class_weights=balanced"});
}
void check_frozen(const std::vector<Variant>& ways) {
  const TempFolder folder;
  const std::string weights = weights_with_features(folder, mobilenet({"model.freeze=features"}));
  check_vision("cnn", 2, mobilenet({"model.freeze=features", weights}), ways);
}

}  // namespace

TEST_CASE("a Vision Transformer trains with the same bits under every strategy, in fp32, bf16 and fp16",
          "[equivalence][torch]") {
  check_vit(GENERATE(from_range(some_computations())));
}

TEST_CASE("a Vision Transformer trains with the same bits in every world and dtype, also with recomputed units",
          "[.worlds]") {
  check_vit(GENERATE(from_range(all_computations())));
}

TEST_CASE("neither world, accumulation nor threads change a bit of a Vision Transformer", "[equivalence][torch]") {
  check_spreads_of_vit(kSpreads);
}

TEST_CASE("a network with batch norms trains with the same bits under every strategy, in fp32, bf16 and fp16",
          "[equivalence][torch]") {
  check_cnn(GENERATE(from_range(some_computations())));
}

TEST_CASE("a network with batch norms trains with the same bits in every world and dtype, also with recomputed units",
          "[.worlds]") {
  check_cnn(GENERATE(from_range(all_computations())));
}

TEST_CASE("a frozen trunk trains its head with the same bits as under ddp", "[equivalence][torch]") {
  check_frozen(kThree);
}

TEST_CASE("a network of videos trains with the same bits as under ddp", "[equivalence][torch]") {
  check_vision("cnn", 2, lstm({}), kThree);
}

TEST_CASE("inverted residuals and LSTMs train with the same bits as under ddp in low precision",
          "[equivalence][torch]") {
  check_vision("cnn", 2, mobilenet(options_of({2, "bf16", false})), kThree);
  check_vision("cnn", 2, lstm(options_of({2, "fp16", false})), kThree);
}

TEST_CASE("inverted residuals and LSTMs train with the same bits in every world and dtype, also with recomputed units",
          "[.worlds]") {
  const Computation c = GENERATE(from_range(all_computations()));
  check_vision("cnn", c.world, mobilenet(options_of(c)));
  check_vision("cnn", c.world, lstm(options_of(c)));
}

TEST_CASE("a network of volumes trains with the same bits as under ddp, with class weights", "[equivalence][torch]") {
  check_vision("cnn", 2, volumes(), kThree);
}

TEST_CASE("a frozen trunk and a network of volumes train with the same bits under every strategy", "[.worlds]") {
  check_frozen(kOneOfEachStrategy);
  check_vision("cnn", 2, volumes());
}

TEST_CASE("neither world, accumulation nor threads change a bit of a convolutional network", "[equivalence][torch]") {
  check_spreads_of_cnn(kSpreads);
}

TEST_CASE("nor do the other worlds and threads change a bit of either", "[.worlds]") {
  SECTION("a Vision Transformer") { check_spreads_of_vit(kOtherSpreads); }
  SECTION("a convolutional network") { check_spreads_of_cnn(kOtherSpreads); }
}
