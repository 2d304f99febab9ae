// SPDX-License-Identifier: Apache-2.0
//
// Models of images give the same bits under every strategy, in every world and with any number of threads, with all kinds
// of randomness in their training.
#include <cstdlib>

#include "equivalence/features.hpp"
#include "equivalence/precisions.hpp"

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

Options cnn(const Options& more) {
  Options all = {"model.dataset=made_up", "model.network=basic",       "model.widths=[4, 6]", "model.hidden=8",
                 "model.padding=1",       "model.batch_norm=true",     "model.dropout=0.2",   "model.mixup=0.4",
                 "model.crop_padding=2",  "model.label_smoothing=0.1", "train.clip_norm=0.5", "train.eval_every=3",
                 "train.eval_batches=3"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void check_strategies(const std::string& model, int world, const Options& options) {
  const Result reference = run({kReference, world, options, 3, model});
  CHECK(reference.record.evaluations.size() == 1);
  check_took_its_steps(reference);
  for (const Variant& way : kOneOfEachStrategy) {
    const Result other = run({way, world, options, 3, model});
    check_same_bits(reference, other);
    check_plan(other);
  }
}

// 6 micro-batches in a step, spread over ranks and threads.
void check_spreads(const std::string& model, const Options& options) {
  const auto with = [&](int world, int threads) {
    setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
    Options all = options;
    all.push_back("train.grad_accum_steps=" + std::to_string(6 / world));
    const Result result = run({kReference, world, all, 3, model});
    unsetenv("OMP_NUM_THREADS");
    return result;
  };
  const Result one = with(1, 1);
  for (const auto& [world, threads] : {std::pair(1, 2), std::pair(2, 2), std::pair(3, 1), std::pair(3, 2)}) {
    const Result other = with(world, threads);
    INFO(one.command << " with 1 thread, " << other.command << " with " << threads);
    CHECK(same_bits(one, other));
  }
}

}  // namespace

TEST_CASE("a Vision Transformer trains with the same bits under every strategy, in fp32, bf16 and fp16",
          "[equivalence][torch]") {
  const int world = GENERATE(1, 2, 3);
  check_strategies(
      "vit", world,
      vit(joined(precision_of(world), {"data.micro_batch=4", world == 2 ? "model.names=hf" : "model.names=tv"})));
}

TEST_CASE("neither world, accumulation nor threads change a bit of a Vision Transformer", "[equivalence][torch]") {
  const std::string compute = GENERATE("fp32", "bf16");
  check_spreads("vit", vit({"data.micro_batch=12", "precision.compute=" + compute}));
}

TEST_CASE("a network with batch norms trains with the same bits under every strategy, in fp32, bf16 and fp16",
          "[equivalence][torch]") {
  const int world = GENERATE(1, 2, 3);
  check_strategies("cnn", world,
                   cnn(joined(precision_of(world), {"data.micro_batch=4", world == 2 ? "model.channels_last=true"
                                                                                     : "model.channels_last=false"})));
}

TEST_CASE("a network with synchronized batch norms trains with the same bits under every strategy",
          "[equivalence][torch]") {
  check_strategies("cnn", 2, cnn({"data.micro_batch=4", "model.sync_batch_norm=true"}));
}

TEST_CASE("synchronized batch norms make two ranks one: the same loss as one rank with all images",
          "[equivalence][torch]") {
  const auto with = [](int world, const char* micro_batch, const char* sync) {
    return run({kReference, world, cnn({micro_batch, sync, "model.dropout=0", "train.eval_batches=all"}), 4, "cnn"});
  };
  const Result one = with(1, "data.micro_batch=8", "model.sync_batch_norm=false");
  const Result apart = with(2, "data.micro_batch=4", "model.sync_batch_norm=false");
  const auto loss = [](const Result& r, size_t step) { return r.record.steps.at(step).at("loss").get<double>(); };
  const auto val = [](const Result& r) { return r.record.evaluations.at(0).at("val_loss").get<double>(); };
  for (const auto& [world, micro_batch] : {std::pair(2, "data.micro_batch=4"), std::pair(4, "data.micro_batch=2")}) {
    const Result together = with(world, micro_batch, "model.sync_batch_norm=true");
    INFO(together.command);
    for (size_t step = 0; step < 4; ++step) CHECK(loss(together, step) == Approx(loss(one, step)).epsilon(1e-5));
    CHECK(val(together) == Approx(val(one)).epsilon(1e-4));  // by running statistics
  }
  CHECK(std::abs(loss(apart, 1) / loss(one, 1) - 1) > 1e-3);
}

TEST_CASE("a frozen trunk trains its head with the same bits under every strategy", "[equivalence][torch]") {
  check_strategies("cnn", 2,
                   cnn({"data.micro_batch=4", "model.network=mobilenet_v3_small", "model.image_size=32",
                        "model.freeze=features", "model.batch_norm=false"}));
}

TEST_CASE("a network of videos trains with the same bits under every strategy", "[equivalence][torch]") {
  check_strategies("cnn", 2,
                   cnn({"data.micro_batch=4", "model.network=cnn_lstm", "model.dataset=moving_mnist",
                        "model.lstm=[6, 4]", "model.frames=3", "model.batch_norm=false"}));
}

TEST_CASE("a network of volumes trains with the same bits under every strategy, with class weights",
          "[equivalence][torch]") {
  check_strategies("cnn", 2,
                   cnn({"data.micro_batch=4", "model.network=conv3d", "model.dataset=moving_mnist", "model.frames=5",
                        "model.batch_norm=false", "model.class_weights=balanced"}));
}

TEST_CASE("neither world, accumulation nor threads change a bit of a convolutional network", "[equivalence][torch]") {
  const std::string compute = GENERATE("fp32", "bf16"), channels_last = compute == "bf16" ? "true" : "false";
  check_spreads("cnn",
                cnn({"data.micro_batch=12", "precision.compute=" + compute, "model.channels_last=" + channels_last}));
}
