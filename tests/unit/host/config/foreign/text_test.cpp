// SPDX-License-Identifier: Apache-2.0
//
// The readers of other programs' files: JSON as people write it by hand, and YAML.
#include "config/foreign/text.hpp"

#include <catch2/catch.hpp>

using namespace ddhost;

namespace {

struct Refused {
  std::string sentence;
  size_t line = 0;
};

template <class Read>
Refused refused(Read&& read) {
  try {
    read();
  } catch (const ForeignTextError& error) {
    return {error.what(), error.line};
  }
  return {};
}

Refused refused_json(const std::string& text) {
  return refused([&] { read_relaxed_json(text); });
}
Refused refused_yaml(const std::string& text) {
  return refused([&] { read_yaml(text); });
}

}  // namespace

TEST_CASE("JSON as people write it is read: comments, commas, keys and texts without quotes, no braces", "[foreign]") {
  const Json wanted = {{"a", 1}, {"b", {{"c", "x y"}, {"d", Json::array({1, 2})}}}};
  for (const char* text :
       {R"({"a": 1, "b": {"c": "x y", "d": [1, 2]}})", "{a: 1, b: {c: 'x y', d: [1, 2,],},}",
        "a: 1\nb: {\n  c: x y\n  d: [1\n 2]\n}", "# one\n{a: 1 // two\n, /* three */ b: {c: 'x y', d: [1,2]}}",
        "\xEF\xBB\xBF{\"a\": 1, \"b\": {\"c\": \"x y\", \"d\": [1, 2]}}"}) {
    INFO(text);
    CHECK(read_relaxed_json(text).root == wanted);
  }
  CHECK(read_relaxed_json("{a: 5e8}").root["a"] == Json(5e8));
  CHECK(read_relaxed_json("{a: true, b: null}").root == Json({{"a", true}, {"b", nullptr}}));
  CHECK(read_relaxed_json(R"({"a": "A\n\"é"})").root["a"] == Json("A\n\"\xC3\xA9"));
}

TEST_CASE("each key has its line", "[foreign]") {
  const ForeignText json = read_relaxed_json("{\n  a: 1\n  b: {\n    c: 2\n  }\n}");
  CHECK(json.line_of("a") == 2);
  CHECK(json.line_of("b.c") == 4);
  const ForeignText yaml = read_yaml("# comment\na: 1\nb:\n  c: 2 # comment\n");
  CHECK(yaml.line_of("a") == 2);
  CHECK(yaml.line_of("b.c") == 4);
  CHECK(yaml.root == Json({{"a", 1}, {"b", {{"c", 2}}}}));
}

TEST_CASE("a key that occurs twice is refused in both languages, with its second line", "[foreign]") {
  CHECK_THAT(refused_json("{a: 1,\n a: 1}").sentence, Catch::Contains("'a' occurs twice"));
  CHECK(refused_json("{a: 1,\n a: 1}").line == 2);
  CHECK_THAT(refused_yaml("a: 1\na: 1").sentence, Catch::Contains("'a' occurs twice"));
  CHECK(refused_yaml("a: 1\na: 1").line == 2);
}

TEST_CASE("a value without quotes that takes the rest of its line is named", "[foreign]") {
  CHECK_THAT(refused_json("{\"a\": NaN}").sentence, Catch::Contains("NaN}"));
  CHECK_THAT(refused_json("{\"a\": ${SIZE}, \"b\": 1}").sentence, Catch::Contains("placeholder"));
}

TEST_CASE("many brackets end in a sentence, not in a crash", "[foreign]") {
  CHECK_THAT(refused_json(std::string(1'000'000, '[')).sentence, Catch::Contains("64 levels"));
  CHECK_THAT(refused_json("{a:" + std::string(1'000'000, '[')).sentence, Catch::Contains("64 levels"));
  CHECK_THAT(refused_yaml("a: " + std::string(1'000'000, '[')).sentence, Catch::Contains("64"));
  std::string stairs;
  for (int i = 0; i < 200; ++i) stairs += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  CHECK_THAT(refused_yaml(stairs).sentence, Catch::Contains("64 levels"));
}

TEST_CASE("texts of commas and of one long word take time in proportion to their length", "[foreign]") {
  CHECK(!refused_json("{a: x" + std::string(900'000, ',')).sentence.empty());
  CHECK(read_relaxed_json("a: " + std::string(900'000, 'x')).root["a"].get<std::string>().size() == 900'000);
}

TEST_CASE("YAML: words are truth values as in version 1.1, quotes make texts", "[foreign]") {
  const Json root = read_yaml("a: no\nb: 'no'\nc: yes\nd: \"1\"\ne: 1.5\nf:\ng: ~\nh: [1, x]\ni: -1").root;
  CHECK(root == Json({{"a", false},
                      {"b", "no"},
                      {"c", true},
                      {"d", "1"},
                      {"e", 1.5},
                      {"f", nullptr},
                      {"g", nullptr},
                      {"h", Json::array({1, "x"})},
                      {"i", -1}}));
}

TEST_CASE("YAML: anchors, aliases, merge keys, tags and second documents are refused", "[foreign]") {
  CHECK_THAT(refused_yaml("a: &x 1\nb: *x").sentence, Catch::Contains("anchor"));
  CHECK_THAT(refused_yaml("a: 1\n<<: 2").sentence, Catch::Contains("merge key"));
  CHECK_THAT(refused_yaml("a: !!python/object:os.system x").sentence, Catch::Contains("tag"));
  CHECK_THAT(refused_yaml("a: 1\n---\nb: 1").sentence, Catch::Contains("second document"));
  CHECK_THAT(refused_yaml("a: [1, 2").sentence, Catch::Contains("not valid YAML"));
  CHECK_THAT(refused_yaml("a: {b: 1").sentence, Catch::Contains("not valid YAML"));
}
