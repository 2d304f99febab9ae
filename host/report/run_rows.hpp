// SPDX-License-Identifier: Apache-2.0
//
// report/run_rows.hpp: collects the rows of a run as curves, last and best values, and the lines of its log that are warnings;
// at once, or while the run goes on (followed_run.cpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "report/past_run.hpp"

namespace ddhost {

class RowCollector {
 public:
  // Its configuration says which evaluation is the best. `run` outlives the object.
  explicit RowCollector(PastRun& run);
  bool row(const MetricsRow& row);
  // Sets the throughput. `mean_ms`: of `steps` steps, from the summary; 0: not known.
  void finish(double mean_ms, double steps);

 private:
  void add(const std::string& name, int64_t step, double value);
  void add_rate(const MetricsRow& row);

  PastRun& run_;
  std::string best_name_, items_;
  bool lower_;
  std::map<std::string, size_t> places_;
  int64_t first_step_ = -1;
  bool has_programs_ = false;
  double first_ms_ = 0, ms_ = 0, done_ = 0, last_ms_ = 0, last_items_ = 0;
};

// Of very many warnings the first and the last. `run` outlives the object.
class WarningCollector {
 public:
  explicit WarningCollector(PastRun& run) : run_(run) {}
  // A line of log.txt.
  void line(std::string_view text);

 private:
  PastRun& run_;
  size_t left_out_ = 0;
};

// A file of lines to which a run appends.
class FollowedFile {
 public:
  // The bytes that can be read now; false: the file was replaced or cut, and is read from its beginning.
  bool look(const std::filesystem::path& file, uint64_t& pending);
  // Calls `on_line` for each complete line of the next `most` bytes.
  void read(const std::filesystem::path& file, uint64_t most, const std::function<void(const std::string&)>& on_line);

 private:
  uint64_t offset_ = 0, inode_ = 0;
  std::string line_;
  bool is_long_ = false;  // the line is too long, and left out
};

// The folder of a run that is going on, read again and again: each time only what was added. Where more was added than can be
// read quickly, some rows of steps are left out.
class FollowedRun {
 public:
  explicit FollowedRun(const std::filesystem::path& folder);
  FollowedRun(const FollowedRun&) = delete;
  FollowedRun& operator=(const FollowedRun&) = delete;

  // Reads what is new. What can't be read is missing, and a note says so.
  void update();
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
  uint64_t unreadable_ = 0;
  Clock::time_point measured_{};
};

}  // namespace ddhost
