// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <system_error>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The bytes of the character at `at`; 0: it is none of UTF-8.
size_t character_bytes(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || bytes > text.size() - at) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if (!is_continuation(text[at + i])) return 0;
  const auto second = static_cast<unsigned char>(text[at + 1]);
  const bool too_long = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  return too_long || surrogate || (first == 0xF4 && second >= 0x90) ? 0 : bytes;
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  size_t head = most / 2, tail = text.size() - most / 2;
  while (head > 0 && is_continuation(text[head])) --head;
  while (tail < text.size() && is_continuation(text[tail])) ++tail;
  return ddh::str(text.substr(0, head), " [", tail - head, " bytes left out] ", text.substr(tail));
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character_bytes(text, at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

std::string plain_text(std::string_view text, size_t most) {
  std::string out = shortened(text, most);
  for (size_t at = 0; at < out.size();) {
    const size_t bytes = character_bytes(out, at);
    const auto c = static_cast<unsigned char>(out[at]);
    if (bytes == 0 || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) out[at] = '?';
    at += bytes == 0 ? 1 : bytes;
  }
  return out;
}

std::string hex_text(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : bytes) out += {kDigits[byte >> 4], kDigits[byte & 15]};
  return out;
}

std::string shown_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character_bytes(text, at), used = std::max<size_t>(bytes, 1);
    const auto first = static_cast<unsigned char>(text[at]);
    const bool is_control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f ||
                            (bytes == 2 && first == 0xC2 && static_cast<unsigned char>(text[at + 1]) < 0xA0);
    if (bytes > 0 && !is_control) {
      out += text.substr(at, used);
    } else {
      for (size_t i = 0; i < used; ++i) {
        const auto byte = static_cast<uint8_t>(text[at + i]);
        out += "\\x" + hex_text({&byte, 1});
      }
    }
    at += used;
  }
  return out;
}

size_t unfinished_bytes(std::string_view text) {
  constexpr size_t kLongest = 4;
  for (size_t n = 1; n < kLongest && n <= text.size(); ++n) {
    const auto c = static_cast<unsigned char>(text[text.size() - n]);
    if (is_continuation(static_cast<char>(c))) continue;
    const size_t whole = c >= 0xF0 && c <= 0xF4 ? 4 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xC2 && c < 0xE0 ? 2 : 1;
    return whole > n ? n : 0;
  }
  return 0;
}

std::string sentence_of(const std::exception& error) {
  if (dynamic_cast<const ddh::Error*>(&error) != nullptr) return error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return "out of memory; use a smaller model, a smaller batch, smaller files or fewer ranks";
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error); file != nullptr) {
    const std::string reason = file->code().message();
    if (file->path1().empty()) return "the working folder can't be used: " + reason + "; change to an existing folder";
    return "'" + file->path1().string() + "' can't be used: " + reason + "; correct the path or its permissions";
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error); system != nullptr)
    return "the system refused a request: " + system->code().message() + "; free resources and start the run again";
  return "an error that ddhost does not expect; please report it, with the command and these words: " +
         plain_text(error.what(), kShownValue);
}

std::string number_text(double value) {
  char text[32];
  for (const int digits : {12, 17}) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

std::string json_number(const std::string& text) {
  const auto digits = [&](size_t from) { return std::min(text.find_first_not_of("0123456789", from), text.size()); };
  const size_t begin = text.starts_with('+') || text.starts_with('-') ? 1 : 0, whole = digits(begin);
  const bool has_dot = whole < text.size() && text[whole] == '.';
  const size_t fraction = has_dot ? whole + 1 : whole, exponent = digits(fraction);
  if (whole == begin && exponent == fraction) return text;
  size_t end = exponent;
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    const size_t sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-') ? 1 : 0;
    end = digits(exponent + 1 + sign);
    if (end == exponent + 1 + sign) return text;
  }
  if (end != text.size()) return text;
  const std::string before = text.substr(begin, whole - begin), after = text.substr(fraction, exponent - fraction);
  return (text.starts_with('-') ? "-" : "") + (before.empty() ? "0" : before) +
         (has_dot ? "." + (after.empty() ? "0" : after) : "") + text.substr(exponent);
}

std::string bytes_text(uint64_t bytes) {
  if (bytes < 10'000) return std::to_string(bytes) + " bytes";
  constexpr std::array<const char*, 4> kUnits = {"KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes) / 1e3;
  size_t unit = 0;
  for (; value >= 1e4 && unit + 1 < kUnits.size(); ++unit) value /= 1e3;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::optional<uint64_t> bytes_from_text(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                            {"B", 1},
                                            {"KB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"KiB", 1024.0},
                                            {"MiB", 1048576.0},
                                            {"GiB", 1073741824.0},
                                            {"TB", 1e12},
                                            {"TiB", 1099511627776.0}}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  for (const Unit& known : kUnits) {
    if (error != std::errc{} || unit != known.name) continue;
    const double bytes = number * known.bytes;
    if (bytes >= 1 && bytes < 9e18) return static_cast<uint64_t>(bytes);
  }
  return std::nullopt;
}

std::string counted(uint64_t count, std::string_view noun) {
  const std::string_view plural = noun.ends_with("ch") ? "es" : "s";
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : plural);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table: i-2, i-1, i.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 200;  // the time is the product of both lengths
  std::string best;
  if (name.size() > kLongest) return best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance >= best_distance || 2 * distance > name.size()) continue;  // "tcp" is not "ddp"
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string with_article(const std::string& word) {
  const bool has_vowel = !word.empty() && std::string_view("aeiou").find(word[0]) != std::string_view::npos;
  return (has_vowel ? "an " : "a ") + word;
}

}  // namespace ddhost
