// SPDX-License-Identifier: Apache-2.0
//
// Values of the file that the command line replaces: options that exclude each other, sections, options of plugins.
#include "config/replaced.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "config/given.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost;
using ddhost::test::TempFolder;
using Sentences = std::vector<std::string>;

namespace {

UserConfig read(const Json& file, const std::vector<std::string>& words) {
  const TempFolder folder;
  std::ofstream(folder.file("c.json")) << file.dump();
  std::vector<Override> overrides;
  for (const std::string& word : words) overrides.push_back(parse_override(word));
  return UserConfig::read(folder.file("c.json"), overrides);
}

// The sentences, without the folder of the file.
Sentences replaced(const Json& train, const std::vector<std::string>& words) {
  UserConfig user = read({{"train", train}}, words);
  Sentences sentences = replace_excluded_options(user);
  for (std::string& sentence : sentences) {
    const size_t at = sentence.find(" of '");
    REQUIRE(at != std::string::npos);
    sentence.resize(at);
  }
  return sentences;
}

const Json kPhases = Json::array({{{"program", "train"}, {"steps", 3}}});

}  // namespace

TEST_CASE("an option on the command line replaces those of the file that it excludes", "[config]") {
  CHECK(replaced({{"phases", kPhases}, {"cycles", 2}}, {"train.steps=8"}) ==
        Sentences{"train.steps=8 on the command line replaces train.phases and train.cycles"});
  CHECK(replaced({{"phases", kPhases}}, {"train.steps=0"}).size() == 1);
  CHECK(replaced({{"phases", kPhases}, {"cycles", 1}}, {"train.epochs=2"}) ==
        Sentences{"train.epochs=2 on the command line replaces train.phases"});
  CHECK(
      replaced({{"steps", 5}, {"programs", {"a"}}, {"update_every", 3}}, {"train.phases=" + kPhases.dump()}).front() ==
      "train.phases=" + kPhases.dump() +
          " on the command line replaces train.steps, train.programs and "
          "train.update_every");
  CHECK(replaced({{"eval_every", 5}}, {"train.eval_every_epochs=1"}).size() == 1);
  CHECK(replaced({{"clip_value", 0.5}}, {"train.clip_norm=1"}).size() == 1);
}

TEST_CASE("null, 0 and an empty list exclude nothing, and neither do values of one source", "[config]") {
  for (const char* word : {"train.epochs=null", "train.phases=[]", "train.phases=null", "train.eval_every=0",
                           "train.clip_norm=0", "train.cycles=3", "train.programs=[\"a\"]"})
    CHECK(replaced({{"steps", 5}, {"eval_every_epochs", 2}, {"clip_value", 0.5}}, {word}).empty());
  CHECK(replaced({{"epochs", nullptr}, {"phases", Json::array()}, {"cycles", 1}}, {"train.steps=5"}).empty());
  CHECK(replaced({{"steps", 5}, {"epochs", 2}}, {}).empty());
  CHECK(replaced(Json::object(), {"train.steps=5", "train.epochs=2"}).empty());
}

TEST_CASE("sections that the file names and the run does not are not used, whatever they hold", "[config]") {
  const Json file = {
      {"train",
       {{"optimizers", {"optimizer", "optimizer_kg"}}, {"phases", {{{"program", "a"}, {"schedule", "schedule_kg"}}}}}},
      {"optimizer_kg", {{"lr", 1}}},
      {"schedule_kg", {{"warmup_steps", 1}}}};
  UserConfig user = read(file, {"train.optimizers=null", "train.phases=null"});
  const Sentences sentences = replace_excluded_options(user);
  REQUIRE(sentences.size() == 2);
  CHECK_THAT(sentences[0], Catch::Contains("section 'optimizer_kg' of '") && Catch::Contains("train.optimizers"));
  CHECK_THAT(sentences[1], Catch::Contains("section 'schedule_kg' of '") && Catch::Contains("train.phases"));
  CHECK(user.find("optimizer_kg.lr") == nullptr);
  UserConfig same = read(file, {"schedule_kg.type=linear"});
  CHECK(replace_excluded_options(same).empty());
}

TEST_CASE("a value that is replaced counts no more, and null for it is no error", "[config]") {
  UserConfig user =
      read({{"train", {{"epochs", 4}}}, {"optimizer", {{"plugin", "old"}, {"speed", 3}, {"lr", nullptr}}}},
           {"train.steps=8", "optimizer.speed=null"});
  CHECK(user.find("train.epochs") != nullptr);
  replace_excluded_options(user);
  CHECK(user.find("train.epochs") == nullptr);
  CHECK(user.find_in_file("train.epochs")->replaced);
  const std::vector<Section> sections = host_sections();
  const auto optimizer = std::find_if(sections.begin(), sections.end(),
                                      [](const Section& section) { return section.name == "optimizer"; });
  CHECK(choice_of_file(user, sections, "optimizer.plugin") == "old");
  CHECK(replace_plugin_options(user, *optimizer)
            .empty());  // null is no value, and the command line has taken back the other
  CHECK_FALSE(user.find("optimizer.plugin")->replaced);
  CHECK(values_given(user, sections, true).size() == 2);
}

TEST_CASE("the file's choice of a plugin is known under every name", "[config]") {
  const std::vector<Section> sections = host_sections();
  const auto choice = [&](const Json& schedule, const std::vector<std::string>& words) {
    return choice_of_file(read({{"schedule", schedule}}, words), sections, "schedule.type");
  };
  CHECK(choice({{"type", "WarmupLR"}}, {}) == "warmup");
  CHECK(choice({{"plugin", "x/mine.so:mine"}}, {"schedule.type=linear"}) == "x/mine.so:mine");
  CHECK(choice({{"warmup_steps", 3}}, {"schedule.type=linear"}).empty());
}

TEST_CASE("options of other plugins that share a section stay", "[config]") {
  UserConfig user = read({{"monitor", {{"every", 2}, {"csv", {{"a", 1}}}, {"mine", {{"b", 2}}}}}}, {});
  const std::vector<Section> sections = host_sections();
  const auto monitor =
      std::find_if(sections.begin(), sections.end(), [](const Section& section) { return section.name == "monitor"; });
  CHECK(replace_plugin_options(user, *monitor, {"csv."}) == Sentences{"monitor.mine.b"});
  CHECK_FALSE(user.find_in_file("monitor.every")->replaced);
}
