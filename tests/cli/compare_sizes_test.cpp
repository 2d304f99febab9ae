// SPDX-License-Identifier: Apache-2.0
//
// `ddhost compare --sizes`: one table for each size of the model.
#include <nlohmann/json.hpp>

#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;

TEST_CASE("sizes of a model are compared in tables of their own", "[cli]") {
  const TempFolder folder;
  // The sizes have other numbers of blocks; widths are small, so that a step is short.
  const Words words = {"compare",
                       "--model",
                       "gpt",
                       "--strategies",
                       "ddp,zero1",
                       "--sizes",
                       "0.8M,10.8M",
                       "--nproc",
                       "2",
                       "--steps",
                       "4",
                       "--rounds",
                       "1",
                       "model.n_embd=24",
                       "model.n_head=2",
                       "model.context=16",
                       "data.micro_batch=1",
                       "train.grad_accum_steps=1",
                       "--out",
                       folder.file("compare")};
  const Said said = call_ddhost(words);
  INFO(said.out << said.err);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.out, Contains("0.8M") && Contains("10.8M"));
  const auto all = nlohmann::json::parse(call_ddhost(joined(words, {"--json"})).out);
  REQUIRE(all.size() == 4);
  for (const auto& one : all) {
    CHECK(one["losses"].size() == 4);
    CHECK(one["same_bits"] == true);  // as the first strategy of its size
  }
  CHECK(all[0]["size"] == "0.8M");
  CHECK(all[2]["size"] == "10.8M");
  CHECK(all[0]["speed_of_base"] == 1.0);
  CHECK(all[2]["speed_of_base"] == 1.0);
  CHECK(all[0]["losses"] != all[2]["losses"]);
  CHECK(all[0]["tag_bytes_of_all"] < all[2]["tag_bytes_of_all"]);
  CHECK_THAT(call_ddhost({"tune", "--model", "gpt", "--sizes", "0.8M,10.8M", "--out", folder.file("tune")}).err,
             Contains("tune takes one model"));
}
