// SPDX-License-Identifier: Apache-2.0
//
// When zero3_offload gathers what: whatever is gathered ahead, kept or computed again, the bits are ddp's, and memory and calls
// are those of the plan.
#include "equivalence/ways.hpp"

using namespace ddhost::test;

namespace {

constexpr int kSteps = 4;

Options operator+(Options a, const Options& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Options kParamsInMemory = {"strategy.offload_param.device=cpu"};

Result check(const Result& reference, const Options& options) {
  Result result = run({"zero3_offload", "loop", options}, reference.cell.world, reference.cell.options, kSteps);
  check_same_bits(reference, result);
  check_plan(result);
  check_counts(result);
  return result;
}

int counted(const Result& result, const char* counter) {
  return result.record.summary.at("counters").value(counter, 0);
}

}  // namespace

TEST_CASE("what is computed again is gathered again, as often as was planned", "[equivalence]") {
  const auto options = GENERATE(Options{"train.recompute=1"}, Options{"train.recompute=2", "train.grad_accum_steps=3"},
                                Options{"train.recompute=1", "train.grad_accum_steps=2", "model.repeat=1"});
  const Result reference = run(kReference, 2, options, kSteps);
  for (const char* units : {"0", "1", "3"}) {
    const Options ahead = {std::string("strategy.prefetch_units=") + units};
    check(reference, kParamsInMemory + ahead);
    check(reference, Options{"comm.windows=copy", "comm.poison=true"} + ahead);
  }
}

TEST_CASE("a unit that nothing is gathered ahead of comes three times a micro-batch with recomputation, twice without",
          "[counts]") {
  const Options nothing_ahead = kParamsInMemory + Options{"strategy.prefetch_units=0"};
  const Result kept = run({"zero3_offload", "loop", nothing_ahead}, 2, {}, kSteps),
               again = run({"zero3_offload", "loop", nothing_ahead}, 2, {"train.recompute=1"}, kSteps);
  // Embedding, three layers of two spaces, and the head, which shows its bias and the embedding.
  constexpr int kSpacesUsed = 1 + 3 * 2 + 2;
  CHECK(counted(kept, "comm.all_gather") - counted(again, "comm.all_gather") == -kSteps * kSpacesUsed);
}
