// SPDX-License-Identifier: Apache-2.0
//
// The effective configuration: layers, unknown keys, files, typed reads.
#include "config/config.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using ddhost::test::sentence_of;
using ddhost::test::TempFolder;

namespace {

constexpr const char* kPluginSchema = R"({"properties": {
  "bucket_bytes": {"type": "integer", "default": 1024, "minimum": 0},
  "betas": {"type": "array", "items": {"type": "number"}, "default": [0.9, 0.95]},
  "reduce_dtype": {"type": "string", "x-sets": "precision.reduce_dtype"},
  "odd": {"type": "string", "x-sets": "precision.nothing"},
  "table": {"type": "string", "default": "", "x-path": true},
  "limit": {"type": ["integer", "null"], "default": null},
  "one": {"type": "integer", "default": 1, "enum": [1], "description": "there is but one"},
  "count": {"type": ["integer", "null"], "default": null, "x-idle": "nothing is counted"},
  "inner": {"type": "object", "properties": {
    "place": {"type": "string", "enum": ["none", "disk"], "default": "disk", "x-spellings": {"null": "none"}}}}},
  "x-aliases": {"reduce_bucket_size": {"key": "bucket_bytes", "scale": 4}, "old.table": {"key": "table"},
    "inner": {"key": "inner.place"}, "old_limit": {"key": "limit"}, "old.bytes": {"key": "bucket_bytes"}}})";

std::vector<Section> sections() {
  std::vector<Section> all = host_sections();
  add_plugin_options(all, "strategy", kPluginSchema, "strategy 'test'");
  return all;
}

UserConfig from_words(const std::vector<std::string>& words) {
  std::vector<Override> overrides;
  for (const std::string& word : words) overrides.push_back(parse_override(word));
  return UserConfig::read("", overrides);
}
Config with(const std::vector<std::string>& words) { return {from_words(words), sections()}; }
std::string refusal(const std::vector<std::string>& words) {
  return sentence_of([&] { with(words); });
}

std::string write(const TempFolder& folder, const std::string& text) {
  std::ofstream(folder.file("c.json")) << text;
  return folder.file("c.json");
}
std::string refused_file(const std::string& text) {
  const TempFolder folder;
  const std::string file = write(folder, text);
  return sentence_of([&] { Config(UserConfig::read(file, {}), sections()); });
}

}  // namespace

TEST_CASE("the file overrides defaults, and the command line overrides the file", "[config]") {
  const TempFolder folder;
  const std::string file = write(folder, R"({"train": {"steps": 7, "clip_norm": 2} /* a comment */})");
  const Config config(UserConfig::read(file, {parse_override("train.steps=9")}), sections());
  CHECK(config.get<int64_t>("train.steps") == 9);
  CHECK(config.get<double>("train.clip_norm") == 2.0);
  CHECK(config.get<int64_t>("run.seed") == 1337);
  CHECK(config.find("train.steps")->source == "the command line");
  CHECK_THAT(config.find("train.clip_norm")->source, Catch::Contains("c.json"));
  CHECK(config.find("run.seed")->source == "default");
}

TEST_CASE("null takes back a key of the file that the chosen plugins lack", "[config]") {
  const TempFolder folder;
  const std::string file = write(folder, R"({"strategy": {"of_another_plugin": 7}})");
  CHECK_THAT(sentence_of([&] { Config(UserConfig::read(file, {}), sections()); }),
             Catch::Contains("unknown key 'strategy.of_another_plugin'"));
  CHECK(sentence_of([&] {
          Config(UserConfig::read(file, {parse_override("strategy.of_another_plugin=null")}), sections());
        }).empty());
  CHECK_THAT(refusal({"strategy.of_another_plugin=null"}), Catch::Contains("unknown key"));  // the file lacks it
}

