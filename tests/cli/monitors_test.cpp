// SPDX-License-Identifier: Apache-2.0
//
// Monitors as users choose them: what each writes, several at once, one of someone else, and what is refused.
#include <catch2/catch.hpp>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <map>
#include <set>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;

namespace {

const std::string kBestLoss = test_plugin("best_loss");

Said train(const TempFolder& folder, Words more) {
  more.insert(more.end(), {"--model", toy_model(), "--nproc", "2", "train.steps=4", "train.eval_every=2",
                           "train.eval_batches=1", "run.quiet=true", "run.dir=" + folder.file("run")});
  return call_ddhost(more, std::chrono::seconds(30));
}
void check_refused(const Said& ended, const Words& words) {
  INFO("exit " << ended.code << "\n" << ended.err);
  CHECK(ended.code > 0);
  CHECK(ended.code < 128);
  for (const std::string& word : words) CHECK_THAT(ended.err, Catch::Contains(word));
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') <= 2);
}

std::set<std::string> files_of(const TempFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "run")) {
    const std::string name = entry.path().filename().string();
    names.insert(name.starts_with("events.out.tfevents.") ? "events" : name);
  }
  return names;
}

std::vector<Words> read_csv(const std::string& path) {
  std::vector<Words> rows;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    Words& row = rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
  }
  return rows;
}

// The rows as JSON: the first line has the names.
std::vector<nlohmann::json> objects_of(const std::vector<Words>& table) {
  std::vector<nlohmann::json> out;
  for (size_t r = 1; r < table.size(); ++r) {
    REQUIRE(table[r].size() == table[0].size());
    for (size_t c = 0; c < table[r].size(); ++c)
      (c == 0 ? out.emplace_back() : out.back())[table[0][c]] = nlohmann::json::parse(table[r][c]);
  }
  return out;
}

}  // namespace

TEST_CASE("prometheus keeps the newest values in a file that is always whole", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {"--monitor", "jsonl,prometheus"}).code == 0);
  const nlohmann::json last = read_run(folder.path() / "run").steps.back();
  std::istringstream lines(read_text(folder.file("run/metrics.prom")));
  std::map<std::string, double> values;
  std::string type;
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    if (line.starts_with("# TYPE ")) {
      type = line.substr(7, line.rfind(' ') - 7);
      CHECK(line == "# TYPE " + type + " gauge");
      continue;
    }
    const size_t brace = line.find('{'), blank = line.rfind("} ");
    REQUIRE(brace != std::string::npos);
    CHECK(line.substr(0, brace) == type);  // values of a name follow its type
    CHECK(line.substr(brace, blank + 1 - brace) == "{run=\"run\"}");
    values[type] = std::stod(line.substr(blank + 2));
  }
  for (const char* name : {"loss", "grad_norm", "lr"}) CHECK(values.at(std::string("ddhost_") + name) == last.at(name));
  CHECK(values.at("ddhost_step") == 4);
  CHECK(values.at("ddhost_running") == 0);
  CHECK(values.contains("ddhost_val_loss"));
  CHECK(std::abs(values.at("ddhost_row_seconds") - static_cast<double>(std::time(nullptr))) < 60);
  CHECK_FALSE(files_of(folder).contains(".metrics.prom.new"));
}

TEST_CASE("events.jsonl has checkpoints, the failure and the resume, in order; metrics.jsonl keeps its rows", "[cli]") {
  const TempFolder folder;
  const std::string bad = test_plugin("bad_monitor");
  CHECK(train(folder, {"--monitor", "jsonl,prometheus,tensorboard," + bad, "checkpoint.every=2",
                       "monitor.bad_monitor.at=row", "monitor.bad_monitor.step=3", "monitor.bad_monitor.fault=throw"})
            .code > 0);
  const std::string prom = read_text(folder.file("run/metrics.prom"));
  CHECK_THAT(prom, Catch::Contains("ddhost_failed{run=\"run\"} 1\n"));
  CHECK_THAT(prom, Catch::Contains("ddhost_running{run=\"run\"} 0\n"));
  CHECK_THAT(prom, Catch::Contains("ddhost_last_checkpoint_step{run=\"run\"} "));
  const auto events = [&folder] {
    std::vector<nlohmann::json> out;
    std::istringstream lines(read_text(folder.file("run/events.jsonl")));
    for (std::string line; std::getline(lines, line);) out.push_back(nlohmann::json::parse(line));
    return out;
  };
  const std::vector<nlohmann::json> before = events();
  REQUIRE(before.size() >= 2);
  CHECK(before.front().at("event") == "checkpoint");
  CHECK(before.front().at("step") == 2);
  CHECK(before.front().at("text") == folder.file("run/checkpoints/step-2"));
  CHECK(before.back().at("event") == "failed");
  CHECK_THAT(before.back().at("text").get<std::string>(),
             Catch::Contains("monitor 'bad_monitor', row") && Catch::Contains("the tide is out"));
  CHECK(before.back().at("time").get<std::string>().size() == 20);

  std::filesystem::remove_all(folder.path() / "run" / "checkpoints" / "step-4");
  REQUIRE(train(folder, {"--monitor", "jsonl,prometheus,tensorboard", "checkpoint.every=2", "--resume", "auto"}).code ==
          0);
  const std::vector<nlohmann::json> after = events();
  REQUIRE(after.size() > before.size());
  CHECK(std::equal(before.begin(), before.end(), after.begin()));
  CHECK(after[before.size()].at("event") == "resumed");
  CHECK(after.back().at("event") == "checkpoint");
  CHECK(after.back().at("step") == 4);
  CHECK(read_run(folder.path() / "run").steps.size() == 4);
  CHECK_THAT(read_text(folder.file("run/metrics.prom")), Catch::Contains("ddhost_failed{run=\"run\"} 0\n"));
}

