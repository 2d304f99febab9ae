// SPDX-License-Identifier: Apache-2.0
//
// Names that other programs have for options of the strategies: the forms of a table, and that every entry of ours means
// an option that its strategy has.
#include "config/compat.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/json.hpp"
#include "config/config.hpp"
#include "ddh/kind/strategy.h"
#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"
#include "plugin/registry.hpp"

using namespace ddhost;
using Catch::Contains;
using ddhost::test::sentence_of;

namespace {

constexpr const char* kPluginSchema = R"({"properties": {
  "bucket_bytes": {"type": "integer", "default": 1024, "minimum": 0},
  "mode": {"type": "string", "default": "all", "enum": ["all", "none"], "x-spellings": {"EVERY": "all"}},
  "declared": {"type": "boolean", "default": false},
  "place": {"type": "object", "properties": {"device": {"type": "string", "default": "here"}}}}})";

constexpr const char* kTable = R"({"strategy": [
  {"for": ["test", "another"], "names": {
    "bucket_size": {"is": "bucket_bytes", "factor": 4},
    "place": {"is": "place.device"},
    "old_flag": {"type": "boolean", "default": true, "ignored": "flags are always up"},
    "only_flag": {"only": true, "because": "there is no other way"},
    "gather_bytes": {"repeats": "bucket_bytes", "type": "integer", "default": 0, "because": "they are one bucket"},
    "gather_size": {"is": "gather_bytes", "factor": 4},
    "dtype": {"sets": "precision.reduce_dtype"},
    "their_size": {"is": "bucket_bytes", "with": {"mode": "none", "place.device": "there"}},
    "mode": {"words": {"NOTHING": "none", "EVERY": "none"}},
    "declared": {"type": "boolean", "default": false, "ignored": "by the table"},
    "no_target": {"is": "missing"}}},
  {"for": ["stranger"], "names": {"strange": {"is": "bucket_bytes"}}}]})";

Config with(const std::vector<std::string>& words, const char* table = kTable) {
  std::vector<Section> sections = host_sections();
  add_plugin_options(sections, "strategy", kPluginSchema, "strategy 'test'");
  add_foreign_names(sections, "strategy", "strategy", "test", {read_compat_table("other.json", table)});
  std::vector<Override> overrides;
  for (const std::string& word : words) overrides.push_back(parse_override("strategy." + word));
  return {UserConfig::read("", overrides), sections};
}
std::string refusal(const std::vector<std::string>& words, const char* table = kTable) {
  return sentence_of([&] { with(words, table); });
}

const void* any_interface(const char*) noexcept { return kTable; }

}  // namespace

TEST_CASE("another program's name is an option of ours, in its unit", "[config]") {
  CHECK(with({"bucket_size=100"}).get<int64_t>("strategy.bucket_bytes") == 400);
  CHECK(with({"place=there"}).text("strategy.place.device") == "there");
  CHECK(with({"dtype=bf16"}).text("precision.reduce_dtype") == "bf16");
  CHECK(with({"mode=NOTHING"}).text("strategy.mode") == "none");
  CHECK_THAT(refusal({"bucket_size=100", "bucket_bytes=100"}), Contains("two names of strategy.bucket_bytes"));
}

TEST_CASE("another program's name brings that program's defaults", "[config]") {
  const Config theirs = with({"their_size=8"});
  CHECK(theirs.get<int64_t>("strategy.bucket_bytes") == 8);
  CHECK(theirs.text("strategy.mode") == "none");
  CHECK(theirs.text("strategy.place.device") == "there");
  CHECK(theirs.find("strategy.mode")->source == "the command line (as strategy.their_size)");
  CHECK(with({"mode=all", "their_size=8"}).text("strategy.mode") == "all");
  CHECK(with({"their_size=8", "their_size=null"}).text("strategy.mode") == "all");
  CHECK(with({"bucket_bytes=8"}).text("strategy.mode") == "all");
}

TEST_CASE("an ignored name is checked, has no effect, and a value other than the default says so", "[config]") {
  const Config config = with({"old_flag=false"});
  CHECK(config.warnings() == std::vector<std::string>{"strategy.old_flag=false changes nothing: flags are always up"});
  CHECK(config.find("strategy.old_flag") == nullptr);
  CHECK(config.effective() == with({}).effective());
  CHECK(with({"old_flag=true"}).warnings().empty());
  CHECK(with({"old_flag=false", "old_flag=null"}).warnings().empty());
  CHECK_THAT(refusal({"old_flag=7"}), Contains("strategy.old_flag = 7") && Contains("true or false"));
}

