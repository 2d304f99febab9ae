// SPDX-License-Identifier: Apache-2.0
#include "engine/record/process_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace ddhost {
namespace {

struct Mapping {
  uint64_t begin = 0, end = 0;
  std::string access, path;
  bool asks_huge_pages = false;
  std::map<std::string, uint64_t> bytes;  // "Pss"
  [[nodiscard]] uint64_t of(const char* name) const {
    const auto at = bytes.find(name);
    return at == bytes.end() ? 0 : at->second;
  }
  [[nodiscard]] uint64_t shared_rss() const { return of("Shared_Clean") + of("Shared_Dirty"); }
  [[nodiscard]] uint64_t private_rss() const { return of("Private_Clean") + of("Private_Dirty"); }
  [[nodiscard]] bool is_file() const { return !path.empty() && path[0] == '/'; }
  // Regions that ranks share; files of data are mapped for reading, or privately.
  [[nodiscard]] bool is_shared_memory() const { return access.starts_with("rw-s"); }
};

// "7f12-7f34 rw-p 00000000 00:00 0   /path with spaces"; false: another line.
bool is_head(const std::string& line, Mapping& out) {
  const char* const last = line.data() + line.size();
  const auto begin = std::from_chars(line.data(), last, out.begin, 16);
  if (begin.ec != std::errc() || begin.ptr == last || *begin.ptr != '-') return false;
  const auto end = std::from_chars(begin.ptr + 1, last, out.end, 16);
  if (end.ec != std::errc()) return false;
  std::istringstream rest(std::string(end.ptr, last));
  std::string offset, device, inode;
  rest >> out.access >> offset >> device >> inode >> std::ws;
  std::getline(rest, out.path);
  return true;
}

std::vector<Mapping> mappings_of(std::istream& in) {
  std::vector<Mapping> out;
  for (std::string line; std::getline(in, line);) {
    if (Mapping next; is_head(line, next)) {
      out.push_back(std::move(next));
      continue;
    }
    std::istringstream words(line);
    std::string name, unit;
    if (!out.empty() && line.starts_with("VmFlags:"))
      out.back().asks_huge_pages = line.find(" hg") != std::string::npos;
    uint64_t kib = 0;
    if (out.empty() || !(words >> name >> kib >> unit) || name.empty()) continue;
    name.pop_back();  // the colon
    out.back().bytes[name] = kib * 1024;
  }
  return out;
}

constexpr uint64_t kLargestGuard = uint64_t{64} * 1024;

}  // namespace

// A library's variables that begin with zero are anonymous, directly behind its file. A stack is directly behind a page that
// nothing may access.
ProcessMemory process_memory_of(std::istream& smaps) {
  const std::vector<Mapping> mappings = mappings_of(smaps);
  std::set<std::string> with_code;
  for (const Mapping& m : mappings)
    if (m.is_file() && m.access.find('x') != std::string::npos) with_code.insert(m.path);
  ProcessMemory out;
  const Mapping* before = nullptr;
  bool follows_library = false;
  for (const Mapping& m : mappings) {
    const uint64_t pss = m.of("Pss");
    out.pss_bytes += pss;
    const bool is_next = before != nullptr && before->end == m.begin;
    const bool is_anon = m.path.empty() || m.path == "[heap]" || m.path.starts_with("[anon");
    const bool is_library = m.is_file() ? with_code.count(m.path) > 0 : m.path.empty() && is_next && follows_library;
    const bool is_stack = m.path.starts_with("[stack") ||
                          (m.path.empty() && is_next && before->path.empty() && before->access.starts_with("---") &&
                           before->end - before->begin <= kLargestGuard && m.access.starts_with("rw-p"));
    const bool is_made_code = is_anon && m.access.find('x') != std::string::npos;
    if (is_library || is_made_code || m.path == "[vdso]" || m.path == "[vvar]") {
      out.libraries += pss;
    } else if (is_stack) {
      out.stacks += pss;
    } else if (m.is_shared_memory()) {
      out.shared_memory += pss;
    } else if (m.is_file()) {
      out.files += pss;
    } else if (is_anon && m.asks_huge_pages) {
      out.huge += pss;
    } else if (is_anon) {
      out.anon_rss += m.of("Rss");
      out.shared_anon_rss += m.shared_rss();
      out.shared_anon += pss - std::min(pss, m.private_rss());
    }
    follows_library = is_library;
    before = &m;
  }
  return out;
}

ProcessMemory process_memory() {
  std::ifstream in("/proc/self/smaps");
  ProcessMemory out = process_memory_of(in);
  out.pid = getpid();
  return out;
}

}  // namespace ddhost
