// SPDX-License-Identifier: Apache-2.0
//
// sqlite: a database with the tables of Trackio (its schema of version 2, of Trackio 0.24 to 0.43):
//
//   metrics         a JSON object for each row; "program/name" if several programs take turns
//   system_metrics  the values of a row that are about the device, with the time of the row
//   configs         the effective configuration, and the folder of the run as "_Run_dir"
//   alerts          checkpoints and resumes (info), the failure of the run (error)
//
// By default the database is metrics.db in the run's folder, and has one run. `trackio show --project metrics` with TRACKIO_DIR
// set to that folder shows it. A database of monitor.sqlite.path may have several runs, also of other programs; their rows are
// never changed. A thread writes, so a slow disk slows no step (ddh/sdk/write_queue.hpp).
#include <sqlite3.h>

#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "ddh/sdk/monitor.hpp"
#include "ddh/sdk/options.hpp"
#include "ddh/sdk/write_queue.hpp"
#include "event_text.hpp"
#include "repeated_evaluation.hpp"

namespace {

using Json = nlohmann::json;

// As Trackio's own, so that it finds nothing to add to them.
constexpr const char* kSchema = R"(
CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE IF NOT EXISTS configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
  config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id));
CREATE TABLE IF NOT EXISTS system_metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL,
  timestamp TEXT NOT NULL, run_name TEXT NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE IF NOT EXISTS alerts (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, title TEXT NOT NULL, text TEXT, level TEXT NOT NULL DEFAULT 'warn', step INTEGER, alert_id TEXT);
CREATE INDEX IF NOT EXISTS idx_metrics_run_step ON metrics(run_id, step);
CREATE INDEX IF NOT EXISTS idx_system_metrics_run_timestamp ON system_metrics(run_id, timestamp);
CREATE INDEX IF NOT EXISTS idx_configs_run_name ON configs(run_name);
)";
constexpr int kSchemaVersion = 2;

// "2026-11-26T13:01:50.123456+00:00", of now.
std::string timestamp() {
  const auto now = std::chrono::system_clock::now();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  std::array<char, 32> day{}, fraction{};
  if (::gmtime_r(&seconds, &parts) != nullptr) std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(fraction.data(), fraction.size(), ".%06d+00:00", static_cast<int>(micros));
  return ddh::str(day.data(), fraction.data());
}

std::string new_id() {
  std::random_device random;
  std::array<char, 33> text{};
  for (size_t i = 0; i < 4; ++i) std::snprintf(text.data() + 8 * i, 9, "%08x", static_cast<unsigned>(random()));
  return text.data();
}

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Trackio's words for what JSON lacks.
Json json_value(const ddh_row_value& value) {
  if (value.is_flag != 0) return value.value != 0;
  if (std::isnan(value.value)) return "NaN";
  if (std::isinf(value.value)) return value.value > 0 ? "Infinity" : "-Infinity";
  return value.value;
}

using Cell = std::variant<int64_t, std::string>;

class Database {
 public:
  explicit Database(std::string path) : path_(std::move(path)) {
    sqlite3* raw = nullptr;
    const int rc = ::sqlite3_open_v2(path_.c_str(), &raw,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
    db_.reset(raw);
    if (rc != SQLITE_OK) fail();
    constexpr int kPatienceMs = 30'000;  // while another program writes
    ::sqlite3_busy_timeout(raw, kPatienceMs);
  }

  void script(const std::string& sql) {
    if (::sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail();
  }
  // All that `write` does, or nothing of it: an open transaction would keep other programs from writing.
  void together(const std::function<void()>& write) {
    script("BEGIN IMMEDIATE");
    try {
      write();
      script("COMMIT");
    } catch (...) {
      ::sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);  // the failure of `write` is the one to tell
      throw;
    }
  }
  // The rows of the result; NULL and blobs are texts.
  std::vector<std::vector<std::string>> run(const char* sql, const std::vector<Cell>& cells = {}) {
    sqlite3_stmt* raw = nullptr;
    if (::sqlite3_prepare_v2(db_.get(), sql, -1, &raw, nullptr) != SQLITE_OK) fail();
    const std::unique_ptr<sqlite3_stmt, Finalize> statement(raw);
    for (int i = 0; i < static_cast<int>(cells.size()); ++i) {
      const Cell& cell = cells[static_cast<size_t>(i)];
      if (const auto* number = std::get_if<int64_t>(&cell))
        ::sqlite3_bind_int64(raw, i + 1, *number);
      else
        ::sqlite3_bind_text(raw, i + 1, std::get<std::string>(cell).c_str(), -1, SQLITE_TRANSIENT);
    }
    std::vector<std::vector<std::string>> out;
    int rc = SQLITE_OK;
    while ((rc = ::sqlite3_step(raw)) == SQLITE_ROW) {
      std::vector<std::string>& row = out.emplace_back();
      for (int c = 0; c < ::sqlite3_column_count(raw); ++c) {
        const auto* text = static_cast<const char*>(::sqlite3_column_blob(raw, c));
        row.emplace_back(text == nullptr ? "" : text, static_cast<size_t>(::sqlite3_column_bytes(raw, c)));
      }
    }
    if (rc != SQLITE_DONE) fail();
    return out;
  }

  [[noreturn]] void fail() const {
    const char* cure = "free some space, or give another monitor.sqlite.path";
    ddh_rc code = DDH_RESOURCE_EXHAUSTED;
    switch (::sqlite3_errcode(db_.get())) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        cure = "another program writes it for longer than 30 s; end that one, or give another monitor.sqlite.path";
        code = DDH_UNAVAILABLE;
        break;
      case SQLITE_NOTADB:
      case SQLITE_CORRUPT:
        cure = "move it away, or give another monitor.sqlite.path";
        code = DDH_DATA_LOSS;
        break;
      case SQLITE_CANTOPEN:
      case SQLITE_READONLY:
      case SQLITE_PERM:
        cure = "make its folder, and let this user write there, or give another monitor.sqlite.path";
        code = DDH_PERMISSION_DENIED;
        break;
      default:
        break;
    }
    ddh::fail(code, "cannot write the database '", path_, "': ", ::sqlite3_errmsg(db_.get()), "; ", cure);
  }