TEST_CASE("a name with one legal value refuses others and says why", "[config]") {
  CHECK(with({"only_flag=true"}).warnings().empty());
  CHECK_THAT(refusal({"only_flag=false"}), Contains("one of true (there is no other way)"));
}

TEST_CASE("a name that may only repeat an option of ours is refused if it differs", "[config]") {
  CHECK(with({"gather_size=256"}).get<int64_t>("strategy.bucket_bytes") == 1024);
  CHECK(refusal({"gather_bytes=0"}).empty());
  CHECK(refusal({"bucket_bytes=8", "gather_size=2"}).empty());
  CHECK_THAT(
      refusal({"bucket_bytes=9", "gather_size=2"}),
      Contains("strategy.gather_bytes = 8 (given as strategy.gather_size = 2) and strategy.bucket_bytes = 9 differ, "
               "but they are one bucket"));
}

TEST_CASE("options that a plugin declares win over a table", "[config]") {
  const Config config = with({"declared=true"});
  CHECK(config.get<bool>("strategy.declared"));
  CHECK(config.warnings().empty());
  CHECK(with({"mode=EVERY"}).text("strategy.mode") == "all");
}

TEST_CASE("names of another plugin, and names of an option that is not there, are unknown", "[config]") {
  CHECK_THAT(refusal({"strange=1"}), Contains("unknown key 'strategy.strange'"));
  CHECK_THAT(refusal({"no_target=1"}), Contains("unknown key 'strategy.no_target'"));
  const std::string sentence = refusal({"qqqqqqqq=1"});
  CHECK_THAT(sentence, Contains("takes plugin, bucket_bytes") && !Contains("old_flag"));
  CHECK_THAT(refusal({"old_flg=true"}), Contains("did you mean 'strategy.old_flag'?"));
}

TEST_CASE("a table that is ill-formed is named", "[config]") {
  const auto table = [](const std::string& entry) {
    return R"({"strategy": [{"for": ["test"], "names": {"x": )" + entry + "}}]}";
  };
  for (const char* entry : {R"({"becomes": "y"})", R"({"only": 1})", R"({"is": "bucket_bytes", "ignored": "no"})"})
    CHECK_THAT(refusal({}, table(entry).c_str()), Contains("other.json") && Contains("'x'"));
  CHECK_THAT(refusal({}, "{"), Contains("other.json") && Contains("not valid JSON"));
}

// Checks the names that a table has for the options of `plugin`; returns how many there are.
size_t check_names(const CompatTable& table, const Json& names, const std::string& kind, const Plugin& plugin) {
  std::vector<Section> sections = host_sections();
  add_plugin_options(sections, kind, plugin.desc->config_schema, plugin.id());
  const auto section = std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.name == kind; });
  const Schema own = section->schema;
  add_foreign_names(sections, kind, kind, plugin.id());
  for (const auto& [name, entry] : names.items()) {
    INFO(table.file << ": " << name << " of " << plugin.id());
    // Words are for an option of the plugin; all else is a name that it does not have.
    const bool is_words = entry.contains("words") && !entry.contains("only");
    CHECK((own.find(name) != nullptr) == is_words);
    CHECK(own.find_alias(name) == nullptr);
    CHECK((section->schema.find(name) != nullptr || section->schema.find_alias(name) != nullptr));
    const Json with = entry.value("with", Json::object());
    for (const auto& [option, value] : with.items()) {
      REQUIRE(own.find(option) != nullptr);
      CHECK(checked_value(*own.find(option), value, option, "in a table") == value);
    }
  }
  return names.size();
}

TEST_CASE("every name in our tables has a meaning for each of its plugins", "[config]") {
  Registry registry(any_interface, DDHOST_BUILD_DIR);
  const std::map<std::string, uint32_t> kinds = {
      {"strategy", DDH_KIND_STRATEGY}, {"optimizer", DDH_KIND_OPTIMIZER}, {"schedule", DDH_KIND_SCHEDULE}};
  std::map<std::string, size_t> names;
  for (const CompatTable& table : compat_tables()) {
    for (const auto& [kind, number] : kinds)
      for (const Json& group : table.groups.value(kind, Json::array()))
        for (const Json& id : group.at("for"))
          names[kind] += check_names(table, group.at("names"), kind, registry.find(number, id.get<std::string>(), "/"));
  }
  CHECK(names["strategy"] > 60);
  CHECK(names["optimizer"] == 2);
  CHECK(names["schedule"] > 20);
}