TEST_CASE("arguments are read as JSON if they parse, else as text", "[config]") {
  const Config config =
      with({"run.name=2024", "train.steps=1e3", "run.quiet=true", "strategy.betas=[0.8, 0.9]", "schedule.type=linear"});
  CHECK(config.text("run.name") == "2024");
  CHECK(config.get<int64_t>("train.steps") == 1000);
  CHECK(config.get<bool>("run.quiet"));
  CHECK(config.get<std::vector<double>>("strategy.betas") == std::vector<double>{0.8, 0.9});
  CHECK(config.text("schedule.type") == "linear");
}

TEST_CASE("a mistyped key is refused with the nearest name and its place", "[config]") {
  CHECK(refusal({"train.stepz=5"}) == "unknown key 'train.stepz' on the command line; did you mean 'train.steps'?");
  CHECK_THAT(refused_file(R"({"train": {"stepz": 5}})"),
             Catch::Contains("c.json") && Catch::Contains("did you mean 'train.steps'?"));
  CHECK_THAT(refusal({"strategy.bucket_byte=5"}), Catch::Contains("did you mean 'strategy.bucket_bytes'?"));
}

TEST_CASE("the error for a key without a section, or in a wrong one, names the right section", "[config]") {
  CHECK_THAT(refusal({"steps=5"}), Catch::Contains("did you mean 'train.steps'?"));
  CHECK_THAT(refusal({"model.seed=5"}), Catch::Contains("did you mean 'run.seed'?"));
  CHECK_THAT(refusal({"trian.steps=5"}), Catch::Contains("'trian'") && Catch::Contains("did you mean 'train'?"));
  CHECK_THAT(refusal({"strategy.qqqqqqqq=5"}), Catch::Contains("takes plugin, bucket_bytes"));
}

TEST_CASE("wrong values are refused from both places", "[config]") {
  CHECK_THAT(refusal({"train.steps=many"}), Catch::Contains("train.steps") && Catch::Contains("integer"));
  CHECK_THAT(refusal({"data.micro_batch=0"}), Catch::Contains("data.micro_batch") && Catch::Contains("1 to"));
  CHECK_THAT(refused_file(R"({"precision": {"compute": "fp8"}})"), Catch::Contains("one of fp32, bf16, fp16"));
  CHECK_THAT(refusal({"run.nproc=0"}), Catch::Contains("run.nproc"));
}

TEST_CASE("an alias is converted to the unit of its key and checked there", "[config]") {
  CHECK(with({"strategy.reduce_bucket_size=500"}).get<int64_t>("strategy.bucket_bytes") == 2000);
  CHECK(refusal({"strategy.reduce_bucket_size=-1"}) ==
        "strategy.bucket_bytes = -4 on the command line (given as strategy.reduce_bucket_size = -1) is out of range; "
        "it takes "
        "integer, at least 0");
  CHECK_THAT(refusal({"strategy.reduce_bucket_size=big"}), Catch::Contains("not a number"));
}

TEST_CASE("an alias without another unit is the option under another name, whatever its type", "[config]") {
  const Config config = with({"strategy.old.table=t.bin", "strategy.old.bytes=4096"});
  CHECK(config.text("strategy.table") == (std::filesystem::current_path() / "t.bin").string());
  CHECK(config.get<int64_t>("strategy.bucket_bytes") == 4096);
  CHECK(refusal({"strategy.old.bytes=big"}) ==
        "strategy.old.bytes = \"big\" on the command line has the wrong type; it takes integer, at least 0");
}

TEST_CASE("an option may be another name for a key of another section, with the values and checks of that key",
          "[config]") {
  const Config config = with({"strategy.reduce_dtype=torch.bfloat16"});
  CHECK(config.text("precision.reduce_dtype") == "bf16");
  CHECK_THAT(config.find("precision.reduce_dtype")->source, Catch::Contains("strategy.reduce_dtype"));
  CHECK(config.find("strategy.reduce_dtype")->value.is_null());
  CHECK(with({"strategy.reduce_dtype=bfloat16", "precision.reduce_dtype=bf16"}).text("precision.reduce_dtype") ==
        "bf16");
  CHECK(with({"strategy.reduce_dtype=bf16", "strategy.reduce_dtype=fp32"}).text("precision.reduce_dtype") == "fp32");
  CHECK_THAT(refusal({"strategy.reduce_dtype=fp8"}),
             Catch::Contains("strategy.reduce_dtype") && Catch::Contains("one of fp32, bf16"));
  CHECK_THAT(refusal({"strategy.odd=1.0.0"}),
             Catch::Contains("precision.nothing") && Catch::Contains("fix the plugin"));
}

