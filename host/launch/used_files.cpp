// SPDX-License-Identifier: Apache-2.0
#include "launch/used_files.hpp"

namespace ddhost {

UsedFiles::UsedFiles(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) files_.push_back({path, info});
  }
}

std::string UsedFiles::overwritten() const {
  for (const Used& file : files_) {
    struct stat now {};
    if (::stat(file.path.c_str(), &now) != 0) continue;
    const bool is_same_file = now.st_dev == file.at_start.st_dev && now.st_ino == file.at_start.st_ino;
    const bool has_changed = now.st_size != file.at_start.st_size ||
                             now.st_mtim.tv_sec != file.at_start.st_mtim.tv_sec ||
                             now.st_mtim.tv_nsec != file.at_start.st_mtim.tv_nsec;
    if (is_same_file && has_changed) return file.path;
  }
  return "";
}

}  // namespace ddhost