 private:
  struct Close {
    void operator()(sqlite3* db) const { ::sqlite3_close_v2(db); }
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { ::sqlite3_finalize(statement); }
  };
  std::string path_;
  std::unique_ptr<sqlite3, Close> db_;
};

class Sqlite final : public ddh::Monitor {
 public:
  using Monitor::Monitor;

  void begin(const ddh_monitor_args& args) override {
    const std::string given = options.text("path"), run_dir = args.run_dir;
    resumed_after_ = args.resumed_after;
    const std::string path = given.empty() ? run_dir + "/metrics.db" : given;
    name_ = std::filesystem::path(run_dir).filename().string();
    std::error_code ec;
    const std::filesystem::file_status status = std::filesystem::status(path, ec);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
      ddh::fail(DDH_INVALID_ARGUMENT, "the database '", path, "' is not a regular file; give the name of a file as ",
                "monitor.sqlite.path");
    open_ = [this, path, run_dir, is_own = given.empty(), config = std::string(args.config)] {
      open(path, run_dir, is_own, config);
    };
    // A run that fails before its first step is done leaves no file, and no change in one.
    if (given.empty() && !std::filesystem::exists(status)) return;
    database_.emplace(path);
    database_->together([&] { static_cast<void>(is_new(path)); });
  }

  void row(const ddh_row& row) override {
    const std::string prefix = row.program == nullptr ? "" : std::string(row.program) + "/";
    Json metrics = Json::object(), system = Json::object();
    for (const ddh_row_value& value : values(row)) {
      const std::string name = value.name;
      if (name.starts_with("device_"))
        system[name] = json_value(value);
      else
        metrics[prefix + name] = json_value(value);
    }
    opened();
    if (std::exchange(is_first_, false) && repeats_evaluation(row, resumed_after_))
      queue_->put([this] { drop_evaluation(); });
    queue_->put([this, step = row.step, time = timestamp(), of_row = json_text(metrics),
                 of_system = system.empty() ? "" : json_text(system)] {
      database_->run("INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)",
                     {id_, time, name_, step, of_row});
      if (!of_system.empty())
        database_->run("INSERT INTO system_metrics (run_id, timestamp, run_name, metrics) VALUES (?, ?, ?, ?)",
                       {id_, time, name_, of_system});
    });
  }

  // A checkpoint and a failure wait for the rows before them.
  void event(const ddh_event& event) override {
    const std::string name = event_name(event.kind);
    if (name.empty()) return;
    if (event.kind == DDH_EVENT_FAILED && open_) return;
    const std::string level = event.kind == DDH_EVENT_FAILED ? "error" : "info";
    std::function<void()> alert = [this, name, level, step = event.step, time = timestamp(),
                                   text = std::string(event.text)] {
      database_->run(
          "INSERT INTO alerts (run_id, timestamp, run_name, title, text, level, step, alert_id) "
          "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
          {id_, time, name_, name, text, level, step, new_id()});
    };
    if (event.kind == DDH_EVENT_RESUMED && open_) {
      resumed_ = std::move(alert);
      return;
    }
    opened();
    queue_->put(std::move(alert));
    queue_->drain();
  }

