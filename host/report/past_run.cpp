// SPDX-License-Identifier: Apache-2.0
#include "report/past_run.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <functional>

#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/run_history.hpp"
#include "engine/record/step_count.hpp"
#include "report/run_rows.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr size_t kMostText = size_t{4} << 20;

// What fails leaves its part of the run empty, and a note.
void try_to(PastRun& run, const char* what, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    run.notes.push_back(ddh::str(what, ": ", plain_text(sentence_of(error))));
  }
}

}  // namespace

Json read_object(PastRun& run, const char* file) {
  const fs::path path = run.folder / file;
  std::error_code ec;
  if (!fs::exists(path, ec)) return Json::object();
  try {
    Json json = read_json(ddh::InputFile(path.string()).read(kMostText));
    if (json.is_object()) return json;
    run.notes.push_back(ddh::str(file, " is no JSON object"));
  } catch (const JsonError& error) {
    run.notes.push_back(ddh::str(file, " is ", error.what()));
  } catch (const std::exception& error) {
    run.notes.push_back(ddh::str(file, ": ", plain_text(sentence_of(error))));
  }
  return Json::object();
}

namespace {

std::string utc(fs::file_time_type time) {
  const auto since = std::chrono::file_clock::to_sys(time).time_since_epoch();
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(since).count();
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

}  // namespace

std::string began(const PastRun& run) {
  if (!run.starts.empty() && run.starts.front().is_object()) {
    const Json& given = run.starts.front().value("began", Json());
    if (given.is_string() && given.get_ref<const std::string&>().size() == 20) {
      std::string text = given.get<std::string>();
      text[10] = ' ';
      text.pop_back();
      return text;
    }
  }
  std::error_code ec;
  for (const fs::path& file :
       {run.folder / "config.json", rows_file(run.folder), run.folder / "log.txt", run.folder / kRunLock})
    if (const fs::file_time_type time = fs::last_write_time(file, ec); !ec) return utc(time);
  return "?";
}

namespace {

// The bytes of all files. Nothing: `stops` said so.
std::optional<uint64_t> folder_bytes(const fs::path& folder, const std::function<bool()>& stops) {
  uint64_t bytes = 0;
  std::error_code ec;
  for (fs::recursive_directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
    if (stops && stops()) return std::nullopt;
    std::error_code one;
    if (at->is_regular_file(one) && !at->is_symlink(one))
      if (const uint64_t size = at->file_size(one); !one) bytes += size;
  }
  return bytes;
}

}  // namespace

bool measure_folder(PastRun& run, const std::function<bool()>& stops) {
  const std::optional<uint64_t> all = folder_bytes(run.folder, stops);
  if (!all) return false;
  run.bytes = *all;
  std::vector<SavedCheckpoint> checkpoints;
  const std::optional<int64_t> best = best_step(run.folder);
  std::vector<CheckpointPlace> places = list_checkpoints(run.folder);
  for (auto at = places.rbegin(); at != places.rend(); ++at) {
    std::error_code ec;
    const std::optional<uint64_t> bytes = folder_bytes(at->folder, stops);
    if (!bytes) return false;
    checkpoints.push_back({at->step, *bytes, at->step == best, fs::exists(at->folder / "COMPLETE", ec)});
  }
  run.checkpoints = std::move(checkpoints);
  return true;
}

namespace {

void read_log(PastRun& run) {
  const fs::path path = run.folder / "log.txt";
  std::error_code ec;
  if (!fs::exists(path, ec)) return;
  const std::string text = ddh::InputFile(path.string()).read(size_t{256} << 20);
  WarningCollector collector(run);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    collector.line(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
}

void read_rows(PastRun& run, Rows rows) {
  RowCollector collector(run);
  const fs::path file = rows_file(run.folder);
  const std::string name = file.filename().string();
  const MetricsEnd end = read_metrics(file, rows, [&](const MetricsRow& row) { return collector.row(row); });
  run.summary = end.summary;
  const auto of_summary = [&](const char* key) {
    const Json value = run.summary.is_object() ? run.summary.value(key, Json()) : Json();
    return value.is_number() ? value.get<double>() : 0.0;
  };
  collector.finish(of_summary("mean_step_ms"), of_summary("steps"));
  if (!end.is_there)
    run.notes.emplace_back("there is no file of rows: the run has written none, or its monitors did not");
  if (end.is_cut) run.notes.push_back(name + " ends within a row, which is left out");
  if (end.unreadable > 0)
    run.notes.push_back(ddh::str(counted(end.unreadable, "line"), " of ", name, " can't be read"));
}

}  // namespace

std::string PastRun::state() const {
  if (is_alive) return "running";
  const Json last = start();
  const Json code = last.value("exit_code", Json());
  constexpr int kSignals = 128;
  if (code.is_number_integer()) return code == 0 ? "done" : code.get<int64_t>() > kSignals ? "stopped" : "failed";
  return last.empty() && summary.is_object() ? "done" : "unfinished";
}

Json PastRun::value(const std::string& key) const {
  const Json* at = &config;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t dot = std::min(key.find('.', begin), key.size());
    const auto found = at->is_object() ? at->find(key.substr(begin, dot - begin)) : at->end();
    if (!at->is_object() || found == at->end()) return {};
    at = &*found;
    begin = dot + 1;
  }
  return *at;
}

std::string PastRun::option(const std::string& key) const {
  const Json found = value(key);
  if (found.is_string()) return found.get<std::string>();
  return found.is_null() ? "" : shown(found);
}

std::string PastRun::plugin(const std::string& key) const {
  std::string given = option(key);
  const std::string file = fs::path(given).filename().string();
  const size_t suffix = file.find(".so");
  if (suffix == std::string::npos) return given;
  return file.substr(suffix).starts_with(".so:") ? file.substr(suffix + 4) : file.substr(0, suffix);
}

Json PastRun::start() const { return starts.empty() || !starts.back().is_object() ? Json::object() : starts.back(); }

int64_t PastRun::ranks() const {
  if (summary.is_object() && summary.value("world_size", Json()).is_number_integer())
    return summary["world_size"].get<int64_t>();
  const Json nproc = value("run.nproc");
  return nproc.is_number_integer() ? nproc.get<int64_t>() : 0;
}

const Curve* PastRun::curve(std::string_view curve_name) const {
  for (const Curve& one : curves)
    if (one.name() == curve_name) return &one;
  return nullptr;
}

std::string run_name(const fs::path& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.filename().empty() ? path.parent_path() : path).filename().string();
}

