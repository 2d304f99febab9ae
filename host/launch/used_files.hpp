// SPDX-License-Identifier: Apache-2.0
//
// launch/used_files.hpp: notices that a library was overwritten in place while the run used it. Its code then changes in
// the memory of running ranks, and any call may crash.
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

namespace ddhost {

class UsedFiles {
 public:
  explicit UsedFiles(const std::vector<std::string>& paths);
  // The first file whose content is another than at the start; "" if there is none. A file that was replaced by renaming
  // does no harm.
  [[nodiscard]] std::string overwritten() const;

 private:
  struct Used {
    std::string path;
    struct stat at_start;
  };
  std::vector<Used> files_;
};

}  // namespace ddhost
