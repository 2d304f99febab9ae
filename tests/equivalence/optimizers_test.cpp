// SPDX-License-Identifier: Apache-2.0
//
// The same bits with every optimizer, and more of those that are not element-wise: they need norms of parameters, or whole
// matrices.
#include "equivalence/variants.hpp"
#include "fixtures/harness/listed.hpp"

using namespace ddhost::test;

TEST_CASE("every strategy gives the same bits with every optimizer", "[equivalence]") {
  for (const std::string& name : listed_plugins("optimizer", "adamw"))
    if (all_variants() || (name != "lamb" && name != "muon"))  // which have cases of their own
      check_all_equal(2, {"--optimizer", name, "train.clip_norm=0.5"});
}

TEST_CASE("every strategy gives the same bits: lion, which keeps one number per element", "[equivalence]") {
  check_all_equal(GENERATE(from_range(selected(1, std::vector<int>{2, 1, 3}))),
                  {"--optimizer", "lion", "train.clip_norm=0.5", "optimizer.weight_decay=0.1"});
}

TEST_CASE("every strategy gives the same bits: an optimizer that needs the norm of each parameter", "[equivalence]") {
  check_all_equal(GENERATE(from_range(selected(1, std::vector<int>{3, 1, 2}))),
                  {"--optimizer", "lamb", "optimizer.weight_decay=0.1", "model.nan_at_step=5", kManyBlocks});
}

TEST_CASE("every strategy gives the same bits: an optimizer that needs matrices whole, and two for the rest",
          "[equivalence]") {
  check_all_equal(GENERATE(from_range(selected(1, std::vector<int>{3, 1, 2}))),
                  {"--optimizer", "muon", "train.clip_norm=0.5", "model.nan_at_step=5", kManyBlocks});
}

TEST_CASE("every strategy gives the same bits: whole matrices, accumulation and more ranks than matrices",
          "[equivalence]") {
  check_all_equal(8, {"--optimizer", "muon", kManyBlocks, "train.grad_accum_steps=2", "data.micro_batch=2",
                      GENERATE("train.reduce_order=rank_first", "train.reduce_order=micro_first")});
}
