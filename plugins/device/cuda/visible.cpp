// SPDX-License-Identifier: Apache-2.0
#include "visible.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>

namespace fs = std::filesystem;

namespace cuda {
namespace {

constexpr const char* kDigits = "0123456789";

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 6 && text.find_first_not_of(kDigits) == std::string::npos;
}

}  // namespace

int gpu_nodes() {
  const char* const given = std::getenv("DDHOST_GPU_NODES");
  const std::string prefix = "nvidia";
  int present = 0;
  std::error_code ec;
  for (fs::directory_iterator at(given == nullptr ? "/dev" : given, ec), end; !ec && at != end; at.increment(ec)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(prefix) && is_number(name.substr(prefix.size()))) ++present;
  }
  return present;
}

int visible_gpus(int present, const char* list) {
  if (list == nullptr) return present;
  std::set<std::string> seen;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    const bool is_name = word.starts_with("GPU-") || word.starts_with("MIG-");
    if (!is_name && (!is_number(word) || std::stoi(word) >= present)) break;
    const bool is_new = seen.insert(is_name ? word : std::to_string(std::stoi(word))).second;
    if (!is_new) return 0;
  }
  return std::min(static_cast<int>(seen.size()), present);
}

}  // namespace cuda
