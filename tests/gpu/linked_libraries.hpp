// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/linked_libraries.hpp: the libraries that a plugin of this build links.
#pragma once

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <vector>

namespace ddhost::test {

// A line of readelf for each. `plugin`: "cuda.so".
inline std::vector<std::string> linked_libraries(const std::string& plugin) {
  const std::string command = "readelf -d " + std::string(DDHOST_BUILD_DIR) + "/plugins/" + plugin + " | grep NEEDED";
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::vector<std::string> lines;
  std::array<char, 256> line{};
  while (fgets(line.data(), line.size(), pipe) != nullptr) lines.emplace_back(line.data());
  pclose(pipe);
  return lines;
}

}  // namespace ddhost::test
