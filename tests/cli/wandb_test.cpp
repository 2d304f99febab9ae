// SPDX-License-Identifier: Apache-2.0
//
// The monitor wandb: its file, read here without protobuf, in a run, a resumed one and one that fails; and texts of any kind.
// wandb_reads.sh reads the same with the wandb package.
#include <dlfcn.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "ddh/kind/monitor.h"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/fake_host.hpp"

using namespace ddhost::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

// A message of protobuf: its numbers and its texts, by field.
struct Message {
  std::map<uint64_t, uint64_t> numbers;
  std::map<uint64_t, std::vector<std::string>> texts;

  explicit Message(const std::string& bytes) {
    size_t at = 0;
    const auto number = [&] {
      uint64_t out = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes.at(at++));
        out |= uint64_t{byte & 0x7fU} << shift;
        if (byte < 0x80) return out;
      }
    };
    while (at < bytes.size()) {
      const uint64_t tag = number();
      REQUIRE((tag % 8 == 0 || tag % 8 == 2));
      if (tag % 8 == 0) {
        numbers[tag / 8] = number();
        continue;
      }
      const uint64_t size = number();
      REQUIRE(at + size <= bytes.size());
      texts[tag / 8].push_back(bytes.substr(at, size));
      at += size;
    }
  }
  [[nodiscard]] std::string text(uint64_t field) const {
    const auto found = texts.find(field);
    return found == texts.end() ? "" : found->second.front();
  }
};

// Fields of a record.
constexpr uint64_t kHistory = 2, kSummary = 3, kConfig = 5, kStats = 7, kAlert = 10, kLine = 13, kRun = 17, kExit = 18,
                   kHeader = 21;

// The records of a file whose parts are taken on trust: the unit test of the framing checks them.
std::vector<Message> records_of(const std::string& file) {
  REQUIRE(file.starts_with(":W&B"));
  std::vector<Message> out;
  std::string record;
  for (size_t at = 7; at < file.size();) {
    if (const size_t room = 32768 - at % 32768; room < 7) at += room;
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(file.at(at + i)); };
    const size_t size = byte(4) + 256U * byte(5), type = byte(6);
    record += file.substr(at + 7, size);
    at += 7 + size;
    if (type == 2 || type == 3) continue;
    out.emplace_back(record);
    record.clear();
  }
  return out;
}

// Numbers that JSON lacks become texts.
Json parse(std::string text) {
  if (text == "NaN" || text == "Infinity" || text == "-Infinity") text = "\"" + text + "\"";
  return Json::parse(text);
}

Json items_of(const Message& message, uint64_t field = 1) {
  Json out = Json::object();
  const auto items = message.texts.find(field);
  if (items == message.texts.end()) return out;
  for (const std::string& bytes : items->second) {
    const Message item(bytes);
    CHECK_FALSE(out.contains(item.text(1)));
    out[item.text(1)] = parse(item.text(16));
  }
  return out;
}

// The rows, without W&B's own values but for the step.
std::vector<Json> history_of(const std::vector<Message>& records) {
  std::vector<Json> out;
  for (const Message& record : records) {
    if (!record.texts.contains(kHistory)) continue;
    Json row = items_of(Message(record.text(kHistory)));
    CHECK(row.at("_runtime") >= 0);
    CHECK(row.at("_timestamp") > 1.7e9);
    row["step"] = row["_step"];
    for (const char* own : {"_step", "_runtime", "_timestamp"}) row.erase(own);
    out.push_back(row);
  }
  return out;
}

// As metrics.jsonl has them, with those of a step and of its evaluation in one.
std::vector<Json> rows_of_file(const TempFolder& folder) {
  std::vector<Json> out;
  std::istringstream lines(read_text(folder.file("run/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line);
    if (!row.contains("step")) continue;
    if (out.empty() || out.back()["step"] != row["step"]) out.push_back(Json::object());
    out.back().update(row);
  }
  return out;
}

std::string file_in(const fs::path& run) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(run / "wandb"))
    if (entry.path().extension() == ".wandb") files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  const std::string folder = files[0].parent_path().filename().string();
  CHECK(folder.starts_with("offline-run-"));
  CHECK(folder.ends_with(files[0].stem().string().substr(3)));  // "-ID"
  CHECK(fs::is_directory(files[0].parent_path() / "files"));
  return files[0].string();
}
std::vector<Message> records_in(const TempFolder& folder) {
  return records_of(read_text(file_in(folder.path() / "run")));
}

