// SPDX-License-Identifier: Apache-2.0
#include "draw/text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "base/terminal.hpp"
#include "base/text.hpp"

namespace ddhost {
namespace {

// The code point at `at` of valid UTF-8; moves `at` behind it.
char32_t next_of(std::string_view text, size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80) return first;
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  char32_t code = first & (0x3F >> more);
  for (int i = 0; i < more && at < text.size(); ++i) code = code << 6 | (static_cast<unsigned char>(text[at++]) & 0x3F);
  return code;
}

bool turns_direction(char32_t c) {
  return c == 0x200E || c == 0x200F || c == 0x061C || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}
bool is_separator(char32_t c) { return c == 0x2028 || c == 0x2029; }

}  // namespace

std::string one_line(std::string_view text, size_t most) {
  const std::string shown = shown_text(text);
  std::string out;
  for (size_t at = 0; at < shown.size();) {
    const size_t begin = at;
    const char32_t c = next_of(shown, at);
    if (c == '\n' || c == '\t') {
      out += c == '\n' ? "\\x0a" : "\\x09";
    } else if (turns_direction(c) || is_separator(c)) {
      std::array<char, 16> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
      out += code.data();
    } else {
      out.append(shown, begin, at - begin);
    }
  }
  return plain_text(out, most);
}

std::string escaped(std::string_view text, size_t most) {
  std::string out;
  for (const char c : one_line(text, most)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string cut_to(std::string_view line, size_t columns) {
  if (columns_of(line) <= columns) return std::string(line);
  return columns == 0 ? "" : cut_to_columns(line, columns - 1) + "…";
}

std::string short_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::fabs(value);
  std::array<char, 32> text{};
  if (size != 0 && (size < 1e-3 || size >= 1e9)) {
    std::snprintf(text.data(), text.size(), "%.2e", value);
  } else if (size >= 1e6) {
    std::snprintf(text.data(), text.size(), "%.4gM", value / 1e6);
  } else if (size >= 1e4) {
    std::snprintf(text.data(), text.size(), "%.4gk", value / 1e3);
  } else {
    std::snprintf(text.data(), text.size(), "%.4g", value);
  }
  return text.data();
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "?";
  std::array<char, 48> text{};
  if (seconds < 60) {
    std::snprintf(text.data(), text.size(), "%.1fs", seconds);
    return text.data();
  }
  const auto s = static_cast<long long>(std::llround(seconds));
  if (s >= 86400) {
    std::snprintf(text.data(), text.size(), "%lldd %02lldh", s / 86400, s / 3600 % 24);
  } else if (s >= 3600) {
    std::snprintf(text.data(), text.size(), "%lldh %02lldm", s / 3600, s / 60 % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%lldm %02llds", s / 60, s % 60);
  }
  return text.data();
}

std::optional<double> seconds_from_text(std::string_view text) {
  constexpr std::array<std::pair<char, double>, 5> kUnits = {
      {{'s', 1.0}, {'m', 60.0}, {'h', 3600.0}, {'d', 86400.0}, {'w', 604800.0}}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end + 1 != text.data() + text.size() || !(number >= 0) || number > 1e9)
    return std::nullopt;
  for (const auto& [unit, seconds] : kUnits)
    if (*end == unit) return number * seconds;
  return std::nullopt;
}

}  // namespace ddhost
