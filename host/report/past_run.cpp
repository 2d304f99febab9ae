// SPDX-License-Identifier: Apache-2.0
#include "report/past_run.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>

#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/run_history.hpp"
#include "engine/record/step_count.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr size_t kMostText = size_t{4} << 20;
constexpr size_t kMostCurves = 256;

// What fails leaves its part of the run empty, and a note.
void try_to(PastRun& run, const char* what, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    run.notes.push_back(ddh::str(what, ": ", plain_text(sentence_of(error))));
  }
}

// An object, or an empty one with a note.
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

std::string utc(fs::file_time_type time) {
  const auto since = std::chrono::file_clock::to_sys(time).time_since_epoch();
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(since).count();
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

// The first start, or the time of the file that a run writes first.
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

uint64_t bytes_of(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code ec;
  for (fs::recursive_directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
    std::error_code one;
    if (at->is_regular_file(one) && !at->is_symlink(one))
      if (const uint64_t size = at->file_size(one); !one) bytes += size;
  }
  return bytes;
}

void read_checkpoints(PastRun& run) {
  const std::optional<int64_t> best = best_step(run.folder);
  std::vector<CheckpointPlace> places = list_checkpoints(run.folder);
  for (auto at = places.rbegin(); at != places.rend(); ++at) {
    std::error_code ec;
    run.checkpoints.push_back(
        {at->step, bytes_of(at->folder), at->step == best, fs::exists(at->folder / "COMPLETE", ec)});
  }
}

// Lines of log.txt that are warnings or errors; of very many the first and the last.
void read_log(PastRun& run) {
  constexpr size_t kFirst = 10, kLast = 40;
  const fs::path path = run.folder / "log.txt";
  std::error_code ec;
  if (!fs::exists(path, ec)) return;
  const std::string text = ddh::InputFile(path.string()).read(size_t{256} << 20);
  size_t left_out = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin), head = line.substr(0, 60);
    begin = end + 1;
    if (head.find(" warning: ") == std::string_view::npos && head.find(" error: ") == std::string_view::npos &&
        head.find(" critical: ") == std::string_view::npos)
      continue;
    run.log.push_back(plain_text(line, 600));
    if (run.log.size() <= kFirst + kLast) continue;
    run.log.erase(run.log.begin() + kFirst);
    ++left_out;
  }
  if (left_out > 0) run.log.insert(run.log.begin() + kFirst, ddh::str("... ", left_out, " more ..."));
}

// Collects the rows of a run.
class Collector {
 public:
  Collector(PastRun& run, std::string best_name, bool lower_is_better)
      : run_(run), best_name_(std::move(best_name)), lower_(lower_is_better) {}

  bool row(const MetricsRow& row) {
    run_.last_step = std::max(run_.last_step, row.step);
    const std::string prefix = row.program.empty() ? "" : row.program + ": ";
    for (const auto& [name, value] : row.values) {
      if (name == "skipped" || name == "loss_scale") continue;
      add(prefix + name, row.step, value);
      if (name.ends_with("_per_s")) items_ = name.substr(0, name.size() - 6);
      const bool is_best = name == best_name_ && std::isfinite(value) &&
                           (!run_.best || (lower_ ? value < run_.best->value : value > run_.best->value));
      if (is_best) run_.best = {prefix + name, row.step, value};
    }
    if (!row.is_evaluation()) {
      if (const double* loss = row.find("loss"); loss != nullptr) run_.loss = *loss;
      add_rate(row);
    }
    return true;
  }

  // `mean_ms`: of `steps` steps, from the summary; 0: not known.
  void finish(double mean_ms, double steps) {
    run_.items = items_;
    const bool knows_all = mean_ms > 0 && steps > 1 && first_step_ == 1 && !has_programs_;
    const double without_first = (mean_ms * steps - first_ms_) / (steps - 1);
    if (knows_all && without_first > 0)
      run_.items_per_s = last_items_ / without_first * 1e3;
    else if (ms_ > 0)
      run_.items_per_s = done_ / ms_ * 1e3;
    else if (last_ms_ > 0)
      run_.items_per_s = last_items_ / last_ms_ * 1e3;
  }

 private:
  void add(const std::string& name, int64_t step, double value) {
    const auto [at, is_new] = places_.try_emplace(name, run_.curves.size());
    if (is_new && run_.curves.size() == kMostCurves) {
      places_.erase(at);
      return;
    }
    if (is_new) run_.curves.emplace_back(name);
    run_.curves[at->second].add(step, value);
  }
  // The first row holds the warm-up.
  void add_rate(const MetricsRow& row) {
    const double *ms = row.find("step_ms"), *rate = items_.empty() ? nullptr : row.find(items_ + "_per_s");
    if (ms == nullptr || rate == nullptr || !std::isfinite(*ms) || !std::isfinite(*rate)) return;
    last_ms_ = *ms;
    last_items_ = *ms * *rate / 1e3;
    has_programs_ = has_programs_ || !row.program.empty();
    if (first_step_ < 0) {
      first_step_ = row.step;
      first_ms_ = *ms;
      return;
    }
    ms_ += *ms;
    done_ += last_items_;
  }

  PastRun& run_;
  std::string best_name_, items_;
  bool lower_;
  std::map<std::string, size_t> places_;
  int64_t first_step_ = -1;
  bool has_programs_ = false;
  double first_ms_ = 0, ms_ = 0, done_ = 0, last_ms_ = 0, last_items_ = 0;
};

void read_rows(PastRun& run, Rows rows) {
  const std::string given = run.option("checkpoint.best.metric");
  Collector collector(run, given.empty() ? "val_loss" : given, run.option("checkpoint.best.mode") != "max");
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

bool is_run_folder(const fs::path& folder) {
  constexpr std::array<const char*, 2> kMarks = {kRunLock, kRunHistory};
  std::error_code ec;
  const auto has = [&](const char* file) { return fs::is_regular_file(folder / file, ec); };
  return fs::is_directory(folder, ec) && (std::any_of(kMarks.begin(), kMarks.end(), has) || !rows_file(folder).empty());
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
  run.name = fs::absolute(folder).lexically_normal().filename().string();
  if (run.name.empty()) run.name = fs::absolute(folder).lexically_normal().parent_path().filename().string();
  run.is_alive = is_alive(folder);
  run.config = read_object(run, "config.json");
  if (Json history = read_object(run, kRunHistory); history.contains("starts") && history["starts"].is_array())
    run.starts = std::move(history["starts"]);
  try_to(run, "rows", [&] { read_rows(run, rows); });
  if (rows == Rows::all) try_to(run, "log.txt", [&] { read_log(run); });
  try_to(run, "checkpoints", [&] { read_checkpoints(run); });
  run.bytes = bytes_of(folder);
  run.began = began(run);
  std::error_code ec;
  if (fs::is_regular_file(folder / kRunLock, ec))  // rows may be due less often than steps
    if (const std::optional<StepNumbers> numbers = read_step_numbers(folder))
      run.last_step = std::max(run.last_step, numbers->steps);
  return run;
}

}  // namespace ddhost
