// SPDX-License-Identifier: Apache-2.0
//
// tests/support/golden_data.hpp: where the reference data lies. It is not part of the repository; a test that needs it is
// skipped with a line that says so where it is missing.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace ddhost::test {

// Full path of `relative` in $DDHOST_DATA, else in shared/data beside the checkout.
inline std::optional<std::string> find_data(const std::string& relative) {
  namespace fs = std::filesystem;
  const char* given = std::getenv("DDHOST_DATA");
  const fs::path root = given != nullptr ? fs::path(given) : fs::path(DDHOST_SOURCE_DIR) / ".." / "shared" / "data";
  std::error_code ignored;
  const fs::path path = root / relative;
  if (fs::is_regular_file(path, ignored)) return path.string();
  WARN("skipped: no reference data '" << path.string() << "'; set DDHOST_DATA to the folder that holds it");
  return std::nullopt;
}

}  // namespace ddhost::test
