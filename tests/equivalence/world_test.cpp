// SPDX-License-Identifier: Apache-2.0
//
// Results that do not depend on the world size: 24 micro-batches of a step, distributed over ranks and accumulation in
// every way, give the same gradient norms and parameters under every strategy (train.reduce_order=rank_first;
// docs/numerics.md, "Order of sums"). With train.reduce_block=B this holds for world sizes that B divides.
//
// `same_bits_worlds` runs a selection. With DDHOST_ALL_VARIANTS it runs every variant in every world, with DDHOST_STRATEGY
// every variant of that strategy.
#include "equivalence/variants.hpp"

using namespace ddhost::test;

namespace {

constexpr int kMicroBatches = 24, kSteps = 5;

struct Spread {
  Variant way;
  int world;
};

Result run_spread(const Variant& way, int world, const Options& options) {
  return run(way, world,
             joined(options, {"data.micro_batch=2", "train.clip_norm=0.1",
                              "train.grad_accum_steps=" + std::to_string(kMicroBatches / world)}),
             kSteps);
}

void check_same_sums(const Result& reference, const Result& other) {
  INFO("reference: " << reference.command << "\nother:     " << other.command);
  CHECK(other.grad_norm == reference.grad_norm);
  CHECK((other.weights == reference.weights));
  CHECK(other.loss == reference.loss);
  check_plan(other);
}

bool takes_selection() { return !all_variants() && taken_strategies().size() > 1; }

// Every selected variant in every world of `worlds`.
std::vector<Spread> product(const std::vector<int>& worlds) {
  std::vector<Spread> out;
  for (const Variant& way : taken_variants()) {
    for (const int world : worlds) out.push_back({way, world});
  }
  return out;
}

const Options kCopies = {"comm.windows=copy", "comm.poison=true"};

// Every strategy, both transports, pages shared and copied, every world.
std::vector<Spread> selection() {
  return {{{"ddp", "loop", {}}, 2},
          {{"ddp", "shm", kCopies}, 3},
          {{"zero1", "shm", {}}, 4},
          {{"zero1", "loop", kCopies}, 6},
          {{"zero2", "loop", {}}, 8},
          {{"zero2", "shm", kCopies}, 12},
          {{"zero3", "shm", {}}, 12},
          {{"zero3", "loop", kCopies}, 3},
          {{"fsdp", "loop", {"strategy.cpu_offload=true"}}, 6},
          {{"fsdp", "shm", joined(kCopies, {"strategy.sharding_strategy=no_shard"})}, 4},
          {{"zero3_offload", "shm", {"strategy.offload_optimizer.device=nvme", nvme_path()}}, 2},
          {{"zero3_offload", "loop", joined(kCopies, {"strategy.offload_param.device=cpu"})}, 8}};
}

// The shards of a pair are one block.
Variant hybrid(const char* comm, const Options& options) {
  return {"fsdp", comm, joined(options, {"strategy.sharding_strategy=hybrid_shard", "strategy.shard_size=2"})};
}

}  // namespace

TEST_CASE("24 micro-batches give the same bits for every distribution over ranks and accumulation", "[worlds]") {
  const Result reference = run_spread(kReference, 1, {});
  for (const Spread& cell : takes_selection() ? selection() : product({1, 2, 3, 4, 6, 8, 12}))
    check_same_sums(reference, run_spread(cell.way, cell.world, {}));
  const Result other_order = run_spread(kReference, 4, {"train.reduce_order=micro_first"});
  CHECK(other_order.grad_norm != reference.grad_norm);  // so the order matters here
}