bool is_run_folder(const fs::path& folder) {
  constexpr std::array<const char*, 2> kMarks = {kRunLock, kRunHistory};
  std::error_code ec;
  const auto has = [&](const char* file) { return fs::is_regular_file(folder / file, ec); };
  return fs::is_directory(folder, ec) && (std::any_of(kMarks.begin(), kMarks.end(), has) || !rows_file(folder).empty());
}

bool has_steps(const fs::path& folder) {
  std::error_code ec;
  return !rows_file(folder).empty() || (fs::is_regular_file(folder / kRunLock, ec) && read_step_numbers(folder));
}

bool is_alive(const fs::path& folder) {
  const int fd = ::open((folder / kRunLock).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool is_held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return is_held;
}

PastRun read_past_run(const fs::path& folder, Rows rows) {
  if (!is_run_folder(folder))
    ddh::fail(DDH_NOT_FOUND, "'", folder.string(), "' is not the folder of a run: it holds neither ", kRunLock,
              " nor rows; `ddhost runs ls` lists runs");
  PastRun run;
  run.folder = folder;
  run.name = run_name(folder);
  run.is_alive = is_alive(folder);
  run.config = read_object(run, "config.json");
  if (Json history = read_object(run, kRunHistory); history.contains("starts") && history["starts"].is_array())
    run.starts = std::move(history["starts"]);
  try_to(run, "rows", [&] { read_rows(run, rows); });
  if (rows == Rows::all) try_to(run, "log.txt", [&] { read_log(run); });
  try_to(run, "checkpoints", [&] { measure_folder(run); });
  run.began = began(run);
  std::error_code ec;
  if (fs::is_regular_file(folder / kRunLock, ec))  // rows may be due less often than steps
    if (const std::optional<StepNumbers> numbers = read_step_numbers(folder))
      run.last_step = std::max(run.last_step, numbers->steps);
  return run;
}

}  // namespace ddhost
