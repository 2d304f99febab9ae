// SPDX-License-Identifier: Apache-2.0
//
// Collectives per step are those that the strategy plans.
#include "equivalence/variants.hpp"

using namespace ddhost::test;

TEST_CASE("collectives per step equal the strategy's plan", "[counts]") {
  for (const Variant& way : taken_variants()) {
    for (const auto& [accum, optimizer] : {std::pair{"1", "adamw"}, {"3", "adamw"}, {"1", "muon"}}) {
      check_counts(run(way, 2, {"--optimizer", optimizer, std::string("train.grad_accum_steps=") + accum}));
    }
  }
}

namespace {

// What rank 0 sent in some steps.
std::pair<uint64_t, uint64_t> sent(const Result& result) {
  const auto& counters = result.record.summary.at("counters");
  return {counters.value("comm.sent_bytes", uint64_t{0}), counters.value("comm.sent_between_nodes_bytes", uint64_t{0})};
}

// From the second step on: in the first one, copied windows also gather what is never trained.
void check_sent(const Variant& way, int world, const Options& options) {
  constexpr int kFew = 2, kMore = 5;
  const Result few = run(way, world, options, kFew), more = run(way, world, options, kMore);
  const auto& plan = more.record.summary.at("plan_sent_bytes");
  INFO(more.command);
  CHECK(sent(more).first - sent(few).first == (kMore - kFew) * plan.at("all").get<uint64_t>());
  CHECK(sent(more).second - sent(few).second == (kMore - kFew) * plan.at("between_nodes").get<uint64_t>());
  CHECK((world == 1) == (plan.at("all") == 0));
  CHECK((world < 4) == (plan.at("between_nodes") == 0));
}

}  // namespace

TEST_CASE("the bytes that a rank sends in a step equal the strategy's plan", "[counts]") {
  const std::vector<Mode> modes = {
      {"ddp", {}},
      {"zero1", {}},
      {"zero2", {"strategy.reduce_bucket_bytes=2000"}},
      {"zero3", {}},
      {"zero3", {"strategy.persistence_bytes=200", "strategy.prefetch_units=3", "strategy.reuse_bytes=1000000"}},
      {"zero3_offload", {"strategy.offload_optimizer.device=nvme", "strategy.offload_param.device=nvme", nvme_path()}},
      {"fsdp", {"strategy.sharding_strategy=SHARD_GRAD_OP"}},
      {"fsdp", {"strategy.cpu_offload=true"}},
      {"fsdp", {"strategy.sharding_strategy=NO_SHARD"}},
      {"fsdp", {"strategy.sharding_strategy=HYBRID_SHARD", "train.reduce_block=2"}},
      {"fsdp", {"strategy.reshard_after_forward=2"}}};
  for (const Mode& mode : modes) {
    for (const Options& way : selected(2, std::vector<Options>{{"comm.windows=auto", "train.grad_accum_steps=1"},
                                                               {"comm.windows=copy", "train.grad_accum_steps=3"},
                                                               {"comm.windows=copy", "train.grad_accum_steps=1"},
                                                               {"comm.windows=auto", "train.grad_accum_steps=3"}})) {
      Options options = mode.options;
      options.insert(options.end(), way.begin(), way.end());
      options.emplace_back("run.ranks_per_node=2");
      check_sent({mode.strategy, "shm", {}}, 4, options);
    }
  }
  // Without the code that plans and counts: ddp sends (R+1) (N-1)/N 4 P, of which two peers of three are on the other node.
  const Result ddp = run(kDdp, 4, {"run.ranks_per_node=2", "model.hidden=2000"}, 2);
  const auto sent_by_ddp = static_cast<double>(ddp.record.summary.at("plan_sent_bytes").at("all").get<uint64_t>());
  CHECK(sent_by_ddp == Approx(2 * 0.75 * static_cast<double>(planned_bytes(ddp, 0, "grad"))).epsilon(0.1));
  CHECK(static_cast<double>(sent(ddp).second) == Approx(2.0 / 3 * static_cast<double>(sent(ddp).first)).epsilon(0.1));
  check_sent(kZero1, 1, {});
  check_sent(kZero3, 3, {"comm.windows=copy", "train.grad_accum_steps=2", "train.reduce_order=micro_first"});
}
