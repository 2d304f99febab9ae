// SPDX-License-Identifier: Apache-2.0
//
// A GPT gives the same bits under every strategy, in every world and dtype, with dropout. golden_run compares a larger one on
// two ranks, and threads_test.cpp other numbers of threads and micro-batches.
#include "equivalence/precisions.hpp"

using namespace ddhost::test;

namespace {

void check_gpt(const Computation& c) {
  const Options options = {"data.path=" + std::string(DDHOST_SOURCE_DIR) + "/tests/data/shakespeare/input.txt",
                           "data.micro_batch=4",
                           "model.size=custom",
                           "model.n_layer=2",
                           "model.n_head=2",
                           "model.n_embd=32",
                           "model.context=16",
                           "model.dropout=0.1",
                           "train.clip_norm=0.5",
                           "train.eval_every=3",
                           "train.eval_batches=3",
                           "run.sample_tokens=0"};
  check_strategies({kReference, c.world, joined(options, options_of(c)), 3, "gpt"}, 1);
}

}  // namespace

TEST_CASE("a GPT trains with the same bits under every strategy, in fp32, bf16 and fp16", "[equivalence][torch]") {
  check_gpt(GENERATE(from_range(some_computations())));
}

TEST_CASE("a GPT trains with the same bits in every world and dtype, also with recomputed units", "[.worlds]") {
  check_gpt(GENERATE(from_range(all_computations())));
}
