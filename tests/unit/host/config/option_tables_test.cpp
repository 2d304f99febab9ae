// SPDX-License-Identifier: Apache-2.0
//
// Options as tables (ddh/sdk/options.hpp): the schema that the compiler makes of them is the one that the host reads.
#include <catch2/catch.hpp>

#include "config/schema.hpp"
#include "ddh/sdk/options.hpp"

namespace {

constexpr ddh::Option kPlain[] = {
    {.name = "units", .type = "integer|null", .default_value = "null", .rules = R"("minimum": 2)", .description = "a"}};
constexpr ddh::Option kNested[] = {
    {.name = "near.device", .type = "string", .default_value = R"("cpu")", .rules = "", .description = "b"},
    {.name = "near.count", .type = "integer", .default_value = "3", .rules = "", .description = "c"},
    {.name = "far.device", .type = "string", .default_value = R"("disk")", .rules = "", .description = "d"}};
constexpr auto kAll = ddh::joined(kPlain, kNested);
constexpr auto kPlainLast = ddh::joined(kNested, kPlain);

std::vector<std::string> names(const char* schema) {
  std::vector<std::string> out;
  for (const ddhost::Option& option : ddhost::parse_schema(schema, "a table").options) out.push_back(option.name);
  return out;
}

}  // namespace

TEST_CASE("a table of options makes the schema of these options, in order, with objects of dotted names", "[schema]") {
  CHECK(names(ddh::kSchemaOf<kAll>) == std::vector<std::string>{"units", "near.device", "near.count", "far.device"});
  CHECK(names(ddh::kSchemaOf<kPlainLast>) ==
        std::vector<std::string>{"near.device", "near.count", "far.device", "units"});
  const ddhost::Schema schema = ddhost::parse_schema(ddh::kSchemaOf<kAll>, "a table");
  CHECK(schema.find("near.device")->preset == "cpu");
  CHECK(schema.find("far.device")->description == "d");
}

TEST_CASE("an option of several types takes them all", "[schema]") {
  const ddhost::Schema schema = ddhost::parse_schema(ddh::kSchemaOf<kPlain>, "a table");
  CHECK(schema.find("units")->types == std::vector<std::string>{"integer", "null"});
  CHECK(schema.find("units")->preset.is_null());
  CHECK(schema.find("units")->minimum == 2.0);
}