TEST_CASE("a sentence about a key gets the word that the user wrote for it", "[config]") {
  const Config config = with({"strategy.old.table=t", "strategy.reduce_bucket_size=500", "strategy.limit=3"});
  CHECK(config.in_words_of_user("strategy.table can't be read; give another strategy.table") ==
        "strategy.table (given as strategy.old.table) can't be read; give another strategy.table");
  CHECK(config.in_words_of_user("strategy.bucket_bytes=2000, which is small, and strategy.bucket_bytes = 2000") ==
        "strategy.bucket_bytes=2000 (given as strategy.reduce_bucket_size = 500), which is small, and "
        "strategy.bucket_bytes = 2000");
  for (const char* same : {"strategy.limit is 3", "strategy.table.x, a/strategy.table and my_strategy.table",
                           "strategy.old.table means strategy.table", "train.steps is 3"})
    CHECK(config.in_words_of_user(same) == same);
  const Config flags(UserConfig::read("", {{"train.save_final", "/x y", "--save-final"}}), sections());
  CHECK(flags.in_words_of_user("train.save_final = \"/x y\" exists.") ==
        "train.save_final = \"/x y\" (--save-final) exists.");
  CHECK(flags.in_words_of_user("--save-final: train.save_final exists") == "--save-final: train.save_final exists");
}

TEST_CASE("the last of several names is the word for a key", "[config]") {
  const TempFolder folder;
  const std::string file = write(folder, R"({"strategy": {"old": {"table": "t"}}})");
  const auto about = [&](const std::vector<Override>& words) {
    return Config(UserConfig::read(file, words), sections()).in_words_of_user("strategy.table is gone");
  };
  CHECK(about({}) == "strategy.table (given as strategy.old.table) is gone");
  CHECK(about({parse_override("strategy.table=u")}) == "strategy.table is gone");
}

TEST_CASE("two names of one key that contradict each other are refused, in any order", "[config]") {
  for (const auto& words : {std::vector<std::string>{"precision.reduce_dtype=fp32", "strategy.reduce_dtype=bf16"},
                            std::vector<std::string>{"strategy.reduce_dtype=bf16", "precision.reduce_dtype=fp32"}}) {
    const std::string sentence = refusal(words);
    CHECK_THAT(sentence, Catch::Contains("precision.reduce_dtype = \"fp32\" on the command line") &&
                             Catch::Contains("strategy.reduce_dtype = \"bf16\" on the command line"));
    CHECK_THAT(sentence, Catch::Contains("are two names of precision.reduce_dtype; leave one of them out"));
  }
}

TEST_CASE("a key on the command line wins over its other name in the file, and the other way round", "[config]") {
  const TempFolder folder;
  const std::string other = write(folder, R"({"strategy": {"reduce_dtype": "bf16"}})");
  const Config by_key(UserConfig::read(other, {parse_override("precision.reduce_dtype=fp32")}), sections());
  CHECK(by_key.text("precision.reduce_dtype") == "fp32");
  const std::string key = write(folder, R"({"precision": {"reduce_dtype": "fp32"}})");
  const Config by_other(UserConfig::read(key, {parse_override("strategy.reduce_dtype=bf16")}), sections());
  CHECK(by_other.text("precision.reduce_dtype") == "bf16");
}

TEST_CASE("a name in another unit that gives no integer is rounded away from zero", "[config]") {
  CHECK(with({"strategy.reduce_bucket_size=0.1"}).get<int64_t>("strategy.bucket_bytes") == 1);
  CHECK(with({"strategy.reduce_bucket_size=1.1"}).get<int64_t>("strategy.bucket_bytes") == 5);
  CHECK_THAT(refusal({"strategy.reduce_bucket_size=-0.1"}), Catch::Contains("out of range"));
}