TEST_CASE("each monitor that fails is named in the log, and the first one ends the run", "[cli]") {
  const TempFolder folder;
  const bool is_same_step = GENERATE(true, false);
  std::filesystem::create_symlink("/dev/full", folder.path() / "full");
  const Said ended = train(folder, {"--monitor", test_plugin("bad_monitor") + "," + test_plugin("best_loss"),
                                    "monitor.best_loss.file=../full", "monitor.bad_monitor.at=row",
                                    is_same_step ? "monitor.bad_monitor.step=1" : "monitor.bad_monitor.step=2",
                                    "monitor.bad_monitor.fault=throw"});
  INFO(ended.err);
  CHECK(ended.code > 0);
  CHECK_THAT(ended.err, Catch::Contains("the tide is out") && Catch::Contains("full': No space left") &&
                            Catch::Contains("another monitor has failed before"));
}

TEST_CASE("rank 0's monitors hear why another rank failed", "[cli]") {
  const TempFolder folder;
  const Said ended = train(folder, {"--strategy", test_plugin("bad_strategy"), "strategy.at=step",
                                    "strategy.fault=fails", "strategy.rank=1", "strategy.step=3"});
  INFO(ended.err);
  CHECK(ended.code > 0);
  const auto event = nlohmann::json::parse(read_text(folder.file("run/events.jsonl")));
  CHECK(event.at("event") == "failed");
  CHECK(event.at("step") == 2);
  CHECK_THAT(event.at("text").get<std::string>(), Catch::Contains("rank 1") && Catch::Contains("the tide is out"));
}

TEST_CASE("a run that fails before its first step leaves no file of events and no database", "[cli]") {
  const TempFolder folder;
  CHECK(train(folder, {"--monitor", "jsonl,sqlite", "--strategy", test_plugin("bad_strategy"), "strategy.at=step",
                       "strategy.fault=fails", "strategy.rank=0", "strategy.step=1"})
            .code > 0);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "run"));
}

TEST_CASE("prometheus writes into the collector's folder, which must exist", "[cli]") {
  const TempFolder folder, other, collector;
  REQUIRE(train(folder, {"--monitor", "prometheus", "monitor.prometheus.folder=" + collector.path().string()}).code ==
          0);
  CHECK_THAT(read_text(collector.file("ddhost_run.prom")), Catch::Contains("ddhost_loss{run=\"run\"} "));
  check_refused(train(other, {"--monitor", "prometheus", "monitor.prometheus.folder=" + collector.file("none")}),
                {"monitor.prometheus.folder '", "is no folder"});
}

TEST_CASE("by default a run has only metrics.jsonl, with its columns in order", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {}).code == 0);
  CHECK(files_of(folder) ==
        std::set<std::string>{"config.json", "log.txt", "metrics.jsonl", "report.html", "run.json", "run.lock"});
  std::istringstream lines(read_text(folder.file("run/metrics.jsonl")));
  std::string first, names;
  std::getline(lines, first);
  const auto row = nlohmann::ordered_json::parse(first);
  for (const auto& [name, value] : row.items()) names += name + " ";
  CHECK(names == "step loss grad_norm lr step_ms samples_per_s skipped loss_scale ");
  CHECK_THAT(first, Catch::StartsWith("{\"step\":1,\"loss\":3.") && Catch::Contains(",\"skipped\":false,"));
  const RunRecord record = read_run(folder.path() / "run");
  CHECK(record.steps.size() == 4);
  CHECK(record.evaluations.size() == 2);
  CHECK(record.summary.at("steps") == 4);
}

TEST_CASE("csv has the same rows as jsonl, evaluations in a file of their own", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {"--monitor", "jsonl,csv", "monitor.every=2"}).code == 0);
  const RunRecord record = read_run(folder.path() / "run");
  CHECK(record.steps.size() == 2);
  CHECK(objects_of(read_csv(folder.file("run/metrics.csv"))) == record.steps);
  CHECK(objects_of(read_csv(folder.file("run/metrics_eval.csv"))) == record.evaluations);
}

