// SPDX-License-Identifier: Apache-2.0
//
// Gradients in blocks of rows give the bits of whole ones, under every strategy that divides gradients, with every size of its
// buffers. Memory, calls and bytes sent are those of the plan.
#include <catch2/catch.hpp>

#include "equivalence/features.hpp"

using namespace ddhost::test;

namespace {

// A layer has 70 x 8 elements in blocks of 8 rows, which no number of ranks divides evenly; and others of 832 elements.
const Options kModel = {"data.micro_batch=3", "model.layers=3", "model.width=8", "model.hidden=70",
                        "model.grad_rows=8"};
constexpr uint64_t kBlock = 64 * sizeof(float);

Options with_buffers(uint64_t bytes) { return {"strategy.grad_buffer_bytes=" + std::to_string(bytes)}; }

struct Divided {
  const char* strategy;
  Options options;
};
const std::vector<Divided> kDivided = {{"zero2", {}}, {"zero2", {"strategy.overlap_comm=false"}},
                                       {"zero3", {}}, {"zero3_offload", {}},
                                       {"fsdp", {}},  {"fsdp", {"strategy.cpu_offload=true"}}};
const std::vector<Options> kAccumulations = {{}, {"train.grad_accum_steps=3", "train.reduce_order=rank_first"}};

Result run_blocks(const Divided& way, int world, const Options& options, const std::string& comm = "loop") {
  return run(Variant{way.strategy, comm, way.options}, world, joined(kModel, options), 5);
}
Result run_whole(int world, const Options& options) { return run(kReference, world, joined(kModel, options), 5); }

int reductions(const Result& result) { return result.record.summary.at("counters").value("comm.reduce", 0); }

void check_equal(const Result& reference, const Result& result) {
  check_same_bits(reference, result);
  check_plan(result);
  check_counts(result);
}

}  // namespace

TEST_CASE("gradients in blocks give the bits of plain ddp, in every world and with every size of buffers",
          "[options]") {
  const int world = GENERATE(2, 3, 4);
  const auto accumulation = GENERATE(from_range(kAccumulations));
  const Result reference = run_whole(world, accumulation);
  for (size_t i = 0; i < kDivided.size(); ++i) {
    for (const uint64_t bytes : {kBlock, 3 * kBlock, 8 * kBlock}) {
      const Options windows = {(i + bytes / kBlock) % 2 == 0 ? "comm.windows=copy" : "comm.windows=auto"};
      const Result result = run_blocks(kDivided[i], world, joined(joined(accumulation, windows), with_buffers(bytes)));
      check_equal(reference, result);
    }
  }
}

TEST_CASE("gradients in blocks take less memory and more reductions", "[options]") {
  const Result blocks = run_blocks({"zero2", {}}, 2, with_buffers(2 * kBlock));
  const Result whole = run_blocks({"zero2", {}}, 2, with_buffers(1 << 20));
  check_same_bits(whole, blocks);
  check_plan(blocks);
  check_counts(blocks);
  CHECK(peak_bytes(blocks, 0, "grad") < peak_bytes(whole, 0, "grad"));
  CHECK(reductions(blocks) > reductions(whole));
}

TEST_CASE("blocks keep the bits in low precision, and with masters, processes and a device of its own memory",
          "[options]") {
  for (const char* compute : {"precision.compute=bf16", "precision.compute=fp16"}) {
    const Options options = {compute};
    const Result reference = run_whole(3, options);
    check_equal(reference, run_blocks({"zero2", {}}, 3, joined(options, with_buffers(3 * kBlock)), "shm"));
    check_equal(reference, run_blocks({"zero3", {}}, 3, joined(options, with_buffers(3 * kBlock)), "shm"));
  }
  const Options accumulated = {"train.grad_accum_steps=2"};
  const Result reference = run_whole(2, accumulated);
  for (const char* strategy : {"zero2", "zero3"}) {
    const Variant way = on_sim(strategy);
    check_equal(reference, run(way, 2, joined(joined(kModel, accumulated), with_buffers(3 * kBlock)), 5));
  }
}

TEST_CASE("blocks keep the bits where several shard groups hold the model", "[options]") {
  const Options blocks_of_ranks = {"train.reduce_block=2"};
  for (const Options& accumulation : kAccumulations) {
    const Options options = joined(blocks_of_ranks, accumulation);
    const Result reference = run_whole(4, options);
    check_equal(reference, run_blocks({"fsdp", {"strategy.sharding_strategy=hybrid_shard", "strategy.shard_size=2"}}, 4,
                                      joined(options, with_buffers(3 * kBlock))));
  }
}

TEST_CASE("gradients stay whole where a sum or an optimizer needs them", "[options]") {
  const Options micro_first = {"train.grad_accum_steps=3", "train.reduce_order=micro_first"},
                muon = {"--optimizer", "muon"};
  for (const Options& options : {micro_first, muon}) {
    const Result reference = run_whole(2, options);
    for (const char* strategy : {"zero2", "zero3"})
      check_equal(reference, run_blocks({strategy, {}}, 2, joined(options, with_buffers(3 * kBlock))));
  }
}

TEST_CASE("a buffer that has no room for a block is refused", "[options]") {
  const Options small = joined(kModel, {"model.grad_rows=16", "strategy.grad_buffer_bytes=300"});
  const Result result = attempt({Variant{"zero2", "loop", {}}, 2, small, 2, toy_model()});
  CHECK(result.code != 0);
  CHECK_THAT(result.err, Catch::Contains("strategy.grad_buffer_bytes=300") && Catch::Contains("512 bytes") &&
                             Catch::Contains("give at least that"));
}
