// SPDX-License-Identifier: Apache-2.0
//
// engine/record/step_count.hpp: how many steps a run has done, whatever its monitors record. run.lock in its folder
// holds the numbers, as one JSON object:
//
//   {"begun": 0, "steps": 6, "saved": 4, "first_run": 0}
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ddhost {

inline constexpr const char* kRunLock = "run.lock";

struct StepNumbers {
  int64_t begun = 0;  // the step after which the run began: 0, or that of a checkpoint
  int64_t steps = 0;  // the last step that is done
  int64_t saved = 0;  // the step of the newest checkpoint that the run has saved in its folder; 0: none
  // The id of the run that began here, or went on here from the disk. Those that go on from the memory of several hosts keep
  // it, and their checkpoints there name it. 0: there are none.
  uint64_t first_run = 0;
  bool operator==(const StepNumbers&) const = default;
};

// Nothing if the folder's run has not begun to train, or is of a version that did not count.
std::optional<StepNumbers> read_step_numbers(const std::filesystem::path& run_dir);

// Writes the numbers of a run. Each function throws ddh::Error, naming the file, if it can't be written.
class StepCount {
 public:
  // The file exists: it is the lock of the folder. A run that goes on in the folder keeps the step of its checkpoint. `start`:
  // after its last step; `saved` is that of the file.
  StepCount(const std::filesystem::path& run_dir, const StepNumbers& start);
  StepCount(const StepCount&) = delete;
  StepCount& operator=(const StepCount&) = delete;
  ~StepCount();

  void done(int64_t step);
  // Does nothing if `step` is known already.
  void saved(int64_t step);
  // Whether the file is still there. Without it, another run can take the folder.
  [[nodiscard]] bool has_file() const;

 private:
  void write();
  const std::filesystem::path path_;
  StepNumbers numbers_;
  int fd_ = -1;
};

}  // namespace ddhost
