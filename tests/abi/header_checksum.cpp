// SPDX-License-Identifier: Apache-2.0
//
// abi/header_checksum.cpp: the checksum of the ABI's headers, FNV-1a 64 over their bytes in order of path, without
// checksum.h itself.
//   header_checksum <include folder>           fails when ddh/checksum.h holds another value
//   header_checksum <include folder> --write   rewrites ddh/checksum.h (what ./dev checksum calls)
#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string checksum_of(const fs::path& include) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(include)) {
    const std::string name = entry.path().lexically_relative(include).generic_string();
    if (entry.is_regular_file() && name != "ddh/checksum.h") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  uint64_t hash = UINT64_C(14695981039346656037);
  for (const std::string& name : names) {
    for (const char byte : read(include / name))
      hash = (hash ^ static_cast<unsigned char>(byte)) * UINT64_C(1099511628211);
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

// Replaces what stands between `before` and the next `end`; the rest of the file stays as it is.
void replace_between(std::string& text, const std::string& before, char end, const std::string& value) {
  const size_t begin = text.find(before) + before.size();
  text.replace(begin, text.find(end, begin) - begin, value);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: header_checksum <include folder> [--write]\n");
    return 2;
  }
  const fs::path include = argv[1];
  const fs::path header = include / "ddh/checksum.h";
  const std::string sum = checksum_of(include);
  const std::string before = read(header);
  std::string after = before;
  replace_between(after, "DDH_HEADER_CHECKSUM UINT64_C(0x", ')', sum);
  replace_between(after, "DDH_HEADER_CHECKSUM_TEXT \"", '"', sum);
  if (after == before) {
    std::printf("%s holds %s\n", header.c_str(), sum.c_str());
    return 0;
  }
  if (argc > 2 && std::string(argv[2]) == "--write") {
    std::ofstream(header, std::ios::binary) << after;
    std::printf("%s now holds %s\n", header.c_str(), sum.c_str());
    return 0;
  }
  std::fprintf(stderr, "the headers of plugin_api changed (they sum to %s); run ./dev checksum\n", sum.c_str());
  return 1;
}
