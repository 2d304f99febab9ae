// SPDX-License-Identifier: Apache-2.0
#include "report/followed_run.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/run_history.hpp"
#include "engine/record/step_count.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr size_t kMostFollowedLine = size_t{1} << 20;
constexpr uint64_t kMostRead = uint64_t{16} << 20, kReadInFull = uint64_t{128} << 10;
constexpr size_t kKeptEnd = 512;
constexpr std::string_view kSummary = "{\"summary\":";  // the line that ends the rows
constexpr std::chrono::seconds kBetweenMeasures{10};

// A FIFO of that name does not make the reader wait.
struct OpenFile {
  explicit OpenFile(const fs::path& file) : fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
  const int fd;
};

}  // namespace

bool FollowedFile::look(const fs::path& file, uint64_t& pending) {
  struct stat info {};
  pending = 0;
  const OpenFile open(file);
  if (open.fd < 0 || ::fstat(open.fd, &info) != 0 || !S_ISREG(info.st_mode)) return true;
  const auto bytes = static_cast<uint64_t>(info.st_size);
  const bool is_same = offset_ == 0 || (inode_ == info.st_ino && bytes >= offset_ && has_same_end(open.fd));
  if (!is_same) *this = FollowedFile();
  inode_ = info.st_ino;
  pending = bytes - offset_;
  return is_same;
}

bool FollowedFile::has_same_end(int fd) const {
  std::array<char, kKeptEnd> now{};
  ssize_t n = 0;
  do n = ::pread(fd, now.data(), end_.size(), static_cast<off_t>(offset_ - end_.size()));
  while (n < 0 && errno == EINTR);
  return n < 0 || std::string_view(now.data(), static_cast<size_t>(n)) == end_;
}

void FollowedFile::skip(uint64_t bytes) {
  offset_ += bytes;
  line_.clear();
  end_.clear();
  is_long_ = true;
}

void FollowedFile::read(const fs::path& file, uint64_t most, const std::function<void(const std::string&)>& on_line) {
  std::array<char, size_t{16} << 10> part{};
  const OpenFile open(file);
  if (open.fd < 0)
    ddh::fail(DDH_UNAVAILABLE, "can't read '", file.string(), "': ", std::strerror(errno),
              "; check that it is there and that you may read it");
  while (most > 0) {
    const ssize_t n = ::pread(open.fd, part.data(), std::min<uint64_t>(part.size(), most), static_cast<off_t>(offset_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    offset_ += static_cast<uint64_t>(n);
    most -= static_cast<uint64_t>(n);
    end_.append(part.data(), static_cast<size_t>(n));
    end_.erase(0, end_.size() - std::min(end_.size(), kKeptEnd));
    for (std::string_view left(part.data(), static_cast<size_t>(n)); !left.empty();) {
      const size_t end = left.find('\n'), length = std::min(end, left.size());
      is_long_ = is_long_ || line_.size() + length > kMostFollowedLine;
      if (!is_long_) line_.append(left.substr(0, length));
      left.remove_prefix(end == std::string_view::npos ? left.size() : length + 1);
      if (end == std::string_view::npos) continue;
      if (!is_long_) on_line(line_);
      line_.clear();
      is_long_ = false;
    }
  }
}

FollowedRun::FollowedRun(const fs::path& folder, std::function<bool()> stops) : stops_(std::move(stops)) {
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
      if (measure_folder(run_, stops_)) measured_ = now;
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

void FollowedRun::catch_up(std::chrono::milliseconds most) {
  const Clock::time_point end = Clock::now() + most;
  update();
  try {
    while (pending_ > 0 && Clock::now() < end) read_rows();
  } catch (const std::exception&) {  // the next update() notes it
    return;
  }
  if (pending_ <= kMostRead) return;
  rows_file_.skip(pending_ - kReadInFull);
  has_skipped_ = true;
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
    run_.loss.reset();
    run_.last_step = 0;
    run_.summary = Json();
    has_summary_ = has_skipped_ = false;
    unreadable_ = 0;
    rows_.emplace(run_);
  }
  pending_ = pending - std::min(pending, kMostRead);
  const uint64_t stride = 1 + std::min(pending, kMostRead) / kReadInFull;
  uint64_t count = 0;
  std::string held;  // the newest row of a step that was left out
  rows_file_.read(file, kMostRead, [&](const std::string& line) {
    if (stride > 1 && count++ % stride != 0 && !is_evaluation(line)) {
      held = line;
      return;
    }
    if (!is_evaluation(line)) held.clear();
    if (line.starts_with(kSummary) && !held.empty()) read_row(std::exchange(held, ""));
    read_row(line);
  });
  if (!held.empty()) read_row(held);
  const auto of_summary = [&](const char* key) {
    const Json value = run_.summary.is_object() ? run_.summary.value(key, Json()) : Json();
    return value.is_number() ? value.get<double>() : 0.0;
  };
  rows_->finish(of_summary("mean_step_ms"), of_summary("steps"));
  if (has_skipped_) run_.notes.emplace_back("the file of rows is long, and a part of it is not shown");
  if (unreadable_ > 0) run_.notes.push_back(ddh::str(counted(unreadable_, "line"), " of the rows can't be read"));
}

void FollowedRun::read_row(const std::string& line) {
  Json summary(Json::value_t::discarded);
  if (const std::optional<MetricsRow> row = row_of_line(line, summary)) {
    rows_->row(*row);
    if (std::exchange(has_summary_, false)) run_.summary = Json();  // of a part of the run before
  } else if (summary.is_discarded()) {
    ++unreadable_;
  } else {
    run_.summary = std::move(summary);
    has_summary_ = true;
  }
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