TEST_CASE("programs in turn have csv files of their own", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {"--monitor", "csv", "model.programs=2", "train.eval_every=0"}).code == 0);
  size_t rows = 0;
  for (const std::string& name : files_of(folder))
    if (name.starts_with("metrics.") && name.ends_with(".csv")) rows += read_csv(folder.file("run/" + name)).size() - 1;
  CHECK(rows == 4);
  CHECK(files_of(folder).count("metrics.csv") == 0);
}

TEST_CASE("several monitors record at once, and a run without monitors is possible", "[cli]") {
  const TempFolder all, none;
  REQUIRE(train(all, {R"(monitor.plugins=["jsonl", "csv", "tensorboard"])"}).code == 0);
  CHECK(files_of(all) == std::set<std::string>{"config.json", "events", "log.txt", "metrics.csv", "metrics.jsonl",
                                               "metrics_eval.csv", "report.html", "run.json", "run.lock"});
  REQUIRE(train(none, {"monitor.plugins=[]"}).code == 0);
  CHECK(files_of(none) == std::set<std::string>{"config.json", "log.txt", "report.html", "run.json", "run.lock"});
  CHECK_THAT(train(none, {}).err, Catch::Contains("already holds a run"));
}

TEST_CASE("an external monitor is loaded from its path, with options below its name", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {"--monitor", kBestLoss, "monitor.best_loss.file=lowest.txt"}).code == 0);
  CHECK_THAT(read_text(folder.file("run/lowest.txt")), Catch::StartsWith("step 1 loss 3."));
  const auto config = nlohmann::json::parse(read_text(folder.file("run/config.json")));
  CHECK(config.at("monitor").at("plugins") == nlohmann::json::array({kBestLoss + ":best_loss"}));
  CHECK_THAT(config.dump(), Catch::Contains("lowest.txt"));
}

TEST_CASE("an invalid choice of a monitor is refused before the training", "[cli]") {
  const TempFolder folder;
  check_refused(train(folder, {"--monitor", "jsonk"}), {"no monitor 'jsonk'", "did you mean 'jsonl'", "tensorboard"});
  check_refused(train(folder, {"--monitor", "jsonl,jsonl"}), {"'jsonl' twice", "leave one of them out"});
  check_refused(train(folder, {"--monitor", "cosine"}), {"'cosine' is a schedule, not a monitor", "--schedule"});
  check_refused(train(folder, {"--schedule", "jsonl"}), {"'jsonl' is a monitor, not a schedule", "--monitor"});
  check_refused(train(folder, {"--monitor", "no/such.so"}), {"no/such.so"});
  check_refused(train(folder, {"--monitor", ""}), {"--monitor", "no value"});
  check_refused(train(folder, {"monitor.plugins=jsonl"}), {"monitor.plugins", "array of string"});
  check_refused(train(folder, {"monitor.best_loss.file=x"}), {"monitor.best_loss.file"});
  check_refused(train(folder, {"--monitor", kBestLoss, "monitor.best_loss.fil=x"}), {"monitor.best_loss.file"});
}

TEST_CASE("a file that can't be opened or written ends the run, and the error names it", "[cli]") {
  const TempFolder closed, full;
  check_refused(train(closed, {"--monitor", kBestLoss, "monitor.best_loss.file=no/such/folder.txt"}),
                {"monitor 'best_loss', begin", "cannot write", "no/such/folder.txt", "run.dir"});
  std::filesystem::create_directory(full.file("run"));
  std::filesystem::create_symlink("/dev/full", full.file("run/metrics.csv"));
  check_refused(train(full, {"--monitor", "csv"}),
                {"monitor 'csv', row", "cannot write", "metrics.csv", "No space left", "free some space"});
}

TEST_CASE("two monitors do not write one file", "[cli]") {
  const TempFolder folder;
  check_refused(train(folder, {"--monitor", "csv," + kBestLoss, "monitor.best_loss.file=metrics.csv"}),
                {"metrics.csv", "is written by another monitor or program", "give each a file of its own"});
}

TEST_CASE("a folder with recorded rows is never used for another run", "[cli]") {
  const TempFolder early, late;
  check_refused(train(early, {"--monitor", "csv,tensorboard", "data.order=" + early.file("none")}), {"data.order"});
  CHECK(train(early, {"--monitor", "csv"}).code == 0);
  const std::string bad = test_plugin("bad_monitor");
  check_refused(train(late, {"--monitor", "csv," + bad, "monitor.bad_monitor.at=row", "monitor.bad_monitor.step=3",
                             "monitor.bad_monitor.fault=throw"}),
                {"the tide is out"});
  check_refused(train(late, {"--monitor", "csv"}), {"already holds a run"});
}
