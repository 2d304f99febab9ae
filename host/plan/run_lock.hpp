// SPDX-License-Identifier: Apache-2.0
//
// plan/run_lock.hpp: the lock of a run's folder, so that no two runs write there.
#pragma once

#include <filesystem>

namespace ddhost {

// Holds run.lock of a folder, a file that stays there and marks the folder. The lock belongs to the open file (flock),
// which the ranks inherit. It is released when the last process of the run has ended, also after a crash.
class RunLock {
 public:
  enum class File { must_be_new, may_exist };
  enum class Result { locked, exists, in_use };

  RunLock() = default;
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  // Throws ddh::Error if the file can't be created.
  Result take(const std::filesystem::path& folder, File file);

 private:
  int fd_ = -1;
};

}  // namespace ddhost