Said train(const TempFolder& folder, Words more) {
  more.insert(more.begin(), {"--model", toy_model(), "--nproc", "2", "train.steps=6", "train.eval_every=3",
                             "train.eval_batches=1", "run.quiet=true", "run.dir=" + folder.file("run")});
  return call_ddhost(more, std::chrono::seconds(60));
}

// The plugin without a run.
class Wandb {
 public:
  explicit Wandb(const FakeOptions& options) : host_(options) {
    void* const library = ::dlopen(plugin_file("wandb").c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    ddh::call(reinterpret_cast<ddh_plugin_entry_fn>(::dlsym(library, DDH_ENTRY_SYMBOL)), host_.get(), &module_);
    const ddh_create create{sizeof(ddh_create), 0, host_.get(), module_->desc[0]->id, "monitor.wandb"};
    ddh::call(module_->create, &create, &instance_);
    table_ = static_cast<const ddh_monitor_api*>(module_->get_interface(instance_, DDH_MONITOR_IFACE));
  }
  Wandb(const Wandb&) = delete;
  Wandb& operator=(const Wandb&) = delete;
  ~Wandb() { module_->destroy(instance_); }

  void begin(const std::string& run_dir, const std::string& config, int64_t resumed_after = 0) const {
    const ddh_monitor_args args{sizeof args, 2, run_dir.c_str(), config.c_str(), resumed_after};
    ddh::call(table_->begin, instance_, &args);
  }
  void row(int64_t step, std::vector<ddh_row_value> values, const char* program = nullptr,
           int32_t kind = DDH_ROW_STEP) const {
    const ddh_row row{sizeof row, kind, step, program, values.data(), static_cast<uint32_t>(values.size()), 0};
    ddh::call(table_->row, instance_, &row);
  }
  void event(int32_t kind, int64_t step, const char* text) const {
    const ddh_event event{sizeof event, kind, step, text};
    ddh::call(table_->event, instance_, &event);
  }

 private:
  FakeHost host_;
  const ddh_module* module_ = nullptr;
  ddh_inst* instance_ = nullptr;
  const ddh_monitor_api* table_ = nullptr;
};

FakeOptions options_of(const std::string& text) {
  FakeOptions out;
  for (const char* name : {"project", "entity", "group", "name", "notes", "tags", "id"})
    out[std::string("monitor.wandb.") + name] = std::string();
  for (const char* name : {"entity", "group", "name", "notes"}) out[std::string("monitor.wandb.") + name] = text;
  return out;
}

}  // namespace

TEST_CASE("wandb has the rows of jsonl, the configuration and the end, in W&B's messages", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {"--monitor", "jsonl,wandb", "monitor.wandb.project=seas", "monitor.wandb.tags=a,b"}).code ==
          0);
  const std::vector<Message> records = records_in(folder);
  REQUIRE(records.size() > 4);
  for (size_t i = 0; i < records.size(); ++i) CHECK(records[i].numbers.at(1) == i + 1);
  CHECK(Message(Message(records[0].text(kHeader)).text(1)).text(1) == "ddhost");
  const Message run(records[1].text(kRun));
  CHECK(file_in(folder.path() / "run").ends_with("/run-" + run.text(1) + ".wandb"));
  CHECK(run.text(1).size() == 8);
  CHECK(run.text(3) == "seas");
  CHECK(run.text(8) == "run");
  CHECK(run.texts.at(10) == std::vector<std::string>{"a", "b"});
  Json config = items_of(Message(run.text(4)));
  CHECK(config.at("run_dir") == folder.file("run"));
  config.erase("run_dir");
  CHECK(config == Json::parse(read_text(folder.file("run/config.json"))));
  CHECK(history_of(records) == rows_of_file(folder));
  CHECK(history_of(records).size() == 6);
  CHECK(history_of(records)[2].contains("val_loss"));
  const Message end(records.back().text(kExit));
  CHECK_FALSE(end.numbers.contains(1));  // 0
  const Message& before = records[records.size() - 2];
  CHECK(items_of(Message(before.text(kSummary))).at("summary").contains("steps"));
}

