// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/files/find_data.hpp"

#include <cstdlib>
#include <filesystem>

namespace ddh {
inline namespace v1 DDH_HIDDEN {

namespace fs = std::filesystem;

namespace {

bool is_there(const fs::path& place, DataKind kind) {
  std::error_code ignored;
  return kind == DataKind::kFolder ? fs::is_directory(place, ignored) : fs::is_regular_file(place, ignored);
}

// `dataset` in $DDHOST_DATA, or an empty path if that is not set.
fs::path given_data(const std::string& dataset, DataKind kind) {
  const char* const given = std::getenv("DDHOST_DATA");
  if (given == nullptr || *given == '\0') return {};
  fs::path place = fs::path(given) / dataset;
  if (!is_there(place, kind))
    fail(DDH_NOT_FOUND, "DDHOST_DATA=", given, " holds no ", kind == DataKind::kFolder ? "folder " : "", dataset,
         "; correct or unset it, or give data.path=", kind == DataKind::kFolder ? "FOLDER" : "FILE");
  return place;
}

}  // namespace

std::string find_data(const Host& host, const std::string& dataset, DataKind kind,
                      const std::vector<std::string>& more) {
  fs::path found = given_data(dataset, kind);
  if (found.empty()) {
    std::error_code ignored;
    const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    for (const std::string& relative : more) {
      const fs::path place = (program / relative).lexically_normal();
      if (found.empty() && is_there(place, kind)) found = place;
    }
  }
  if (!found.empty()) host.log(DDH_LOG_INFO, "no data.path given: training on ", found.string());
  return found.string();
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
