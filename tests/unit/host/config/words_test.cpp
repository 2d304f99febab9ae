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

TEST_CASE("a whole name wins over its last part, and an entry with the value over that without", "[words]") {
  CHECK(our_option("optimizer.params.lr", "0.1") == "optimizer.lr=0.1");
  CHECK(our_option("zero_optimization.stage", "2") == "--strategy zero2");
  CHECK(our_option("zero_optimization.stage", "0") == "--strategy ddp");
  CHECK(our_option("fp16.enabled", "true") == "precision.compute=fp16");
  CHECK(our_option("fp16.enabled", "false") == "precision.compute=fp32");
  CHECK(our_option("dataset", "mnist") == "model.dataset=mnist");
  CHECK(our_option("dataset", "/data/text") == "data.path=/data/text");
  CHECK(nearest_option_word("fp16.enabledx").empty());
}

TEST_CASE("the value of an option may be another program's word too", "[words]") {
  CHECK(our_option("optimizer.type", "FusedAdam") == "optimizer.plugin=adamw");
  CHECK(our_option("model.type", "mobilenet") == "model.plugin=cnn model.network=mobilenet_v2");
  CHECK(our_option("model.type", "gpt") == "model.plugin=gpt");
  CHECK(legal_value("model.size", "small", {"gpt2", "custom"}) == "gpt2");
  CHECK(legal_value("model.size", "small", {"Ti", "S"}) == "S");
  CHECK(legal_value("model.size", "small", {"huge"}).empty());
}

TEST_CASE("an option without a counterpart has a sentence", "[words]") {
  CHECK_THAT(hint_of_option("train_batch_size", "48"), Contains("give data.micro_batch=N"));
  CHECK_THAT(hint_of_option("compile", "true"), Contains("leave it out"));
  CHECK(hint_of_option("lr", "0.1") == "here it is optimizer.lr=0.1");
  CHECK(hint_of_option("something_else", "1").empty());
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
  CHECK_THAT(said("monitor.progress", "none"), Contains("here it is off"));
  CHECK_THAT(said("train.lr", "0.1"), Contains("here it is optimizer.lr=0.1"));
  CHECK_THAT(said("fp16.enabled", "true"), Contains("here it is precision.compute=fp16"));
  CHECK_THAT(said("compile", "true"), Contains("leave it out"));
  CHECK_THAT(said("run.quiet", "True"), Contains("(write true); it takes true or false"));
}

TEST_CASE("a table whose words are no texts is refused by name", "[words]") {
  for (const char* text :
       {R"({"words": {"options": {"epochs": 3}}})", R"({"words": {"values": {"strategy.plugin": "zero2"}}})",
        R"({"words": []})", R"({"costs": {"option": {"train.steps": "much"}}})"})
    CHECK_THAT(sentence_of([&] { static_cast<void>(read_compat_table("mine.json", text)); }),
               Contains("mine.json") && Contains("fix the table"));
}