TEST_CASE("every word for a schedule's type in our tables is the name of a schedule", "[config]") {
  Registry registry(any_interface, DDHOST_BUILD_DIR);
  size_t words = 0;
  for (const CompatTable& table : compat_tables())
    for (const Json& group : table.groups.value("section", Json::array())) {
      if (group.at("for") != Json::array({"schedule"})) continue;
      for (const auto& [word, id] : group.at("names").at("type").at("words").items()) {
        ++words;
        CHECK(registry.find(DDH_KIND_SCHEDULE, id.get<std::string>(), "/").id() == id);
        const UserConfig user = UserConfig::read("", {parse_override("schedule.type=" + word)});
        CHECK(Config(user, host_sections(), /*plugin_sections=*/false).text("schedule.type") == id);
      }
    }
  CHECK(words == 7);
}

namespace {

Config of_host(const std::vector<std::string>& words) {
  std::vector<Override> overrides;
  for (const std::string& word : words) overrides.push_back(parse_override(word));
  return {UserConfig::read("", overrides), host_sections(), /*plugin_sections=*/false};
}

}  // namespace

TEST_CASE("words of other programs and earlier versions are accepted for options of the host", "[config]") {
  CHECK(of_host({"precision.compute=torch.bfloat16"}).text("precision.compute") == "bf16");
  CHECK(of_host({"precision.loss_scale_growth=torch"}).text("precision.loss_scale_growth") == "at_window_end");
  CHECK(of_host({"precision.loss_scale_growth=deepspeed"}).text("precision.loss_scale_growth") == "after_window");
  const Config with_gpu = of_host({"device.gpu=npu"});
  CHECK(with_gpu.find("device.gpu") == nullptr);
  REQUIRE(with_gpu.warnings().size() == 1);
  CHECK_THAT(with_gpu.warnings()[0], Contains("device.gpu") && Contains("changes nothing"));
}

TEST_CASE("a value of an earlier version means the same value of this one", "[config]") {
  const Config config = of_host({});
  CHECK(config.meaning_of("precision.loss_scale_growth", "deepspeed") == config.text("precision.loss_scale_growth"));
  CHECK(config.meaning_of("precision.loss_scale_growth", "torch") != config.text("precision.loss_scale_growth"));
  CHECK(config.meaning_of("precision.loss_scale_growth", "nobody's") == "nobody's");
  CHECK(config.meaning_of("train.steps", 3) == 3);
}

TEST_CASE("every default plugin is the value of an option of the host", "[config]") {
  const Config config = of_host({});
  size_t n = 0;
  for (const auto& [section, options] : default_options().items())
    for (const auto& [option, value] : options.items()) {
      INFO(section << '.' << option);
      ++n;
      REQUIRE(config.find(section + "." + option) != nullptr);
      CHECK(config.find(section + "." + option)->value == value);
    }
  CHECK(n == 9);
}

TEST_CASE("further tables are found in folders, and one that can't be read is named", "[config]") {
  const ddhost::test::TempFolder folder;
  std::filesystem::create_directory(folder.path() / "names");
  const std::vector<std::filesystem::path> places = {folder.path() / "none", folder.path() / "names"};
  CHECK(compat_tables_in(places).empty());
  std::ofstream(folder.file("names/other.json")) << kTable;
  std::ofstream(folder.file("names/notes.txt")) << "no table";
  const std::vector<CompatTable> tables = compat_tables_in(places);
  REQUIRE(tables.size() == 1);
  std::vector<Section> sections = host_sections();
  add_plugin_options(sections, "strategy", kPluginSchema, "strategy 'test'");
  add_foreign_names(sections, "strategy", "strategy", "test", tables);
  const UserConfig user = UserConfig::read("", {parse_override("strategy.bucket_size=100")});
  CHECK(Config(user, sections).get<int64_t>("strategy.bucket_bytes") == 400);
  for (const char* bad : {"[1]", "{", R"({"strategy": {}})", R"({"strategy": [{"for": "x", "names": {}}]})",
                          R"({"strategy": [{"names": {}}]})", R"({"strategy": [{"for": [], "names": {"a": 1}}]})",
                          R"({"strategy": [{"for": [], "names": {"a": {"is": 5}}}]})",
                          R"({"strategy": [{"for": [], "names": {"a": {"is": "b", "factor": 0}}}]})",
                          R"({"strategy": [{"for": [], "names": {"a": {"words": ["b"]}}}]})"}) {
    INFO(bad);
    std::ofstream(folder.file("names/other.json")) << bad;
    CHECK_THAT(sentence_of([&] { (void)compat_tables_in(places); }),
               Contains("names/other.json") && Contains("ill-formed"));
  }
}
