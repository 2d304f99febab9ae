// SPDX-License-Identifier: Apache-2.0
//
// ddh.config as a plugin sees it: which keys it may read, which it may set, and how long strings live.
#include <catch2/catch.hpp>

#include "fixtures/harness/host_services.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

// What reading a string says; "" when it works.
std::string reading(HostServices& host, const char* key) {
  const char* text = nullptr;
  return sentence_of([&] { ddh::call(host.table<ddh_config_api>(DDH_CONFIG_IFACE).get_str, host.h(), key, &text); });
}

void give(HostServices& host) {
  for (const char* key : {"run.name", "run.dir", "data.path", "precision.compute", "device.plugin", "strategy.mode",
                          "optimizer.kind", "optimizer_kg.kind", "run.ranks_per_node", "train.reduce_order"})
    host.config().set(key, "x", "test");
}

}  // namespace

TEST_CASE("a plugin reads the options of its own section and the promised keys, nothing else", "[config]") {
  HostServices strategy("strategy:mine"), model("model:mine"), optimizer("optimizer:adam"),
      second("optimizer:adam", "optimizer_kg");
  for (HostServices* host : {&strategy, &model, &optimizer, &second}) {
    give(*host);
    CHECK(reading(*host, "run.name").empty());
    CHECK(reading(*host, "run.dir").empty());
    CHECK_THAT(reading(*host, "train.reduce_order"), Catch::Contains("reduce_order of ddh_attach_args"));
    CHECK_THAT(reading(*host, "run.ranks_per_node"), Catch::Contains("ranks_per_node of ddh_attach_args"));
  }
  CHECK(reading(strategy, "strategy.mode").empty());
  CHECK(reading(strategy, "device.plugin").empty());
  CHECK(reading(model, "data.path").empty());
  CHECK(reading(model, "precision.compute").empty());
  CHECK(reading(optimizer, "optimizer.kind").empty());
  CHECK(reading(second, "optimizer_kg.kind").empty());
  CHECK_THAT(reading(second, "optimizer.kind"), Catch::Contains("an option of its own section 'optimizer_kg'"));
  CHECK_THAT(reading(optimizer, "optimizer_kg.kind"), Catch::Contains("own section 'optimizer'"));
  CHECK_THAT(reading(model, "device.plugin"), Catch::Contains("not among the keys that a model is promised"));
  CHECK_THAT(reading(strategy, "precision.compute"), Catch::Contains("strategy:mine reads 'precision.compute'") &&
                                                         Catch::Contains("compute_dtype of ddh_attach_args"));
}

TEST_CASE("a key that is not promised is denied whether it exists or not, one of the own section is not found",
          "[config]") {
  HostServices host("strategy:mine");
  const auto& table = host.table<ddh_config_api>(DDH_CONFIG_IFACE);
  int64_t number = 0;
  double real = 0;
  uint32_t n = 0;
  const char* text = nullptr;
  CHECK(table.get_i64(host.h(), "train.steps", &number, nullptr) == DDH_PERMISSION_DENIED);
  CHECK(table.get_f64(host.h(), "train.steps", &real, nullptr) == DDH_PERMISSION_DENIED);
  CHECK(table.get_f64s(host.h(), "train.steps", &real, 1, &n, nullptr) == DDH_PERMISSION_DENIED);
  CHECK(table.get_strs(host.h(), "train.steps", &text, 1, &n, nullptr) == DDH_PERMISSION_DENIED);
  CHECK(table.get_i64(host.h(), "strategy", &number, nullptr) == DDH_PERMISSION_DENIED);
  CHECK(table.get_i64(host.h(), "strategy.none", &number, nullptr) == DDH_NOT_FOUND);
}

TEST_CASE("a string stays valid when agree replaces the value", "[config]") {
  HostServices host("model:mine");
  host.config().set("model.matmul", "auto", "default");
  const auto& table = host.table<ddh_config_api>(DDH_CONFIG_IFACE);
  const char *before = nullptr, *agreed = nullptr, *after = nullptr;
  ddh::call(table.get_str, host.h(), "model.matmul", &before);
  for (int i = 0; i < 100; ++i)
    ddh::call(table.agree, host.h(), "model.matmul", ("a choice of many letters " + std::to_string(i)).c_str(),
              &agreed);
  ddh::call(table.get_str, host.h(), "model.matmul", &after);
  CHECK(std::string(before) == "auto");
  CHECK(std::string(agreed) == "a choice of many letters 99");
  CHECK(std::string(after) == "a choice of many letters 99");
  CHECK_THAT(sentence_of([&] { ddh::call(table.agree, host.h(), "train.steps", "3", &agreed); }),
             Catch::Contains("model:mine wants to set 'train.steps'"));
}
