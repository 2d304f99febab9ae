// SPDX-License-Identifier: Apache-2.0
//
// report/followed_run.cpp: reads what was added to the folder of a run.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/text.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/run_history.hpp"
#include "engine/record/step_count.hpp"
#include "report/run_rows.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr size_t kMostLine = size_t{1} << 20;
constexpr uint64_t kMostRead = uint64_t{16} << 20, kReadInFull = uint64_t{128} << 10;
constexpr std::chrono::seconds kBetweenMeasures{10};

}  // namespace

bool FollowedFile::look(const fs::path& file, uint64_t& pending) {
  struct stat info {};
  pending = 0;
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return true;
  const auto bytes = static_cast<uint64_t>(info.st_size);
  const bool is_same = offset_ == 0 || (inode_ == info.st_ino && bytes >= offset_);
  if (!is_same) *this = FollowedFile();
  inode_ = info.st_ino;
  pending = bytes - offset_;
  return is_same;
}

void FollowedFile::read(const fs::path& file, uint64_t most, const std::function<void(const std::string&)>& on_line) {
  ddh::InputFile in(file.string());
  std::array<char, size_t{16} << 10> part{};
  const int fd = in.release();
  const std::unique_ptr<const int, void (*)(const int*)> closes(&fd, [](const int* open) { ::close(*open); });
  while (most > 0) {
    const ssize_t n = ::pread(fd, part.data(), std::min<uint64_t>(part.size(), most), static_cast<off_t>(offset_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    offset_ += static_cast<uint64_t>(n);
    most -= static_cast<uint64_t>(n);
    for (std::string_view left(part.data(), static_cast<size_t>(n)); !left.empty();) {
      const size_t end = left.find('\n'), length = std::min(end, left.size());
      is_long_ = is_long_ || line_.size() + length > kMostLine;
      if (!is_long_) line_.append(left.substr(0, length));
      left.remove_prefix(end == std::string_view::npos ? left.size() : length + 1);
      if (end == std::string_view::npos) continue;
      if (!is_long_) on_line(line_);
      line_.clear();
      is_long_ = false;
    }
  }
}

FollowedRun::FollowedRun(const fs::path& folder) {
  run_.folder = folder;
  run_.name = run_name(folder);
  run_.is_alive = true;
}

bool FollowedRun::has_changed(const char* file, Seen& seen) const {
  std::error_code ec;
  const fs::path path = run_.folder / file;
  const Seen now{fs::last_write_time(path, ec), ec ? 0 : fs::file_size(path, ec)};
  if (ec || now == seen) return false;
  seen = now;
  return true;
}

void FollowedRun::update() {
  run_.notes.clear();
  if (has_changed("config.json", config_)) run_.config = read_object(run_, "config.json");
  if (has_changed(kRunHistory, history_)) {
    const Json history = read_object(run_, kRunHistory);
    if (history.contains("starts") && history["starts"].is_array()) run_.starts = history["starts"];
  }
  try {
    read_rows();
    read_log();
    if (const Clock::time_point now = Clock::now(); now - measured_ > kBetweenMeasures || !run_.is_alive) {
      measured_ = now;
      read_checkpoints(run_);
      run_.bytes = folder_bytes(run_.folder);
    }
    std::error_code ec;
    if (fs::is_regular_file(run_.folder / kRunLock, ec))  // rows may be due less often than steps
      if (const std::optional<StepNumbers> numbers = read_step_numbers(run_.folder))
        run_.last_step = std::max(run_.last_step, numbers->steps);
  } catch (const std::exception& error) {
    run_.notes.push_back(plain_text(sentence_of(error)));
  }
  run_.began = began(run_);
}

void FollowedRun::read_rows() {
  const fs::path file = ddhost::rows_file(run_.folder);
  if (file.empty()) {
    run_.notes.emplace_back("there is no file of rows yet, or the run's monitors write none, so there are no curves");
    return;
  }
  uint64_t pending = 0;
  if (!rows_file_.look(file, pending) || !rows_) {
    run_.curves.clear();
    run_.best.reset();
    run_.last_step = 0;
    rows_.emplace(run_);
  }
  const uint64_t stride = 1 + std::min(pending, kMostRead) / kReadInFull;
  uint64_t count = 0;
  std::string held;  // the newest row of a step that was left out
  rows_file_.read(file, kMostRead, [&](const std::string& line) {
    if (stride > 1 && count++ % stride != 0 && !is_evaluation(line)) {
      held = line;
      return;
    }
    if (!is_evaluation(line)) held.clear();
    read_row(line);
  });
  if (!held.empty()) read_row(held);
  const auto of_summary = [&](const char* key) {
    const Json value = run_.summary.is_object() ? run_.summary.value(key, Json()) : Json();
    return value.is_number() ? value.get<double>() : 0.0;
  };
  rows_->finish(of_summary("mean_step_ms"), of_summary("steps"));
  if (unreadable_ > 0) run_.notes.push_back(ddh::str(counted(unreadable_, "line"), " of the rows can't be read"));
}

void FollowedRun::read_row(const std::string& line) {
  Json summary(Json::value_t::discarded);
  if (const std::optional<MetricsRow> row = row_of_line(line, summary))
    rows_->row(*row);
  else if (summary.is_discarded())
    ++unreadable_;
  else
    run_.summary = std::move(summary);
}

void FollowedRun::read_log() {
  const fs::path file = run_.folder / "log.txt";
  std::error_code ec;
  if (!fs::is_regular_file(file, ec)) return;
  uint64_t pending = 0;
  if (!log_file_.look(file, pending) || !warnings_) {
    run_.log.clear();
    warnings_.emplace(run_);
  }
  if (pending > 0) log_file_.read(file, kMostRead, [&](const std::string& line) { warnings_->line(line); });
}

}  // namespace ddhost
