// SPDX-License-Identifier: Apache-2.0
//
// The decisions and checks before the ranks start.
#include "plan/prepare.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "cli/words/command_line.hpp"

using namespace ddhost;

namespace {

CommandLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "ddhost");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

}  // namespace

TEST_CASE("of a flag that is given twice the last value counts", "[prepare]") {
  const CommandLine line = parse({"--nproc", "1", "--nproc", "2"});
  REQUIRE(line.overrides.size() == 1);
  CHECK(line.overrides[0].text == "2");
}

TEST_CASE("the command train may be left out, and flags win over key=value arguments", "[prepare]") {
  const CommandLine line = parse({"--strategy", "zero3", "train.steps=5", "strategy.plugin=ddp", "--nproc", "4"});
  CHECK(line.command == Command::kTrain);
  const UserConfig user = UserConfig::read("", line.overrides);
  CHECK(user.find("strategy.plugin")->text == "zero3");
  CHECK(user.find("train.steps")->text == "5");
  CHECK(user.find("run.nproc")->source == "--nproc");
  CHECK(parse({}).command == Command::kTrain);
  CHECK(parse({"train", "--dry-run"}).dry_run);
  CHECK(parse({"list"}).command == Command::kList);
  CHECK(parse({"inspect", "x.so"}).inspect_files == std::vector<std::string>{"x.so"});
  CHECK(parse({"inspect", "--markdown"}).markdown);
}

TEST_CASE("mistakes on the command line end with 2", "[prepare]") {
  const auto code = [](std::vector<const char*> words) {
    try {
      parse(std::move(words));
    } catch (const CommandLineExit& end) {
      return end.code;
    }
    return -1;
  };
  CHECK(code({"--bogus"}) == 2);
  CHECK(code({"trian"}) == 2);
  CHECK(code({"inspect"}) == 2);
  CHECK(code({"--version"}) == 0);
}