TEST_CASE("a resumed run goes on in W&B's file, under its id, without later rows, and is sent again", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {"--monitor", "jsonl,wandb", "checkpoint.every=2"}).code == 0);
  const std::string file = file_in(folder.path() / "run");
  std::ofstream(file + ".synced").flush();
  std::ofstream(file, std::ios::app) << "half a record";
  fs::remove_all(folder.path() / "run" / "checkpoints" / "step-6");
  const Said again = train(folder, {"--monitor", "jsonl,wandb", "checkpoint.every=2", "--resume", "auto",
                                    "train.steps=8", "--resume-allow", "train.steps"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK_FALSE(fs::exists(file + ".synced"));
  const std::vector<Message> records = records_in(folder);
  CHECK(history_of(records) == rows_of_file(folder));
  std::vector<std::string> lines;
  size_t exits = 0, runs = 0, summaries = 0;
  Json config;
  for (const Message& record : records) {
    exits += record.texts.count(kExit);
    runs += record.texts.count(kRun);
    if (record.texts.contains(kSummary)) summaries += items_of(Message(record.text(kSummary))).count("summary");
    if (record.texts.contains(kConfig)) config = items_of(Message(record.text(kConfig)));
    if (record.texts.contains(kLine)) lines.push_back(Message(record.text(kLine)).text(3));
  }
  CHECK(exits == 1);
  CHECK(runs == 1);
  CHECK(summaries == 1);
  CHECK(config.at("train").at("steps") == 8);
  const auto saved = [&](int step) {
    return ddh::str("step ", step, ": checkpoint: ", folder.file("run/checkpoints/step-"), step, "\n");
  };
  CHECK(lines == std::vector<std::string>{saved(2), saved(4), saved(6),
                                          "step 4: resumed: " + folder.file("run/checkpoints/step-4") + "\n", saved(6),
                                          saved(8)});
}

TEST_CASE("a damaged file of W&B is kept beside that of the resumed run, and a warning says what is missing", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {"--monitor", "jsonl,wandb", "checkpoint.every=2"}).code == 0);
  const std::string file = file_in(folder.path() / "run");
  std::string bytes = read_text(file);
  REQUIRE(history_of(records_of(bytes)).size() == 6);
  const size_t middle = bytes.find("grad_norm", bytes.size() / 2);
  REQUIRE(middle != std::string::npos);
  bytes[middle] = 'G';
  std::ofstream(file, std::ios::binary) << bytes;
  const Said again = train(folder, {"--monitor", "jsonl,wandb", "checkpoint.every=2", "--resume", "auto",
                                    "train.steps=8", "--resume-allow", "train.steps"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK_THAT(again.err, Catch::Contains("is damaged at byte") && Catch::Contains(file + ".damaged"));
  CHECK(read_text(file + ".damaged") == bytes);
  const std::vector<Json> rows = history_of(records_in(folder));
  REQUIRE((rows.size() > 2 && rows.size() < 8));
  CHECK(rows[0].at("step") == 1);
  CHECK(rows[rows.size() - 3].at("step") == rows.size() - 2);  // the last before the damage
  CHECK(rows[rows.size() - 2].at("step") == 7);
  CHECK(rows.back().at("step") == 8);
}

TEST_CASE("a resumed run takes new options of W&B, keeps the others, and leaves out an alert of before", "[cli]") {
  const TempFolder folder;
  const std::string bad = test_plugin("bad_monitor");
  REQUIRE(train(folder, {"--monitor", "jsonl,wandb," + bad, "checkpoint.every=2", "monitor.wandb.project=seas",
                         "monitor.wandb.group=tides", "monitor.wandb.tags=a,b", "monitor.bad_monitor.at=row",
                         "monitor.bad_monitor.step=3", "monitor.bad_monitor.fault=throw"})
              .code > 0);
  const auto has_alert = [](const Message& record) { return record.texts.contains(kAlert); };
  const std::vector<Message> before = records_in(folder);
  REQUIRE(std::count_if(before.begin(), before.end(), has_alert) == 1);
  const Said again = train(folder, {"--monitor", "jsonl,wandb", "checkpoint.every=2", "--resume", "auto",
                                    "monitor.wandb.project=lakes", "monitor.wandb.tags=c"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  const std::vector<Message> records = records_in(folder);
  CHECK(std::count_if(records.begin(), records.end(), has_alert) == 0);
  CHECK(records[1].numbers.at(1) == 2);
  const Message run(records[1].text(kRun));
  CHECK(run.text(3) == "lakes");
  CHECK(run.text(6) == "tides");
  CHECK(run.text(8) == "run");
  CHECK(run.texts.at(10) == std::vector<std::string>{"c"});
  CHECK(run.text(1) == Message(before[1].text(kRun)).text(1));
  CHECK(history_of(records) == rows_of_file(folder));
}

TEST_CASE("an evaluation that a resumed run makes up for belongs to the row of its step", "[cli]") {
  const TempFolder folder;
  const std::string run_dir = folder.path().string();
  {
    const Wandb wandb(options_of(""));
    wandb.begin(run_dir, "{}");
    wandb.row(1, {{"loss", 3, 0, 0}});
    wandb.row(2, {{"loss", 2, 0, 0}, {"device_busy_percent", 50, 0, 0}});
    wandb.event(DDH_EVENT_CHECKPOINT, 2, "here");
    wandb.row(3, {{"loss", 1, 0, 0}});
    wandb.event(DDH_EVENT_CHECKPOINT, 3, "here");
  }
  {
    const Wandb wandb(options_of(""));
    wandb.begin(run_dir, "{}", 2);
    wandb.event(DDH_EVENT_RESUMED, 2, "here");
    wandb.row(2, {{"val_loss", 4, 0, 0}}, nullptr, DDH_ROW_EVAL);
    wandb.event(DDH_EVENT_CHECKPOINT, 2, "here");
  }
  const std::vector<Message> records = records_of(read_text(file_in(folder.path())));
  CHECK(history_of(records) ==
        std::vector<Json>{{{"step", 1}, {"loss", 3.0}}, {{"step", 2}, {"loss", 2.0}, {"val_loss", 4.0}}});
}

TEST_CASE("the values of the step that train.patience ends with, and of its evaluation, are one row", "[cli]") {
  const TempFolder folder;
  const Said ended = train(folder, {"--monitor", "jsonl,wandb", "train.steps=40", "monitor.every=100",
                                    "checkpoint.every=3", "train.patience=1", "optimizer.lr=0"});
  INFO(ended.err);
  REQUIRE(ended.code == 0);
  const std::vector<Json> rows = history_of(records_in(folder));
  REQUIRE(rows.size() == 2);  // nothing is learnt, so the second evaluation is not better
  CHECK(rows[1].at("step") == 6);
  CHECK(rows[1].contains("val_loss"));
  CHECK(rows[1].contains("grad_norm"));
}

TEST_CASE("a resumed run goes on in the newest run of its folder, or in that of the id given", "[cli]") {
  const TempFolder folder;
  const std::string run_dir = folder.path().string();
  const auto record = [&](const std::string& id, int64_t resumed_after) {
    FakeOptions options = options_of("");
    options["monitor.wandb.id"] = id;
    const Wandb wandb(options);
    wandb.begin(run_dir, "{}", resumed_after);
    wandb.row(resumed_after + 1, {{"loss", 3, 0, 0}});
    wandb.event(DDH_EVENT_CHECKPOINT, resumed_after + 1, "here");
  };
  const auto rows_in = [&](const std::string& id) {
    for (const auto& entry : fs::recursive_directory_iterator(folder.path() / "wandb"))
      if (entry.path().filename() == "run-" + id + ".wandb")
        return history_of(records_of(read_text(entry.path()))).size();
    return size_t{0};
  };
  record("first", 0);
  for (const auto& entry : fs::directory_iterator(folder.path() / "wandb"))  // the clock was changed later
    fs::rename(entry.path(), folder.path() / "wandb" / "offline-run-20990101_000000-first");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // the beginnings are compared in seconds
  record("second", 0);
  record("", 1);
  CHECK(rows_in("first") == 1);
  CHECK(rows_in("second") == 2);
  record("first", 1);
  CHECK(rows_in("first") == 2);
  CHECK(rows_in("second") == 2);
}

TEST_CASE("names and texts of any kind reach W&B's file as UTF-8 and JSON", "[cli]") {
  const TempFolder folder;
  const std::string hostile = "a\"b\\c\n\x01\xff</script>\xe2\x82\xac";
  const std::string text = "a\"b\\c\n\x01\xef\xbf\xbd</script>\xe2\x82\xac";  // what is not UTF-8 is replaced
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const Json huge = {{"train", {{"text", std::string(200'000, 'x')}}}};
  {
    const Wandb wandb(options_of(hostile));
    wandb.begin(folder.path().string(), huge.dump());
    CHECK_FALSE(fs::exists(folder.path() / "wandb"));  // a run that fails before its first step leaves nothing
    wandb.row(1, {{hostile.c_str(), nan, 0, 0},
                  {"_step", infinity, 0, 0},
                  {"flag", 1, 1, 0},
                  {"device_busy_percent", 50, 0, 0}});
    wandb.row(1, {{"loss", -infinity, 0, 0}, {"flag", 0, 1, 0}}, hostile.c_str());
    wandb.event(99, 1, "a kind of the future");
    wandb.event(DDH_EVENT_CHECKPOINT, 1, hostile.c_str());
    wandb.event(DDH_EVENT_FAILED, 1, hostile.c_str());
  }
  const std::vector<Message> records = records_of(read_text(file_in(folder.path())));
  const Message run(records[1].text(kRun));
  for (const uint64_t field : {2, 6, 8, 9}) CHECK(run.text(field) == text);
  CHECK(items_of(Message(run.text(4))).at("train") == huge["train"]);
  CHECK(history_of(records) == std::vector<Json>{{{"step", 1},
                                                  {text, "NaN"},
                                                  {"metric_step", "Infinity"},
                                                  {"flag", true},
                                                  {text + "/loss", "-Infinity"},
                                                  {text + "/flag", false}}});
  std::multiset<std::string> seen;
  for (const Message& record : records) {
    if (record.texts.contains(kStats)) {
      CHECK(items_of(Message(record.text(kStats)), 3) == Json{{"device_busy_percent", 50.0}});
      seen.insert("stats");
    }
    if (record.texts.contains(kLine)) seen.insert(Message(record.text(kLine)).text(3));
    if (record.texts.contains(kAlert)) {
      const Message alert(record.text(kAlert));
      CHECK(alert.text(2) == text);
      CHECK(alert.text(3) == "ERROR");
      seen.insert("alert");
    }
    if (record.texts.contains(kExit)) CHECK(Message(record.text(kExit)).numbers.at(1) == 1);
  }
  CHECK(seen == std::multiset<std::string>{"stats", "step 1: checkpoint: " + text + "\n",
                                           "step 1: failed: " + text + "\n", "alert"});
}

TEST_CASE("wandb leaves other programs' runs alone, and refuses what W&B does not take", "[cli]") {
  const TempFolder folder;
  const std::string other = folder.file("run/wandb/offline-run-20990101_000000-theirs/run-theirs.wandb");
  fs::create_directories(fs::path(other).parent_path());
  std::ofstream(other) << "not a file of this program";
  REQUIRE(train(folder, {"--monitor", "jsonl,wandb", "monitor.wandb.id=mine"}).code == 0);
  CHECK(read_text(other) == "not a file of this program");
  size_t ours = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path() / "run" / "wandb"))
    ours += entry.path().filename() == "run-mine.wandb" ? 1 : 0;
  CHECK(ours == 1);
  const Said kept = call_ddhost({"runs", "rm", folder.file("run"), "--yes"});
  CHECK(kept.code == 1);
  CHECK_THAT(kept.err, Catch::Contains("holds 1 file that no run writes, such as") &&
                           Catch::Contains("'wandb/offline-run-20990101_000000-theirs'"));
  CHECK(read_text(other) == "not a file of this program");

  const TempFolder second;
  CHECK_THAT(train(second, {"--monitor", "wandb", "monitor.wandb.project=a/b"}).err,
             Catch::Contains("monitor.wandb.project 'a/b'") && Catch::Contains("leave it out"));
  CHECK_THAT(train(second, {"--monitor", "wandb", "monitor.wandb.id=a b"}).err,
             Catch::Contains("monitor.wandb.id 'a b'"));
  const std::string longest(200, 'x');
  CHECK_THAT(train(second, {"--monitor", "wandb", "monitor.wandb.id=" + longest + "x"}).err,
             Catch::Contains("monitor.wandb.id") && Catch::Contains("more than 200 bytes"));
  CHECK_THAT(train(second, {"--monitor", "wandb", "monitor.wandb.name=" + longest}).err,
             Catch::Contains("monitor.wandb.name 'xxxxx") && Catch::Contains("more than the 128 characters"));
  CHECK_THAT(train(second, {"--monitor", "wandb", "monitor.wandb.tags=a," + longest}).err,
             Catch::Contains("the tag of the run in W&B 'xxxxx") && Catch::Contains("more than the 64 characters"));
  CHECK_FALSE(fs::exists(second.path() / "run"));
  CHECK(train(second, {"--monitor", "wandb", "monitor.wandb.id=" + longest}).code == 0);
  fs::remove_all(second.path() / "run");

  fs::create_directories(second.path() / "run");
  fs::create_directories(second.path() / "shared");
  fs::create_directory_symlink(second.path() / "shared", second.path() / "run" / "wandb");
  CHECK_THAT(train(second, {"--monitor", "wandb"}).err, Catch::Contains("is a symbolic link"));
  CHECK(fs::is_empty(second.path() / "shared"));
  fs::remove(second.path() / "run" / "wandb");
  std::ofstream(second.file("run/wandb")) << "a file";
  CHECK_THAT(train(second, {"--monitor", "wandb"}).err, Catch::Contains("is no folder"));
  CHECK(read_text(second.file("run/wandb")) == "a file");
}

TEST_CASE("runs rm removes W&B's folder with the run", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {"--monitor", "jsonl,wandb"}).code == 0);
  const Said removed = call_ddhost({"runs", "rm", folder.file("run"), "--yes"});
  INFO(removed.err);
  CHECK(removed.code == 0);
  CHECK_FALSE(fs::exists(folder.path() / "run"));
}
