// SPDX-License-Identifier: Apache-2.0
//
// The monitor sqlite: its tables, read with SQL, in a run, a resumed one and a database of several runs.
#include <sqlite3.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "cli/checkpoint_runs.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
using Json = nlohmann::json;

namespace {

Said train(const TempFolder& folder, Words more) {
  more.insert(more.end(), {"--model", toy_model(), "--nproc", "2", "train.steps=6", "train.eval_every=3",
                           "train.eval_batches=1", "run.quiet=true", "run.dir=" + folder.file("run")});
  return call_ddhost(more, std::chrono::seconds(30));
}

std::vector<Words> query(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  REQUIRE(::sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE, nullptr) == SQLITE_OK);
  std::vector<Words> rows;
  const auto take = [](void* out, int n, char** cells, char**) {
    Words& row = static_cast<std::vector<Words>*>(out)->emplace_back();
    for (int i = 0; i < n; ++i) row.emplace_back(cells[i] == nullptr ? "NULL" : cells[i]);
    return 0;
  };
  char* error = nullptr;
  const int rc = ::sqlite3_exec(db, sql.c_str(), take, &rows, &error);
  INFO(sql << ": " << (error == nullptr ? "" : error));
  CHECK(rc == SQLITE_OK);
  ::sqlite3_free(error);
  ::sqlite3_close(db);
  return rows;
}

// The rows as metrics.jsonl has them.
std::vector<Json> recorded(const std::string& path) {
  std::vector<Json> out;
  for (const Words& row : query(path, "SELECT step, metrics FROM metrics ORDER BY id")) {
    out.push_back(Json::parse(row[1]));
    out.back()["step"] = std::stoll(row[0]);
  }
  return out;
}

std::vector<Json> rows_of_file(const TempFolder& folder) {
  std::vector<Json> out;
  std::ifstream in(folder.file("run/metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    if (Json row = Json::parse(line); row.contains("step")) out.push_back(row);
  return out;
}

}  // namespace

TEST_CASE("sqlite has the rows of jsonl and the configuration, in the tables of Trackio", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {"--monitor", "jsonl,sqlite"}).code == 0);
  const std::string db = folder.file("run/metrics.db");
  CHECK(recorded(db) == rows_of_file(folder));
  CHECK(recorded(db).size() == 8);
  const std::vector<Words> configs = query(db, "SELECT run_name, config, run_id FROM configs");
  REQUIRE(configs.size() == 1);
  CHECK(configs[0][0] == "run");
  CHECK(Json::parse(configs[0][1]).at("train").at("steps") == 6);
  CHECK(query(db, "SELECT DISTINCT run_id, run_name FROM metrics") == std::vector<Words>{{configs[0][2], "run"}});
  CHECK(query(db, "PRAGMA user_version") == std::vector<Words>{{"2"}});
  CHECK(query(db, "SELECT * FROM alerts").empty());
  CHECK_FALSE(std::filesystem::exists(db + "-wal"));  // all is in the database
}

TEST_CASE("numbers that are not finite have Trackio's words in sqlite", "[cli]") {
  const TempFolder folder;
  REQUIRE(train(folder, {"--monitor", "sqlite", "model.nan_at_step=4"}).code == 0);
  const std::vector<Json> rows = recorded(folder.file("run/metrics.db"));
  const auto is_nan = [](const Json& row) { return row.value("skipped", false); };
  const auto at = std::find_if(rows.begin(), rows.end(), is_nan);
  REQUIRE(at != rows.end());
  CHECK(at->at("grad_norm") == "NaN");
}

