// SPDX-License-Identifier: Apache-2.0
#include "base/json.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "base/text.hpp"

namespace ddhost {
namespace {

constexpr int kMaxDepth = 64;

template <class AnyJson>
AnyJson read(const std::string& text, size_t most_keys, bool with_comments) {
  // The library would end there, and lose what follows.
  if (const size_t nul = text.find('\0'); nul != std::string::npos)
    throw JsonError("not valid JSON (it holds a NUL byte)", nul + 1);
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, typename AnyJson::parse_event_t event, AnyJson& parsed) {
    if (depth > kMaxDepth) throw JsonError("more than " + std::to_string(kMaxDepth) + " levels", 0);
    if (event == AnyJson::parse_event_t::object_start) keys.emplace_back();
    if (event == AnyJson::parse_event_t::object_end) keys.pop_back();
    if (event != AnyJson::parse_event_t::key) return true;
    const auto name = parsed.template get<std::string>();
    if (!keys.back().insert(name).second)
      throw JsonError("the key '" + plain_text(name, kShownValue) + "' occurs twice in one object", 0);
    if (keys.back().size() > most_keys)
      throw JsonError("more than " + std::to_string(most_keys) + " keys in one object", 0);
    return true;
  };
  try {
    return AnyJson::parse(text, check, /*allow_exceptions=*/true, with_comments);
  } catch (const typename AnyJson::parse_error& error) {
    throw JsonError("not valid JSON (" + reason_of(error) + ")", error.byte);
  } catch (const typename AnyJson::exception& error) {
    throw JsonError(reason_of(error), 0);
  }
}

}  // namespace

std::string json_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string json_document(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string reason_of(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const size_t at = text.find(": ");
  return plain_text(at == std::string::npos ? text : text.substr(at + 2), kShownValue);
}

nlohmann::ordered_json read_json(const std::string& text, size_t most_keys) {
  return read<nlohmann::ordered_json>(text, most_keys, /*with_comments=*/true);
}

nlohmann::json read_sorted_json(const std::string& text) {
  return read<nlohmann::json>(text, std::numeric_limits<size_t>::max(), /*with_comments=*/false);
}

}  // namespace ddhost
