// SPDX-License-Identifier: Apache-2.0
//
// Words of other programs: what is said of them, and that the tables lead to options and plugins that exist.
#include "config/words.hpp"

#include <catch2/catch.hpp>

#include "config/compat.hpp"
#include "config/given.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;
using Catch::Contains;

TEST_CASE("capital letters and the marks between words make no difference", "[words]") {
  for (const char* word : {"learning_rate", "learning-rate", "--Learning-Rate", "training.learning_rate"})
    CHECK(our_option(word, "0.1") == "optimizer.lr=0.1");
  CHECK(our_option("epochs", "") == "train.epochs=VALUE");
  CHECK(our_option("zero_stage", "3") == "--strategy zero3");
  CHECK(our_option("zero_stage", "") == "--strategy zeroN");
  CHECK(our_option("something_else", "1").empty());
  for (const char* word : {"ZeRO-2", "zero_2", "DeepSpeed_Stage_2"})
    CHECK(our_value("strategy.plugin", word) == "strategy.plugin=zero2");
  CHECK(our_value("optimizer.plugin", "FusedAdam") == "optimizer.plugin=adamw");
  CHECK(our_value("train.steps", "ZeRO-2").empty());
  CHECK(our_command("Evaluate") == "eval");
}

TEST_CASE("words are found from ours too, for explanations", "[words]") {
  CHECK_THAT(words_of_option("optimizer.lr"), Catch::VectorContains(std::string("learning_rate")));
  CHECK_THAT(words_of_value("strategy.plugin", "zero2"), Catch::VectorContains(std::string("deepspeed_stage_2")));
  CHECK(cost_of("strategy", "ddp").bytes == "16 P");
  CHECK(cost_of("option", "no.such").time.empty());
  CHECK(cost_of("option", "model.short_context").smoke == "128");
  CHECK(cost_of("option", "data.micro_batch").smoke.empty());
}

// A hint that leads to another error is worse than none.
TEST_CASE("each hint for an option names one of the host, a flag, or an option of plugins", "[words]") {
  const std::vector<Section> sections = host_sections();
  for (const CompatTable& table : compat_tables()) {
    if (!table.groups.contains("words")) continue;
    for (const auto& [word, ours] : table.groups["words"]["options"].items()) {
      const std::string text = ours.get<std::string>();
      INFO(word << ": " << text);
      if (text.starts_with("--")) continue;
      const std::string section = text.substr(0, text.find('.')), name = text.substr(section.size() + 1);
      const auto at =
          std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.name == section; });
      REQUIRE(at != sections.end());
      const bool is_host = at->schema.find(name.substr(0, name.find('='))) != nullptr;
      CHECK((is_host || is_plugin_section(section)));
    }
  }
}

TEST_CASE("an unknown key that another program has gets ours, a mistyped one the nearest", "[words]") {
  const auto said = [](const char* key, const char* value) {
    return sentence_of([&] {
      static_cast<void>(values_given(UserConfig::read("", {{key, value, "the command line"}}), host_sections(), true));
    });
  };
  CHECK_THAT(said("train.batch_size", "4"), Contains("here it is data.micro_batch=4"));
  CHECK_THAT(said("gradient_checkpointing", "true"), Contains("here it is train.recompute=1"));
  CHECK_THAT(said("train.step", "4"), Contains("did you mean 'train.steps'"));
  CHECK_THAT(said("precision.compute", "bf15"), Contains("did you mean bf16?"));
  CHECK_THAT(said("precision.compute", "bf16-mixed"), Contains("here it is bf16"));
}

TEST_CASE("a table whose words are no texts is refused by name", "[words]") {
  for (const char* text :
       {R"({"words": {"options": {"epochs": 3}}})", R"({"words": {"values": {"strategy.plugin": "zero2"}}})",
        R"({"words": []})", R"({"costs": {"option": {"train.steps": "much"}}})"})
    CHECK_THAT(sentence_of([&] { static_cast<void>(read_compat_table("mine.json", text)); }),
               Contains("mine.json") && Contains("fix the table"));
}
