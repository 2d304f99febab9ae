// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

namespace ddhost {
namespace {

struct Range {
  uint32_t first, last;
};

// Of Unicode 15 ("East Asian Width" W and F, and blocks of emoji as a whole).
constexpr std::array<Range, 17> kWide = {{{0x1100, 0x115F},
                                          {0x231A, 0x231B},
                                          {0x2329, 0x232A},
                                          {0x23E9, 0x23FA},
                                          {0x25FD, 0x25FE},
                                          {0x2600, 0x27BF},
                                          {0x2B1B, 0x2B55},
                                          {0x2E80, 0x303E},
                                          {0x3041, 0xA4CF},
                                          {0xA960, 0xA97F},
                                          {0xAC00, 0xD7A3},
                                          {0xF900, 0xFAFF},
                                          {0xFE10, 0xFE6F},
                                          {0xFF01, 0xFF60},
                                          {0xFFE0, 0xFFE6},
                                          {0x16FE0, 0x1B2FF},
                                          {0x1F000, 0x3FFFD}}};
constexpr std::array<Range, 8> kWithoutWidth = {{{0x0300, 0x036F},
                                                 {0x0483, 0x0489},
                                                 {0x1AB0, 0x1AFF},
                                                 {0x1DC0, 0x1DFF},
                                                 {0x200B, 0x200F},
                                                 {0x20D0, 0x20FF},
                                                 {0xFE00, 0xFE0F},
                                                 {0xFE20, 0xFE2F}}};

template <size_t n>
bool is_in(const std::array<Range, n>& ranges, uint32_t code) {
  return std::any_of(ranges.begin(), ranges.end(), [&](Range r) { return code >= r.first && code <= r.last; });
}

struct Character {
  size_t bytes, columns;
};

Character character_at(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const size_t bytes = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (bytes == 1 || bytes > text.size() - at) return {1, 1};
  uint32_t code = first & (0xFFU >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
  if (is_in(kWithoutWidth, code)) return {bytes, 0};
  return {bytes, is_in(kWide, code) ? size_t{2} : size_t{1}};
}

// The bytes of a word that fit, up to a mark between its parts if there is one: "strategy.offload_" of a longer name.
size_t fitting_bytes(std::string_view word, size_t columns) {
  const size_t most = cut_to_columns(word, columns).size();
  const size_t mark = word.substr(0, most).find_last_of(".,/_-");
  return mark == std::string_view::npos || mark < most / 3 ? most : mark + 1;
}

// Adds a word that no line has room for, in parts. Returns the columns that are used after it.
size_t add_in_parts(std::string& out, std::string_view word, size_t columns, size_t indent, size_t used) {
  while (columns_of(word) > columns - used) {
    const size_t bytes = fitting_bytes(word, columns - used);
    out += word.substr(0, bytes);
    out += '\n' + std::string(indent, ' ');
    word.remove_prefix(bytes);
    used = indent;
  }
  out += word;
  return used + columns_of(word);
}

void wrap_line(std::string& out, std::string_view line, size_t columns, size_t indent, LongWords long_words) {
  size_t used = 0;
  const bool divides = long_words == LongWords::divide && columns > indent + 8;
  bool has_word = false;
  for (size_t at = 0; at < line.size();) {
    const size_t word = std::min(line.find_first_not_of(' ', at), line.size());
    const size_t end = std::min(line.find(' ', word), line.size());
    const size_t blanks = word - at, width = columns_of(line.substr(word, end - word));
    if (has_word && used + blanks + width > columns) {
      out += '\n' + std::string(indent, ' ');
      used = indent;
    } else {
      out.append(blanks, ' ');
      used += blanks;
    }
    if (divides && used + width > columns && used + 8 <= columns) {
      used = add_in_parts(out, line.substr(word, end - word), columns, indent, used);
    } else {
      out += line.substr(word, end - word);
      used += width;
    }
    has_word = has_word || width > 0;
    at = end;
  }
}

}  // namespace

size_t columns_of_environment(size_t otherwise) {
  const char* const given = std::getenv("COLUMNS");
  const int columns = given == nullptr ? 0 : std::atoi(given);
  return columns > 0 && columns < 10'000 ? static_cast<size_t>(columns) : otherwise;
}

size_t terminal_columns(int fd, size_t otherwise) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0) return otherwise;
  return size.ws_col > 0 ? size.ws_col : columns_of_environment(otherwise);
}

bool can_redraw(int fd) {
  const char* const terminal = std::getenv("TERM");
  return ::isatty(fd) != 0 && terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

bool is_writable(int fd, std::chrono::milliseconds patience) {
  pollfd file{fd, POLLOUT, 0};
  return ::poll(&file, 1, static_cast<int>(patience.count())) == 1 && (file.revents & POLLOUT) != 0;
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    columns += c.columns;
    at += c.bytes;
  }
  return columns;
}

std::string cut_to_columns(std::string_view text, size_t columns) {
  size_t at = 0;
  for (size_t used = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (used + c.columns > columns) break;
    used += c.columns;
    at += c.bytes;
  }
  return std::string(text.substr(0, at));
}

std::string wrapped(std::string_view text, size_t columns, size_t indent, LongWords long_words) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    wrap_line(out, text.substr(at, end - at), columns, indent, long_words);
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

}  // namespace ddhost
