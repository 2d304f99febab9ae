// SPDX-License-Identifier: Apache-2.0
//
// abi/header_checksum.cpp: the checksum of the ABI's headers, FNV-1a 64 over their code in order of path, without
// checksum.h itself. Comments and white space do not count, because they do not change the ABI.
//   header_checksum <include folder>           fails when ddh/checksum.h holds another value
//   header_checksum <include folder> --write   rewrites ddh/checksum.h (what ./dev checksum calls)
#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
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

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The end of the comment, string or character literal that begins at `at`; `at` itself if none does.
size_t skip(const std::string& text, size_t at) {
  const auto behind = [&](const char* end, size_t from) {
    const size_t found = text.find(end, from);
    return found == std::string::npos ? text.size() : found + std::strlen(end);
  };
  if (text.compare(at, 2, "/*") == 0) return behind("*/", at + 2);
  if (text.compare(at, 2, "//") == 0) return behind("\n", at);
  if (text[at] != '"' && text[at] != '\'') return at;
  size_t end = at + 1;
  while (end < text.size() && text[end] != text[at]) end += text[end] == '\\' ? 2U : 1U;
  return std::min(end + 1, text.size());
}

// The code without comments, and with white space only between two words.
std::string code_of(const std::string& text) {
  std::string code;
  bool gap = false;
  const auto add = [&](const std::string& part) {
    if (gap && !code.empty() && is_word(code.back()) && is_word(part[0])) code += ' ';
    gap = false;
    code += part;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = skip(text, at);
    if (end > at && text[at] != '/') {
      add(text.substr(at, end - at));
    } else if (end > at || std::isspace(static_cast<unsigned char>(text[at])) != 0) {
      gap = true;
    } else {
      add(text.substr(at, 1));
    }
    at = std::max(end, at + 1);
  }
  return code;
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
    for (const char byte : code_of(read(include / name)))
      hash = (hash ^ static_cast<unsigned char>(byte)) * UINT64_C(1099511628211);
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

// Replaces the text between `before` and the next `end`.
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