TEST_CASE("aliases that contradict their key or each other in one layer are refused, naming both", "[config]") {
  CHECK(
      refusal({"strategy.reduce_bucket_size=500", "strategy.old.bytes=4096"}) ==
      "strategy.reduce_bucket_size = 500 on the command line and strategy.old.bytes = 4096 on the command line are two "
      "names of strategy.bucket_bytes; leave one of them out, or give both the same value");
  CHECK_THAT(refusal({"strategy.old.table=/a", "strategy.table=/b"}),
             Catch::Contains("strategy.old.table = \"/a\"") && Catch::Contains("strategy.table = \"/b\""));
  CHECK_THAT(refused_file(R"({"strategy": {"table": "a.bin", "old": {"table": "b.bin"}}})"),
             Catch::Contains("strategy.old.table = \"b.bin\" in ") && Catch::Contains("c.json") &&
                 Catch::Contains("strategy.table = \"a.bin\" in "));
}

TEST_CASE("names of one key may agree, the last value of a name counts, and arguments win over the file", "[config]") {
  CHECK(with({"strategy.reduce_bucket_size=500", "strategy.bucket_bytes=2e3"}).get<int64_t>("strategy.bucket_bytes") ==
        2000);
  CHECK(with({"strategy.old.bytes=1", "strategy.old.bytes=2"}).get<int64_t>("strategy.bucket_bytes") == 2);
  CHECK(with({"strategy.old.bytes=1", "strategy.bucket_bytes=2", "strategy.old.bytes=2"})
            .get<int64_t>("strategy.bucket_bytes") == 2);
  const TempFolder folder;
  const std::string file = write(folder, R"({"strategy": {"reduce_bucket_size": 500}})");
  const Config config(UserConfig::read(file, {parse_override("strategy.old.bytes=4096")}), sections());
  CHECK(config.get<int64_t>("strategy.bucket_bytes") == 4096);
}

TEST_CASE("an option without effect gives a warning if it is given", "[config]") {
  CHECK(with({}).warnings().empty());
  CHECK(with({"strategy.count=null"}).warnings().empty());
  CHECK(with({"strategy.count=7"}).warnings() ==
        std::vector<std::string>{"strategy.count=7 changes nothing: nothing is counted"});
}

TEST_CASE("a schema may give null a meaning", "[config]") {
  CHECK(with({}).text("strategy.inner.place") == "disk");
  CHECK(with({"strategy.inner=null"}).text("strategy.inner.place") == "none");
  CHECK(with({"strategy.inner.place=none"}).text("strategy.inner.place") == "none");
  CHECK_THAT(refusal({"strategy.table=null", "strategy.inner=tape"}), Catch::Contains("one of none, disk"));
}

TEST_CASE("an empty object inside a section gives nothing, and must be one that is there", "[config]") {
  const TempFolder folder;
  for (const char* text :
       {R"({"strategy": {"inner": {}}})", R"({"strategy": {"old": {}}})", R"({"strategy": {"old": null}})"}) {
    const Config config(UserConfig::read(write(folder, text), {}), sections());
    CHECK(config.text("strategy.inner.place") == "disk");
  }
  CHECK_THAT(refused_file(R"({"strategy": {"outer": {}}})"), Catch::Contains("unknown key 'strategy.outer' in"));
}

TEST_CASE("null has no effect in a file, and removes the file's value on the command line", "[config]") {
  const TempFolder folder;
  const std::string nothing =
      write(folder, R"({"train": {"steps": null}, "strategy": {"old": {"table": null}, "table": "t"}})");
  const Config defaults(UserConfig::read(nothing, {}), sections());
  CHECK(defaults.find("train.steps")->source == "default");
  CHECK(defaults.text("strategy.table") == folder.file("t"));
  const std::string something = write(folder, R"({"strategy": {"bucket_bytes": 7, "table": "t"}})");
  const Config back(UserConfig::read(something, {parse_override("strategy.reduce_bucket_size=null"),
                                                 parse_override("strategy.table=null")}),
                    sections());
  CHECK(back.get<int64_t>("strategy.bucket_bytes") == 1024);
  CHECK(back.text("strategy.table").empty());
  CHECK(back.find("strategy.table")->source == "default");
}

