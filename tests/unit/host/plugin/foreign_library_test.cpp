// SPDX-License-Identifier: Apache-2.0
//
// Libraries of other makers that a plugin was built with: their variables of threads and instructions.
#include "plugin/foreign_library.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "fixtures/harness/setting.hpp"

using namespace ddhost;
using ddhost::test::Setting;

namespace {

const ForeignLibrary kFast{"Fast",
                           "1.2",
                           "",
                           "install Fast",
                           {"libfast"},
                           {"FAST_THREADS", "FASTER_THREADS"},
                           {"avx2:FAST_ISA=two", "avx512:FAST_ISA=five", "no limit", "avx2:"}};

std::string value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "(not set)" : value;
}

// Unset at the end; Setting restores what was there.
struct NoVariables {
  Setting threads{"FAST_THREADS", ""}, more{"FASTER_THREADS", ""}, isa{"FAST_ISA", ""};
  NoVariables() {
    for (const char* name : {"FAST_THREADS", "FASTER_THREADS", "FAST_ISA"}) unsetenv(name);
  }
};

}  // namespace

TEST_CASE("a library gets its share of the cores, unless the user has set the number of threads", "[foreign_library]") {
  const NoVariables none;
  CHECK(threads_of(kFast) == 0);
  set_variables(kFast, {3, ""});
  CHECK(value_of("FAST_THREADS") == "3");
  CHECK(value_of("FASTER_THREADS") == "3");
  CHECK(threads_of(kFast) == 3);
  set_variables(kFast, {8, ""});
  CHECK(value_of("FAST_THREADS") == "3");
}

TEST_CASE("the number that the user gives the first variable of a library is that of the others", "[foreign_library]") {
  const NoVariables none;
  {
    const Setting given("FAST_THREADS", "4,2");  // one for each level of loops
    set_variables(kFast, {1, ""});
    CHECK(value_of("FAST_THREADS") == "4,2");
    CHECK(value_of("FASTER_THREADS") == "4");
    CHECK(threads_of(kFast) == 4);
  }
  const NoVariables again;
  const Setting given("FASTER_THREADS", "7");
  set_variables(kFast, {1, ""});
  CHECK(value_of("FAST_THREADS") == "1");
  CHECK(value_of("FASTER_THREADS") == "7");
}

TEST_CASE("an empty variable counts as one that is not set", "[foreign_library]") {
  const NoVariables none;
  const Setting empty("FAST_THREADS", "");
  set_variables(kFast, {2, ""});
  CHECK(value_of("FAST_THREADS") == "2");
}

TEST_CASE("without a share no variable is set", "[foreign_library]") {
  const NoVariables none;
  set_variables(kFast, {});
  CHECK(value_of("FAST_THREADS") == "(not set)");
  CHECK(value_of("FAST_ISA") == "(not set)");
}

TEST_CASE("a limit of instructions sets the library's variable, and another value of the user is named",
          "[foreign_library]") {
  const NoVariables none;
  set_variables(kFast, {0, "avx2"});
  CHECK(value_of("FAST_ISA") == "two");
  CHECK(other_limits(kFast, "avx2").empty());
  CHECK(other_limits(kFast, "") == " FAST_ISA=two");
  const Setting given("FAST_ISA", "five");
  set_variables(kFast, {0, "avx2"});
  CHECK(value_of("FAST_ISA") == "five");
  CHECK(other_limits(kFast, "avx2") == " FAST_ISA=five");
}

TEST_CASE("a note's list of libraries is read, and what is ill-formed in it is left out", "[foreign_library]") {
  const auto read = libraries_from(to_json({kFast}));
  REQUIRE(read.size() == 1);
  CHECK(read[0].text() == "Fast 1.2");
  CHECK(read[0].threads == kFast.threads);
  CHECK(read[0].has_file("libfast.so.1"));
  CHECK(!read[0].has_file("libslow.so"));
  CHECK(libraries_from(Json::parse(R"([1, {}, {"name": 3}, {"name": ""}, {"name": "A", "files": 3}])")).size() == 1);
  CHECK(libraries_from(Json::parse(R"({"name": "A"})")).empty());
}
