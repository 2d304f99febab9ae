// SPDX-License-Identifier: Apache-2.0
#include "config/read_json.hpp"

#include <set>
#include <vector>

namespace ddhost {
namespace {

constexpr int kMaxDepth = 64;

// The JSON library's explanation, without its error number and position.
std::string reason_of(const Json::exception& error) {
  const std::string text = error.what();
  const size_t at = text.find(": ");
  return at == std::string::npos ? text : text.substr(at + 2);
}

}  // namespace

Json read_json(const std::string& text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) throw JsonError(std::string("more than ") + std::to_string(kMaxDepth) + " levels", 0);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw JsonError("the key '" + parsed.get<std::string>() + "' occurs twice in one object", 0);
    return true;
  };
  try {
    return Json::parse(text, check, /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (const Json::parse_error& error) {
    throw JsonError("not valid JSON (" + reason_of(error) + ")", error.byte);
  } catch (const Json::exception& error) {
    throw JsonError(reason_of(error), 0);
  }
}

}  // namespace ddhost
