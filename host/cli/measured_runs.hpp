// SPDX-License-Identifier: Apache-2.0
//
// cli/measured_runs.hpp: trainings that are measured side by side, for `ddhost compare` and `ddhost tune`. Each run is a child
// process, `ddhost train` with a folder of its own below --out. A run that is complete there is not repeated, so the same
// command goes on where it was interrupted.
#pragma once

#include <signal.h>

#include <chrono>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "cli/words/command_line.hpp"
#include "report/comparison.hpp"

namespace ddhost {

// While it lives, a signal that ends the program only ends the run that is going on.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();
  // The last signal; 0: none came.
  [[nodiscard]] static int seen();

 private:
  std::map<int, struct sigaction> before_;  // of the signals that were not ignored: nohup stays in effect
};

struct ChildEnd {
  int code = 0;
  std::string sentence;  // why it failed: the last that it printed
  double seconds = 0;
};

// Error: `out` is a folder of others, so nothing is written there.
void require_own_folder(const std::filesystem::path& out);

// Starts this program with other words, and waits for its end. Its output goes to `output`, its errors to `errors`, which may
// be the same file.
ChildEnd run_child(const std::vector<std::string>& words, const std::filesystem::path& output,
                   const std::filesystem::path& errors);

class MeasuredRuns {
 public:
  // `line`: its flags and options are those of each run. Error: it has an option that several runs can't share.
  MeasuredRuns(const CommandLine& line, const std::vector<ComparedCase>& cases);

  // Runs the rounds, and tells each on stderr. Returns 0, or the exit code after a signal. Needs StopSignals.
  int measure();
  [[nodiscard]] const std::vector<Measured>& cases() const { return cases_; }
  // Writes compare.md, compare.csv and compare.html into --out.
  void write_files() const;
  // The same, and the tables, or JSON, to `out`.
  void write_tables(std::ostream& out) const;

 private:
  [[nodiscard]] double elapsed() const;
  [[nodiscard]] std::filesystem::path folder_of(size_t at, int64_t round) const;
  void require_settings();
  void settle_steps();
  void choose_steps();
  struct RoundTime {
    double step_s = 0, start_s = 0;  // for each step; for all else
  };
  [[nodiscard]] std::optional<RoundTime> probe(size_t at) const;
  static int64_t warm_up(int64_t steps);
  [[nodiscard]] std::vector<std::string> words_of(const ComparedCase& of, int64_t steps,
                                                  const std::filesystem::path& folder) const;
  void run_round(int64_t round);
  bool run_one(size_t at, int64_t round);

  const CommandLine& line_;
  const CompareArgs& args_;
  std::vector<Measured> cases_;
  Json settings_;
  std::string steps_given_;
  Json chosen_steps_ = Json::object();  // of each model
  std::vector<int64_t> steps_;          // of each case
  double round_s_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The default folder holds one comparison. One of other settings gets the next that is free: "runs/compare-2".
void choose_folder(CommandLine& line, const std::vector<ComparedCase>& cases);
// Error: a name is none of `names`. `kind`: "strategy". A path is not looked at.
void require_known(const std::string& kind, const std::vector<std::string>& wanted,
                   const std::vector<std::string>& names);

// The words that name the configuration file of `line`, one of ours or of another program. Error: there are two.
std::vector<std::string> words_of_files(const CommandLine& line);
// The words of a training that has the options of `line`, but for --model.
std::vector<std::string> words_of_options(const CommandLine& line);

}  // namespace ddhost