TEST_CASE("null on the command line contradicts no other name, and also works for another name of a key", "[config]") {
  CHECK(with({"strategy.reduce_bucket_size=7", "strategy.bucket_bytes=null"}).get<int64_t>("strategy.bucket_bytes") ==
        28);
  CHECK(with({"strategy.bucket_bytes=7", "strategy.bucket_bytes=null"}).get<int64_t>("strategy.bucket_bytes") == 1024);
  CHECK(with({"strategy.reduce_dtype=bf16", "precision.reduce_dtype=null"}).text("precision.reduce_dtype") == "bf16");
  const TempFolder folder;
  const std::string file =
      write(folder, R"({"precision": {"reduce_dtype": "bf16"}, "strategy": {"old": {"table": "t"}}})");
  const Config config(
      UserConfig::read(file, {parse_override("strategy.reduce_dtype=null"), parse_override("strategy.old=null")}),
      sections());
  CHECK(config.text("precision.reduce_dtype") == "fp32");
  CHECK(config.text("strategy.table").empty());
  CHECK_THAT(refusal({"strategy.old.=null"}), Catch::Contains("unknown key 'strategy.old'"));
  CHECK(with({"strategy.inner={}"}).text("strategy.inner.place") == "disk");
}

TEST_CASE("names with null do not contradict a name with a value", "[config]") {
  const TempFolder folder;
  const std::string file = write(folder, R"({"strategy": {"limit": 5, "old_limit": null}, "optimizer": null})");
  CHECK(Config(UserConfig::read(file, {}), sections()).get<int64_t>("strategy.limit") == 5);
}

TEST_CASE("a large integer is accepted in any notation", "[config]") {
  CHECK(with({"strategy.bucket_bytes=1e16"}).get<int64_t>("strategy.bucket_bytes") == 10000000000000000);
  CHECK(refusal({"strategy.bucket_bytes=1e19"}) ==
        "strategy.bucket_bytes = 1e19 on the command line is out of range (integers end at 9223372036854775807); it "
        "takes "
        "integer, at least 0");
  CHECK_THAT(refusal({"strategy.reduce_bucket_size=1e19"}),
             Catch::Contains("(given as strategy.reduce_bucket_size = 1e+19) is out of range (integers end at"));
}

TEST_CASE("the error of an option with one value gives the reason, and auto is not a value", "[config]") {
  CHECK_THAT(refusal({"strategy.one=2"}), Catch::Contains("one of 1 (there is but one)"));
  CHECK_THAT(refusal({"strategy.bucket_bytes=auto"}), Catch::Contains("leave it out for the default"));
  CHECK_THAT(refusal({"strategy.reduce_bucket_size=auto"}), Catch::Contains("leave it out for the default"));
}

TEST_CASE("a key that a file gives twice, once with a dot, is refused", "[config]") {
  for (const char* text : {R"({"strategy": {"inner": {"place": "disk"}, "inner.place": "none"}})",
                           R"({"strategy": {"inner.place": "none", "inner": {"place": "disk"}}})"})
    CHECK_THAT(refused_file(text), Catch::Contains("'strategy.inner.place' occurs twice in"));
}

TEST_CASE("paths in a file are relative to it, paths in arguments to the current folder", "[config]") {
  const TempFolder folder;
  const std::string file = write(folder, R"({"strategy": {"table": "../t.bin"}, "data": {"path": "/abs/d.txt"}})");
  const Config config(UserConfig::read(file, {parse_override("data.order=order.bin")}), sections());
  CHECK(config.text("strategy.table") == (folder.path().parent_path() / "t.bin").string());
  CHECK(config.text("data.path") == "/abs/d.txt");
  CHECK(config.text("data.order") == (std::filesystem::current_path() / "order.bin").string());
  CHECK(config.text("train.init_from").empty());
}

