// SPDX-License-Identifier: Apache-2.0
#include "live/request.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

namespace ddhost {
namespace {

PageRequest refused(int status) { return {PageRequest::What::kRefused, status, 0}; }

// Takes the same time wherever the texts differ.
bool is_secret(std::string_view given, std::string_view secret) {
  if (given.size() != secret.size()) return false;
  unsigned differs = 0;
  for (size_t i = 0; i < secret.size(); ++i)
    differs |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(secret[i]);
  return differs == 0;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, end - begin + 1);
}

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Other protocols begin with bytes that no head has.
bool is_text(std::string_view bytes) {
  return std::none_of(bytes.begin(), bytes.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == 0x7f || (byte < 0x20 && c != '\t' && c != '\r' && c != '\n');
  });
}

// With any port: a tunnel may have another one at its near end.
bool names_this_host(std::string_view host, std::string_view address) {
  const bool is_v6 = address.find(':') != std::string_view::npos;
  for (const std::string& name : {std::string("localhost"), std::string("127.0.0.1"), std::string("[::1]"),
                                  is_v6 ? "[" + std::string(address) + "]" : std::string(address)}) {
    if (!lower(host.substr(0, name.size())).starts_with(name)) continue;
    const std::string_view rest = host.substr(name.size());
    if (rest.empty() || (rest.front() == ':' && is_digits(rest.substr(1)))) return true;
  }
  return false;
}

// Takes the first line off `text`, without its end.
std::string_view next_line(std::string_view& text) {
  const size_t end = text.find("\r\n");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), line.size() + 2));
  return line;
}

// Of the headers only those matter that change what is asked for. 0: they are fine; else a status.
int check_headers(std::string_view headers, std::string_view address) {
  int hosts = 0;
  while (!headers.empty()) {
    const std::string_view line = next_line(headers);
    const size_t colon = line.find(':');
    if (colon == 0 || colon == std::string_view::npos || line.find_first_of(" \t") < colon) return 400;
    if (line.find_first_of("\r\n") != std::string_view::npos) return 400;
    const std::string name = lower(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (name == "content-length" || name == "transfer-encoding" || name == "upgrade") return 400;
    if (name != "host") continue;
    if (++hosts > 1) return 400;
    if (!names_this_host(value, address)) return 403;
  }
  return hosts == 1 ? 0 : 400;
}

PageRequest of_path(std::string_view path) {
  constexpr std::string_view kAfter = "state?after=";
  if (path.empty()) return {PageRequest::What::kDocument, 200, 0};
  if (path == "live.js") return {PageRequest::What::kScript, 200, 0};
  if (!path.starts_with(kAfter)) return refused(404);
  const std::string_view number = path.substr(kAfter.size());
  uint64_t after = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), after);
  if (error != std::errc{} || end != number.data() + number.size()) return refused(404);
  return {PageRequest::What::kState, 200, after};
}

}  // namespace

PageRequest read_request(std::string_view bytes, std::string_view token, std::string_view address) {
  const size_t end = bytes.substr(0, kMostRequestBytes).find("\r\n\r\n");
  if (!is_text(bytes.substr(0, std::min(end, kMostRequestBytes)))) return refused(400);
  if (end == std::string_view::npos) return bytes.size() >= kMostRequestBytes ? refused(431) : PageRequest();
  std::string_view head = bytes.substr(0, end);
  const std::string_view line = next_line(head);
  if (!line.starts_with("GET ")) return refused(line.find(' ') == std::string_view::npos ? 400 : 405);
  std::string_view target = line.substr(4);
  const size_t blank = target.find(' ');
  const std::string_view version = blank == std::string_view::npos ? std::string_view() : target.substr(blank + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return refused(400);
  if (const int status = check_headers(head, address); status != 0) return refused(status);
  target = target.substr(0, blank);
  if (!target.starts_with('/')) return refused(400);
  target.remove_prefix(1);
  const size_t slash = target.find('/');
  if (slash == std::string_view::npos || !is_secret(target.substr(0, slash), token)) return refused(404);
  return of_path(target.substr(slash + 1));
}

}  // namespace ddhost
