// SPDX-License-Identifier: Apache-2.0
//
// The SDK's description of a model.
#include "ddh/sdk/model.hpp"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

TEST_CASE("a description keeps its addresses while threads ask for it", "[sdk]") {
  ddh::ModelDesc desc("net");
  for (int32_t unit = 0; unit < 5; ++unit) {
    const int32_t weight = desc.add_param(unit, ddh::str("w.", unit), {2, 3}, {DDH_INIT_ZERO, 0, 0});
    desc.add_unit(ddh::str("unit.", unit), {weight});
  }
  desc.add_program({.kind = DDH_PROGRAM_TRAIN,
                    .name = "train",
                    .units = {0, 1, 2, 3, 4},
                    .metrics = {"loss"},
                    .n_samples = 10,
                    .sample_unit = "rows"});
  const ddh_model_desc first = desc.get();
  // As the threads of a rank that create batches do, while another runs units.
  std::atomic<int> n_moved{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        const ddh_model_desc& now = desc.get();
        if (now.units != first.units || now.params != first.params || now.programs != first.programs) ++n_moved;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(n_moved == 0);
  CHECK(std::string_view(desc.get().units[4]->name) == "unit.4");
}

TEST_CASE("a description has what was added after it was asked for", "[sdk]") {
  ddh::ModelDesc desc("net");
  CHECK(desc.get().n_params == 0);
  const int32_t weight = desc.add_param(0, "w", {2}, {DDH_INIT_ZERO, 0, 0});
  CHECK(desc.get().n_params == 1);
  desc.add_unit("unit", {weight});
  REQUIRE(desc.get().n_units == 1);
  CHECK(desc.get().units[0]->n_params == 1);
  CHECK(std::string_view(desc.get().name) == "net");
}

TEST_CASE("the meaning of a model's ids is printable and short, and long ones that differ stay different", "[sdk]") {
  ddh::ModelDesc desc("net");
  CHECK(desc.get().meaning_of_ids == nullptr);
  const auto meaning = [&](const std::string& text) {
    desc.set_meaning_of_ids(text);
    return std::string(desc.get().meaning_of_ids);
  };
  CHECK(meaning("3 characters: \n\\\xe9") == "3 characters: \\x0a\\x5c\\xe9");
  const std::string many(5000, 'a'), first = meaning(many + "b"), second = meaning(many + "c");
  CHECK(first.size() == 150);
  CHECK(first != second);
  CHECK(first.substr(0, 100) == second.substr(0, 100));
}