TEST_CASE("a file that is missing, empty or not JSON is refused with its place", "[config]") {
  CHECK_THAT(sentence_of([] { UserConfig::read("/no/such.json", {}); }), Catch::Contains("/no/such.json"));
  CHECK_THAT(refused_file(""), Catch::Contains("empty"));
  CHECK_THAT(refused_file("{\n  \"train\": {\"steps\": 3,}\n}\n"), Catch::Contains("line 2, column 24"));
  CHECK_THAT(refused_file("[1, 2]"), Catch::Contains("no JSON object"));
  CHECK_THAT(refused_file(R"({"train": 5})"), Catch::Contains("'train'") && Catch::Contains("not a section"));
  CHECK_THAT(refused_file(R"({"trian": {}})"), Catch::Contains("did you mean 'train'?"));
}

TEST_CASE("the options of a transport beside another are open until the transports are known", "[config]") {
  const UserConfig user = from_words({"comm_host.size=3"});
  CHECK(sentence_of([&] { Config(user, sections(), /*plugin_sections=*/false); }).empty());
  CHECK_THAT(sentence_of([&] { Config(user, sections()); }),
             Catch::Contains("section 'comm_host' on the command line belongs to no transport of the run"));
}

TEST_CASE("before plugins are known, their options are ignored and the host's are checked", "[config]") {
  const auto early = [](const std::string& word) {
    return sentence_of([&] { Config(from_words({word}), host_sections(), false); });
  };
  CHECK(early("strategy.anything=1").empty());
  CHECK_FALSE(early("train.anything=1").empty());
}

TEST_CASE("a plugin may not take a name that the host uses in its section", "[config]") {
  std::vector<Section> all = host_sections();
  CHECK_THAT(sentence_of([&] {
               add_plugin_options(all, "comm", R"({"properties": {"windows": {"type": "integer", "default": 1}}})",
                                  "comm 'odd'");
             }),
             Catch::Contains("comm 'odd'") && Catch::Contains("windows"));
}

TEST_CASE("an option without default must be given", "[config]") {
  std::vector<Section> all = host_sections();
  add_plugin_options(all, "model", R"({"properties": {"size": {"type": "string", "description": "how big"}}})", "m");
  CHECK_THAT(sentence_of([&] { Config(UserConfig(), all); }), Catch::Contains("model.size"));
  CHECK(Config(from_words({"model.size=xl"}), all).text("model.size") == "xl");
}

TEST_CASE("the effective configuration is a config file that gives the same configuration", "[config]") {
  const Config config = with({"train.steps=5", "strategy.betas=[0.5]", "run.nproc=3"});
  const TempFolder folder;
  const std::string file = write(folder, config.effective().dump());
  const Config again(UserConfig::read(file, {}), sections());
  CHECK(again.effective() == config.effective());
  CHECK(config.sources()["train"]["steps"] == "the command line");
}

TEST_CASE("typed reads refuse unknown keys and other types", "[config]") {
  const Config config = with({});
  CHECK_THAT(sentence_of([&] { static_cast<void>(config.get<int64_t>("train.nothing")); }),
             Catch::Contains("train.nothing"));
  CHECK_THAT(sentence_of([&] { static_cast<void>(config.get<int64_t>("run.name")); }), Catch::Contains("an integer"));
  CHECK(config.get<double>("train.steps") == 200.0);
  CHECK(config.get<int64_t>("run.quiet") == 0);
}

TEST_CASE("a word without '=' is refused", "[config]") {
  CHECK_THAT(sentence_of([] { parse_override("train.steps"); }), Catch::Contains("key=value"));
  CHECK_THAT(sentence_of([] { parse_override("=5"); }), Catch::Contains("key=value"));
  CHECK(parse_override("a.b=c=d").text == "c=d");
}