TEST_CASE("a resumed run goes on in its database, without the rows of later steps", "[cli]") {
  const TempFolder folder, database;
  const std::string path = GENERATE(as<std::string>(), "", "given");
  const std::string db = path.empty() ? folder.file("run/metrics.db") : database.file("runs.db");
  const std::string option = "monitor.sqlite.path=" + (path.empty() ? "" : db);
  REQUIRE(train(folder, {"--monitor", "jsonl,sqlite", option, "checkpoint.every=2"}).code == 0);
  const std::vector<Words> id = query(db, "SELECT run_id FROM configs");
  std::filesystem::remove_all(folder.path() / "run" / "checkpoints" / "step-6");
  const Said again = train(folder, {"--monitor", "jsonl,sqlite", option, "checkpoint.every=2", "--resume", "auto"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(recorded(db) == rows_of_file(folder));
  CHECK(query(db, "SELECT run_id FROM configs") == id);
  CHECK(query(db, "SELECT title, step, level FROM alerts ORDER BY id") ==
        std::vector<Words>{{"checkpoint", "2", "info"},
                           {"checkpoint", "4", "info"},
                           {"checkpoint", "6", "info"},
                           {"resumed", "4", "info"},
                           {"checkpoint", "6", "info"}});
}

TEST_CASE("an evaluation that comes again after a resume is in the database once", "[cli]") {
  const TempFolder folder;
  const Words words = {"--monitor", "jsonl,sqlite", "checkpoint.every=3"};
  REQUIRE(train(folder, words).code == 0);
  const std::vector<Json> before = recorded(folder.file("run/metrics.db"));
  std::filesystem::remove_all(folder.path() / "run" / "checkpoints" / "step-6");
  make_evaluation_pending(folder.file("run/checkpoints/step-3"));
  Words again = words;
  again.insert(again.end(), {"--resume", "auto"});
  REQUIRE(train(folder, again).code == 0);
  CHECK(recorded(folder.file("run/metrics.db")) == rows_of_file(folder));
  CHECK(recorded(folder.file("run/metrics.db")).size() == before.size());
}

TEST_CASE("one database holds several runs, and a failed one has its sentence", "[cli]") {
  const TempFolder one, two, database;
  const std::string option = "monitor.sqlite.path=" + database.file("runs.db");
  REQUIRE(train(one, {"--monitor", "sqlite", option}).code == 0);
  const Said failed =
      train(two, {"--monitor", "sqlite," + test_plugin("bad_monitor"), option, "monitor.bad_monitor.at=row",
                  "monitor.bad_monitor.step=3", "monitor.bad_monitor.fault=throw"});
  CHECK(failed.code > 0);
  CHECK(query(database.file("runs.db"), "SELECT COUNT(DISTINCT run_id) FROM metrics") == std::vector<Words>{{"2"}});
  const std::vector<Words> alerts =
      query(database.file("runs.db"), "SELECT title, level, text FROM alerts ORDER BY id");
  REQUIRE_FALSE(alerts.empty());
  CHECK(alerts.back()[0] == "failed");
  CHECK(alerts.back()[1] == "error");
  CHECK_THAT(alerts.back()[2], Catch::Contains("the tide is out"));
}

TEST_CASE("sqlite refuses what is no database of its schema, and changes nothing in it", "[cli]") {
  const TempFolder folder;
  const std::string other = folder.file("other.db"), text = folder.file("text.db");
  std::ofstream(text) << std::string(2000, 'x');
  sqlite3* db = nullptr;
  REQUIRE(::sqlite3_open(other.c_str(), &db) == SQLITE_OK);
  ::sqlite3_exec(db, "CREATE TABLE metrics (id INTEGER); PRAGMA user_version = 3", nullptr, nullptr, nullptr);
  ::sqlite3_close(db);
  CHECK_THAT(train(folder, {"--monitor", "sqlite", "monitor.sqlite.path=" + other}).err,
             Catch::Contains("schema version 3") && Catch::Contains("monitor.sqlite.path"));
  CHECK(query(other, "SELECT name FROM sqlite_master WHERE type = 'table'") == std::vector<Words>{{"metrics"}});
  REQUIRE(::sqlite3_open(folder.file("app.db").c_str(), &db) == SQLITE_OK);
  ::sqlite3_exec(db, "CREATE TABLE notes (id INTEGER); PRAGMA user_version = 17", nullptr, nullptr, nullptr);
  ::sqlite3_close(db);
  CHECK_THAT(train(folder, {"--monitor", "sqlite", "monitor.sqlite.path=" + folder.file("app.db")}).err,
             Catch::Contains("is another program's") && Catch::Contains("monitor.sqlite.path"));
  CHECK(query(folder.file("app.db"), "PRAGMA user_version") == std::vector<Words>{{"17"}});
  CHECK_THAT(train(folder, {"--monitor", "sqlite", "monitor.sqlite.path=" + text}).err,
             Catch::Contains("cannot write the database") && Catch::Contains("move it away"));
  CHECK_THAT(train(folder, {"--monitor", "sqlite", "monitor.sqlite.path=" + folder.path().string()}).err,
             Catch::Contains("not a regular file"));
}
