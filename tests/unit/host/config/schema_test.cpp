// SPDX-License-Identifier: Apache-2.0
//
// Reading schemas, checking single values, finding near names.
#include "config/schema.hpp"

#include <catch2/catch.hpp>

#include "base/text.hpp"
#include "config/host_schema.hpp"
#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using ddhost::test::sentence_of;

namespace {

Option option_of(const std::string& node) {
  return parse_schema(("{\"properties\": {\"x\": " + node + "}}").c_str(), "a test").options.at(0);
}
Json check(const Option& option, const char* value) {
  return checked_value(option, Json::parse(value), "train.x", "on the command line");
}
std::string refusal(const Option& option, const char* value) {
  return sentence_of([&] { check(option, value); });
}

}  // namespace

TEST_CASE("a value of the right type and range passes unchanged", "[schema]") {
  CHECK(check(option_of(R"({"type": "integer", "minimum": 0, "maximum": 5})"), "5") == 5);
  CHECK(check(option_of(R"({"type": "number"})"), "3") == 3);
  CHECK(check(option_of(R"({"type": ["integer", "null"]})"), "null").is_null());
  CHECK(check(option_of(R"({"type": "boolean"})"), "true") == true);
  CHECK(check(option_of(R"({"type": "array", "items": {"type": "number"}})"), "[1, 2.5]").size() == 2);
}

TEST_CASE("other names for a value are read as that value", "[schema]") {
  const Option option =
      option_of(R"({"type": ["string", "null"], "enum": ["bf16", null], "x-spellings": {"torch.bfloat16": "bf16"}})");
  CHECK(check(option, "\"torch.bfloat16\"") == "bf16");
  CHECK(check(option, "\"bf16\"") == "bf16");
  CHECK(check(option, "null").is_null());
  CHECK_THAT(refusal(option, "\"torch.half\""), Catch::Contains("one of bf16"));
}

TEST_CASE("an integral floating-point number becomes an integer if one is expected", "[schema]") {
  const Json value = check(option_of(R"({"type": "integer"})"), "2e3");
  CHECK(value.is_number_integer());
  CHECK(value == 2000);
  CHECK(refusal(option_of(R"({"type": "integer"})"), "2.5") != "");
}

TEST_CASE("an error names key, value, source and the legal values", "[schema]") {
  const std::string wrong_type = refusal(option_of(R"({"type": "integer", "minimum": 1})"), "\"many\"");
  for (const char* word : {"train.x", "\"many\"", "on the command line", "wrong type", "integer", "at least 1"})
    CHECK_THAT(wrong_type, Catch::Contains(word));
  CHECK_THAT(refusal(option_of(R"({"type": "integer", "minimum": 1, "maximum": 9})"), "10"),
             Catch::Contains("out of range") && Catch::Contains("1 to 9"));
  CHECK_THAT(refusal(option_of(R"({"type": "string", "enum": ["red", "green"]})"), "\"blue\""),
             Catch::Contains("one of red, green"));
}

TEST_CASE("an integer beyond 64 bits is out of range, and the error gives the limit", "[schema]") {
  const Option open = option_of(R"({"type": ["integer", "null"]})"),
               limited = option_of(R"({"type": "integer", "minimum": 0, "maximum": 9})");
  CHECK_THAT(refusal(open, "9223372036854775808"),
             Catch::Contains("is out of range (integers end at 9223372036854775807)"));
  CHECK_THAT(refusal(open, "-9223372036854775809"),
             Catch::Contains("is out of range (integers begin at -9223372036854775808)"));
  for (const char* value : {"1e30", "-1e30", "18446744073709551615"})
    CHECK_THAT(refusal(limited, value), Catch::Contains("is out of range; it takes integer, 0 to 9"));
  CHECK(refusal(open, "9223372036854775807").empty());
  CHECK_THAT(refusal(open, "1.5"), Catch::Contains("has the wrong type"));
  CHECK_THAT(refusal(option_of(R"({"type": "array", "items": {"type": "integer"}})"), "[1, 1e30]"),
             Catch::Contains("holds 1e+30, which is out of range (integers end at"));
  CHECK_THAT(sentence_of([&] { checked_value(limited, 1e30, "x", "here", "1000000000000000000000000000000"); }),
             Catch::Contains("x = 1000000000000000000000000000000 here is out of range"));
}

TEST_CASE("limits are closed, exclusiveMinimum is open", "[schema]") {
  const Option closed = option_of(R"({"type": "number", "minimum": 0, "maximum": 1})");
  CHECK(refusal(closed, "0").empty());
  CHECK(refusal(closed, "1").empty());
  CHECK_FALSE(refusal(closed, "1.0001").empty());
  const Option open = option_of(R"({"type": "number", "exclusiveMinimum": 0})");
  CHECK_FALSE(refusal(open, "0").empty());
  CHECK(refusal(open, "1e-300").empty());
}

