// SPDX-License-Identifier: Apache-2.0
//
// cli/run_lock.hpp: the lock of a run's folder, so that no two runs write there.
#pragma once

#include <filesystem>

namespace ddhost {

// Holds metrics.jsonl of a folder. The lock is the open file's (flock), which the ranks inherit: it goes when the last
// process of the run has ended, however it ended.
class RunLock {
 public:
  enum class File { must_be_new, may_exist };
  enum class Result { locked, exists, in_use };

  RunLock() = default;
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  // Throws ddh::Error where the file can't be made.
  Result take(const std::filesystem::path& folder, File file);

 private:
  int fd_ = -1;
};

}  // namespace ddhost
