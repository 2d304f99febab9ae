// SPDX-License-Identifier: Apache-2.0
//
// Transports with fewer capabilities: how they sum onto an accumulated gradient, and what is refused.
// tests/fixtures/comm/limited_comm.cpp has both transports.
#include "equivalence/variants.hpp"
#include "fixtures/harness/built.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

const Options kAccumulation = {"train.grad_accum_steps=3", "data.micro_batch=3"};
const Options kBlocks = {"train.grad_accum_steps=3", "data.micro_batch=3", "train.reduce_block=2"};

}  // namespace

TEST_CASE("a transport with sums in rank order but without a start value gives the same bits, with the planned memory",
          "[worlds]") {
  const std::string comm = test_plugin("ordered_comm");
  const Result reference = run(kReference, 4, kAccumulation), in_blocks = run(kReference, 4, kBlocks);
  for (const std::string& strategy : taken_strategies()) {
    const Result other = run({strategy, comm, {}}, 4, kAccumulation);
    check_same_bits(reference, other);
    check_plan(other);
    check_same_bits(in_blocks, run({strategy, comm, {}}, 4, kBlocks));
  }
  const Variant hybrid = {"fsdp", comm, {"strategy.sharding_strategy=hybrid_shard", "strategy.shard_size=2"}};
  check_same_bits(in_blocks, run(hybrid, 4, kBlocks));
  const Variant no_shard = {"fsdp", comm, {"strategy.sharding_strategy=no_shard"}};
  check_same_bits(reference, run(no_shard, 4, kAccumulation));
  const Variant sim = {"zero2", comm, {"--device", "sim", "device.delay_us=10", "device.seed=5", "comm.poison=true"}};
  check_same_bits(reference, run(sim, 4, kAccumulation));
}

TEST_CASE("memory that an exchange uses for its sum has the tag comm", "[worlds][memory]") {
  const Variant way = {"zero1", test_plugin("ordered_comm"), {}};
  const Result once = run(way, 2, {}), accumulated = run(way, 2, kAccumulation);
  CHECK(peak_bytes(accumulated, 0, "comm") > peak_bytes(once, 0, "comm"));
  CHECK(peak_bytes(accumulated, 0, "grad") == planned_bytes(accumulated, 0, "grad"));
}

TEST_CASE("a transport without an order of sums trains too, and differs only by rounding", "[worlds]") {
  const Result reference = run(kReference, 4, kAccumulation);
  for (const std::string& strategy : taken_strategies()) {
    const Result other = run({strategy, test_plugin("plain_comm"), {}}, 4, kAccumulation);
    CHECK(loss_distance(other, reference) < 1e-5);
    check_plan(other);
  }
}

TEST_CASE("replicas in blocks of several ranks need a start value, and the error says so", "[worlds]") {
  const Variant no_shard = {"fsdp", test_plugin("ordered_comm"), {"strategy.sharding_strategy=no_shard"}};
  const Result refused = attempt({no_shard, 4, kBlocks});
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err, Contains("DDH_COMM_INITIAL") && Contains("train.reduce_order=micro_first"));
  Options micro_first = kBlocks;
  micro_first.emplace_back("train.reduce_order=micro_first");
  check_same_bits(run(kReference, 4, micro_first), run(no_shard, 4, micro_first));
}
