// SPDX-License-Identifier: Apache-2.0
//
// report/followed_run.hpp: reads the folder of a run that is going on again and again, each time only what was added.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "report/past_run.hpp"
#include "report/run_rows.hpp"

namespace ddhost {

// A file of lines to which a run appends.
class FollowedFile {
 public:
  // The bytes that can be read now; false: the file was replaced or cut, and is read from its beginning. A file that was cut
  // and has grown again is known by the bytes before those that are read next.
  bool look(const std::filesystem::path& file, uint64_t& pending);
  // Calls `on_line` for each complete line of the next `most` bytes.
  void read(const std::filesystem::path& file, uint64_t most, const std::function<void(const std::string&)>& on_line);
  // Leaves out these bytes, and the rest of the line at their end.
  void skip(uint64_t bytes);

 private:
  [[nodiscard]] bool has_same_end(int fd) const;

  uint64_t offset_ = 0, inode_ = 0;
  std::string line_;
  std::string end_;       // the last bytes before `offset_`
  bool is_long_ = false;  // the line is too long, or began in bytes that were skipped, and is left out
};

// The folder of a run that is going on, read again and again: each time only what was added. Where more was added than can be
// read quickly, some rows of steps are left out.
class FollowedRun {
 public:
  // `stops`: asked while much is read; if it says so, the rest is left for the next time.
  explicit FollowedRun(const std::filesystem::path& folder, std::function<bool()> stops = {});
  FollowedRun(const FollowedRun&) = delete;
  FollowedRun& operator=(const FollowedRun&) = delete;

  // Reads what is new. What can't be read is missing, and a note says so.
  void update();
  // Reads all that is there, for about this time; of more rows only the last ones.
  void catch_up(std::chrono::milliseconds most);
  // Whether the file's last line is the summary. Until then run().summary is the caller's.
  [[nodiscard]] bool has_summary() const { return has_summary_; }
  // `is_alive` is the caller's.
  [[nodiscard]] PastRun& run() { return run_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {  // of a small file
    std::filesystem::file_time_type written{};
    uintmax_t bytes = 0;
    bool operator==(const Seen&) const = default;
  };
  bool has_changed(const char* file, Seen& seen) const;
  void read_rows();
  void read_row(const std::string& line);
  void read_log();

  PastRun run_;
  std::optional<RowCollector> rows_;
  std::optional<WarningCollector> warnings_;
  FollowedFile rows_file_, log_file_;
  Seen config_, history_;
  std::function<bool()> stops_;
  uint64_t unreadable_ = 0, pending_ = 0;  // `pending_`: bytes of rows that were there and are not read yet
  bool has_summary_ = false, has_skipped_ = false;
  Clock::time_point measured_{};
};

}  // namespace ddhost