TEST_CASE("sums of rounded gradients do not depend on the world either", "[worlds]") {
  const Options options = GENERATE(Options{"precision.reduce_dtype=bf16"},
                                   Options{"precision.reduce_dtype=bf16", "precision.compute=bf16"});
  const Result reference = run_spread(kReference, 1, options);
  CHECK(reference.grad_norm != run_spread(kReference, 1, {}).grad_norm);
  const std::vector<Spread> few = {{{"zero2", "shm", {}}, 4},
                                   {{"zero3", "loop", kCopies}, 6},
                                   {{"fsdp", "loop", {"strategy.sharding_strategy=no_shard"}}, 3}};
  for (const Spread& cell : takes_selection() ? few : product({2, 3, 4, 6, 8, 12}))
    check_same_sums(reference, run_spread(cell.way, cell.world, options));
}

TEST_CASE("with blocks of two ranks worlds of even size have the same bits", "[worlds]") {
  const Options options = GENERATE(Options{}, Options{"precision.reduce_dtype=bf16"});
  const Options blocks = joined(options, {"train.reduce_block=2"});
  const Result reference = run_spread(kReference, 2, blocks);
  if (options.empty())  // sums of bf16 values are rarely rounded, so the order may not show
    CHECK(reference.grad_norm != run_spread(kReference, 2, options).grad_norm);
  const Options no_shard = {"strategy.sharding_strategy=no_shard"};
  std::vector<Spread> cells = {
      {{"ddp", "shm", {}}, 4},         {{"zero1", "loop", kCopies}, 6},
      {{"zero3", "shm", {}}, 12},      {hybrid("loop", {}), 8},
      {hybrid("shm", kCopies), 12},    {hybrid("loop", {"strategy.cpu_offload=true"}), 4},
      {{"fsdp", "loop", no_shard}, 6}, {{"fsdp", "shm", joined(no_shard, {"strategy.cpu_offload=true"})}, 4}};
  if (!takes_selection()) {
    cells = product({2, 4, 6, 8, 12});
    for (const int world : {4, 6, 8, 12}) {
      for (const char* comm : {"loop", "shm"}) {
        cells.push_back({hybrid(comm, {}), world});
        cells.push_back({hybrid(comm, kCopies), world});
      }
    }
  }
  for (const Spread& cell : cells) check_same_sums(reference, run_spread(cell.way, cell.world, blocks));
}

TEST_CASE("worlds have the same bits with uneven last steps, repeated units, other optimizers and a skipped step",
          "[worlds]") {
  const auto options =
      GENERATE(Options{"model.samples=100", "data.drop_last=false", "model.ignore_every=3"},
               Options{"model.repeat=1", "train.recompute=2", "--optimizer", "lamb"},
               Options{"--optimizer", "muon", kManyBlocks, "model.nan_at_step=3"}, Options{"model.programs=2"});
  const Result reference = run_spread(kReference, 1, options);
  for (const Spread& cell : {Spread{{"zero3", "shm", {}}, 4}, {{"ddp", "loop", kCopies}, 3}, {{"zero1", "shm", {}}, 8}})
    check_same_sums(reference, run_spread(cell.way, cell.world, options));
}

TEST_CASE("a device with its own memory has the same bits in every world", "[worlds]") {
  const Options sim = {"--device", "sim", "device.delay_us=10", "device.seed=5", "comm.poison=true"};
  const Result reference = run_spread(kReference, 1, {}),
               in_blocks = run_spread(kReference, 2, {"train.reduce_block=2"});
  for (const char* strategy : {"ddp", "zero2"}) check_same_sums(reference, run_spread({strategy, "loop", sim}, 3, {}));
  check_same_sums(reference, run_spread({"fsdp", "loop", joined(sim, {"strategy.cpu_offload=true"})}, 2, {}));
  Variant replicas = hybrid("loop", joined(sim, {"strategy.cpu_offload=true"}));
  check_same_sums(in_blocks, run_spread(replicas, 4, {"train.reduce_block=2"}));
  replicas = {"fsdp", "loop", joined(sim, {"strategy.sharding_strategy=no_shard"})};
  check_same_sums(in_blocks, run_spread(replicas, 4, {"train.reduce_block=2"}));
}
