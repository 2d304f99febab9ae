// SPDX-License-Identifier: Apache-2.0
//
// report/past_run.hpp: what the folder of a run tells. The run may still be going on, be of an older version, or have been
// cut at any byte: what can't be read is missing, and a note says so.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "draw/curve.hpp"
#include "report/metrics_file.hpp"

namespace ddhost {

struct SavedCheckpoint {
  int64_t step = 0;
  uint64_t bytes = 0;
  bool is_best = false, is_whole = false;
};

struct BestOfRun {
  std::string name;
  int64_t step = 0;
  double value = 0;
};

struct PastRun {
  std::filesystem::path folder;
  std::string name;                          // of the folder
  Json config = Json::object();              // config.json
  Json starts = Json::array();               // run.json: its entries (engine/record/run_history.hpp)
  Json summary;                              // of metrics.jsonl; null: none
  std::vector<Curve> curves;                 // "loss", "val_loss", "train: loss"; in the order of the rows
  std::vector<std::string> log;              // warnings and errors of log.txt
  std::vector<std::string> notes;            // sentences: what could not be read
  std::vector<SavedCheckpoint> checkpoints;  // the oldest first
  bool is_alive = false;                     // a process holds the lock of the folder
  int64_t last_step = 0;
  uint64_t bytes = 0;          // of all files
  std::string began;           // "2026-11-26 13:01:50" UTC
  double items_per_s = 0;      // of all ranks, over the steps without the first; 0: not known
  std::string items;           // what is counted: "tokens"
  std::optional<double> loss;  // of the last step; NaN if it was not finite
  std::optional<BestOfRun> best;

  // "running", "done", "failed", "stopped" (by a signal), "unfinished" (it noted no end).
  [[nodiscard]] std::string state() const;
  // A value of the configuration; null: there is none. As text: "".
  [[nodiscard]] Json value(const std::string& key) const;
  [[nodiscard]] std::string option(const std::string& key) const;
  // A plugin of the configuration as people say it: of a path or "path.so:id" the file's name or the id. "": none.
  [[nodiscard]] std::string plugin(const std::string& key) const;
  // The last entry of `starts`, or an empty object.
  [[nodiscard]] Json start() const;
  [[nodiscard]] int64_t ranks() const;
  [[nodiscard]] const Curve* curve(std::string_view curve_name) const;
};

// The name of its folder.
std::string run_name(const std::filesystem::path& folder);
// Whether a folder looks like that of a run.
bool is_run_folder(const std::filesystem::path& folder);
// Whether its run has begun to train, now or before.
bool has_steps(const std::filesystem::path& folder);
// Whether a run holds the lock of its folder. Creates nothing.
bool is_alive(const std::filesystem::path& folder);
// Throws ddh::Error if it is no run. With Rows::few, curves have the last values only, and the log is not read.
PastRun read_past_run(const std::filesystem::path& folder, Rows rows);

// Parts of it. The object in a file of the folder, or an empty one with a note.
Json read_object(PastRun& run, const char* file);
// Reads the checkpoints and the bytes of the folder; false: it ended before, because `stops` said so.
bool measure_folder(PastRun& run, const std::function<bool()>& stops = {});
// The first start, or the time of the file that a run writes first, as text.
std::string began(const PastRun& run);

}  // namespace ddhost