TEST_CASE("arrays are checked for their length and items", "[schema]") {
  const Option pair = option_of(R"({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2})");
  CHECK(refusal(pair, "[1, 2]").empty());
  CHECK_THAT(refusal(pair, "[1]"), Catch::Contains("1 items") && Catch::Contains("2 items"));
  CHECK_THAT(refusal(pair, "[1, \"two\"]"), Catch::Contains("\"two\""));
}

TEST_CASE("the error for an ill-formed schema names the plugin and the place", "[schema]") {
  const auto parse = [](const char* text) { return sentence_of([&] { parse_schema(text, "strategy 'odd'"); }); };
  CHECK_THAT(parse("{"), Catch::Contains("strategy 'odd'") && Catch::Contains("not valid JSON"));
  CHECK_THAT(parse(R"({"properties": {"x": {"type": "colour"}}})"), Catch::Contains("colour"));
  CHECK_THAT(parse(R"({"properties": {"x": {}}})"), Catch::Contains("no type"));
  CHECK_THAT(parse(R"({"properties": {"x": {"type": "integer", "minimun": 1}}})"), Catch::Contains("minimun"));
  CHECK_THAT(parse(R"({"properties": {"x": {"type": "integer", "default": "a"}}})"), Catch::Contains("wrong type"));
  CHECK_THAT(parse(R"({"properties": {}, "x-aliases": {"y": {"key": "x"}}})"),
             Catch::Contains("which is not an option"));
  CHECK_THAT(parse(R"({"properties": {"x": {"type": "integer"}, "x": {"type": "number"}}})"),
             Catch::Contains("'x' occurs twice"));
  CHECK_THAT(parse(R"({"properties": {"": {"type": "integer"}}})"), Catch::Contains("an empty name"));
  CHECK_THAT(parse(R"({"properties": {"a.b": {"type": "integer"},
                       "a": {"type": "object", "properties": {"b": {"type": "integer"}}}}})"),
             Catch::Contains("'a.b' occurs twice"));
  for (const char* limits :
       {R"("type": "integer", "minimum": 2, "maximum": 1)", R"("type": "number", "exclusiveMinimum": 1, "maximum": 1)",
        R"("type": "array", "minItems": 3, "maxItems": 2)"})
    CHECK_THAT(parse(ddh::str(R"({"properties": {"x": {)", limits, "}}}").c_str()),
               Catch::Contains("no value fits the limits of 'x'"));
  CHECK_THAT(parse(R"({"properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                       "x-aliases": {"y": {"key": "x"}}})"),
             Catch::Contains("alias 'y' has an empty name, or the name of another option"));
}

TEST_CASE("the language of schemas has versions", "[schema]") {
  const auto parse = [](const char* text) { return sentence_of([&] { parse_schema(text, "strategy 'odd'"); }); };
  CHECK(parse(R"({"x-schema": 1, "properties": {}})").empty());
  CHECK_THAT(
      parse(R"({"x-schema": 2, "properties": {"x": {"type": "colour"}}})"),
      Catch::Contains("strategy 'odd' needs version 2 of the schema language") && Catch::Contains("update ddhost"));
  CHECK_THAT(parse(R"({"x-schema": 0})"), Catch::Contains("x-schema"));
  CHECK_NOTHROW(ddhost::parse_schema(R"({"x-less-memory": "zero1"})", "a strategy"));  // of earlier versions
  for (const char* text : {R"({"patternProperties": {}})", R"({"properties": {"a": {"type": "object", "x-units": 1}}})",
                           R"({"properties": {"x": {"type": "integer", "x-units": "bytes"}}})"})
    CHECK_THAT(parse(text), Catch::Contains("version 1 of the schema language"));
  CHECK(parse(R"({"properties": {"x": {"type": "integer", "x-org.example.colour": "red"}}})").empty());
}

TEST_CASE("no schema means no options", "[schema]") {
  CHECK(parse_schema(nullptr, "x").options.empty());
  CHECK(parse_schema("", "x").options.empty());
}

TEST_CASE("options of nested objects have dotted names", "[schema]") {
  const Schema schema = parse_schema(
      R"({"properties": {"moe": {"type": "object", "properties": {"experts": {"type": "integer", "default": 4}}}}})",
      "x");
  REQUIRE(schema.find("moe.experts") != nullptr);
  CHECK(schema.find("moe.experts")->preset == 4);
}

TEST_CASE("every option of the host has a description and a default", "[schema]") {
  for (const Section& section : host_sections()) {
    for (const Option& option : section.schema.options) {
      INFO(section.name << "." << option.name);
      CHECK_FALSE(option.description.empty());
      CHECK((!option.preset.is_null() || option.takes("null")));
    }
  }
}

TEST_CASE("edit distance counts insertions, deletions, replacements and swaps", "[schema]") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("steps", "stepz") == 1);
  CHECK(edit_distance("train", "trian") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("the nearest name is given only when it is near", "[schema]") {
  CHECK(nearest("stepz", {"lr", "steps", "stop"}) == "steps");
  CHECK(nearest("zebra", {"lr", "steps"}).empty());
  CHECK(nearest("ab", {"xy"}).empty());
  CHECK(nearest("tcp", {"ddp"}).empty());
  CHECK(nearest("lst", {"list"}) == "list");
}