  void end(const char* /*summary*/) override {
    opened();
    queue_->drain();
  }

 private:
  void opened() {
    if (open_) std::exchange(open_, nullptr)();
    if (resumed_) queue_->put(std::exchange(resumed_, nullptr));
  }

  void open(const std::string& path, const std::string& run_dir, bool is_own, const std::string& config) {
    if (!database_) database_.emplace(path);
    database_->together([&] {
      make_tables(path);
      id_ = resumed_after_ == 0 ? "" : id_of_run(run_dir, is_own);
      if (is_own && resumed_after_ == 0) clear();
      if (id_.empty())
        id_ = new_id();
      else
        drop_after(resumed_after_);
      write_config(config, run_dir);
    });
    database_->script("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL");  // a row waits for no disk
    queue_.emplace([this](const std::function<void()>& run_all) { database_->together(run_all); });
  }

  // Whether the database has nothing. Error: another program has made it, or it is of a version that is not known.
  bool is_new(const std::string& path) {
    const std::string version = database_->run("PRAGMA user_version").at(0).at(0);
    const bool is_empty = version == "0" && database_->run("SELECT name FROM sqlite_master").empty();
    const bool has_metrics =
        !database_->run("SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'metrics'").empty();
    if (!is_empty && !has_metrics)
      ddh::fail(DDH_FAILED_PRECONDITION, "the database '", path, "' is another program's: it has no table 'metrics'; ",
                "give another monitor.sqlite.path");
    if (!is_empty && version != std::to_string(kSchemaVersion))
      ddh::fail(DDH_FAILED_PRECONDITION, "the database '", path, "' has the schema version ", version, ", and this ",
                "monitor writes version ", kSchemaVersion, "; give another monitor.sqlite.path");
    return is_empty;
  }

  void make_tables(const std::string& path) {
    const bool was_new = is_new(path);
    database_->script(kSchema);
    if (was_new) database_->script("PRAGMA user_version = " + std::to_string(kSchemaVersion));
  }

  // The run that was recorded from this folder; "": none.
  std::string id_of_run(const std::string& run_dir, bool is_own_database) {
    for (const std::vector<std::string>& row : database_->run("SELECT run_id, config FROM configs ORDER BY id DESC")) {
      const Json config = Json::parse(row[1], nullptr, /*allow_exceptions=*/false);
      if (is_own_database || (config.is_object() && config.contains("_Run_dir") && config["_Run_dir"] == run_dir))
        return row[0];
    }
    return "";
  }

  // Rows of a run that was killed before its first checkpoint.
  void clear() {
    for (const char* table : {"metrics", "system_metrics", "configs", "alerts"})
      database_->script(ddh::str("DELETE FROM ", table));
  }

  void drop_after(int64_t step) {
    database_->run(
        "DELETE FROM system_metrics WHERE run_id = ? AND timestamp IN "
        "(SELECT timestamp FROM metrics WHERE run_id = ? AND step > ?)",
        {id_, id_, step});
    database_->run("DELETE FROM metrics WHERE run_id = ? AND step > ?", {id_, step});
  }

  // All of its names begin with "val_", behind that of the program.
  void drop_evaluation() {
    database_->run(
        "DELETE FROM metrics WHERE run_id = ? AND step = ? AND EXISTS (SELECT 1 FROM json_each(metrics.metrics) AS one "
        "WHERE one.key GLOB 'val_*' OR one.key GLOB '*/val_*')",
        {id_, resumed_after_});
  }

  void write_config(const std::string& text, const std::string& run_dir) {
    Json config = Json::parse(text);
    const std::string now = timestamp();
    config["_Username"] = nullptr;
    config["_Group"] = nullptr;
    config["_Created"] = now;
    config["_Run_dir"] = run_dir;
    database_->run("INSERT OR REPLACE INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, ?)",
                   {id_, name_, json_text(config), now});
  }

  std::string id_, name_;
  int64_t resumed_after_ = 0;
  bool is_first_ = true;           // the next row
  std::function<void()> open_;     // nothing is written yet
  std::function<void()> resumed_;  // told with the first row: the run may fail before, and then no row is lost
  std::optional<Database> database_;
  std::optional<ddh::WriteQueue> queue_;  // after the database: its thread ends first
};

constexpr ddh::Option kOptions[] = {
    {"path", "string", R"("")", R"("x-path": true)",
     "file of the database, for example PROJECT.db in the folder of Trackio; empty: metrics.db in the run's folder"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(Sqlite, monitor, "sqlite", "0.1.0", "metrics.db: a database with the tables of Trackio",
               ddh::kSchemaOf<kOptions>, kNeeds, DDH_CAP_IN_PROCESS);
