// SPDX-License-Identifier: Apache-2.0
#include "cli/words/foreign_flags.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

bool is_one_of(const Json& list, const std::string& text) {
  return list == text || (list.is_array() && std::find(list.begin(), list.end(), Json(text)) != list.end());
}

void add_words(const Json& words, std::vector<std::string>& ours) {
  for (const Json& word : words) ours.push_back(word.get<std::string>());
}

double number_of(const std::string& word, const std::string& text) {
  const Json number = Json::parse(json_number(text), nullptr, /*allow_exceptions=*/false);
  if (number.is_number()) return number.get<double>();
  ddh::fail(DDH_INVALID_ARGUMENT, word, " '", plain_text(text, kShownValue), "' is no number; correct it");
}

}  // namespace

void ForeignFlags::note(const std::string& word, const Json& entry) {
  const std::string sentence = word + " has no effect here: " + entry["no_effect"].get<std::string>();
  if (std::find(unused_.begin(), unused_.end(), sentence) == unused_.end()) unused_.push_back(sentence);
}

void ForeignFlags::turn_on(const std::string& word, const Json& entry, std::vector<std::string>& ours) {
  if (entry.contains("refuse")) ddh::fail(DDH_INVALID_ARGUMENT, word, " ", entry["refuse"].get<std::string>());
  if (entry.contains("one_of")) {
    const auto [at, is_first] = chosen_.try_emplace(entry["one_of"].get<std::string>(), word, entry["adds"]);
    if (at->second.second != entry["adds"])
      ddh::fail(DDH_INVALID_ARGUMENT, at->second.first, " and ", word, " exclude each other; give one of them");
  }
  if (const Json adds = entry.value("adds", Json::array()); adds.is_object())
    add_items(adds);
  else
    add_words(adds, ours);
  if (entry.contains("no_effect")) note(word, entry);
}

void ForeignFlags::turn_off(const std::string& word, const Json& entry) {
  const Json off = entry.value("off", Json::object());
  if (off.contains("no_effect")) note(word + " False", off);
  const auto denies = off.value("denies", std::string());
  const size_t equals = denies.find('=');
  if (!denies.empty()) denied_.push_back({word + " False", denies.substr(0, equals), denies.substr(equals + 1)});
}

void ForeignFlags::give(const std::string& word, const Json& entry, const std::string& value,
                        std::vector<std::string>& ours) {
  if (is_one_of(entry.value("drops", Json()), value)) return;  // it says nothing
  const Json refuses = entry.value("refuses", Json::object());
  if (const auto at = refuses.find(value); at != refuses.end())
    ddh::fail(DDH_INVALID_ARGUMENT, word, " '", plain_text(value, kShownValue), "' ", at->get<std::string>());
  if (entry.contains("by_word")) return give_words(word, entry, value, ours);
  const Json by_value = entry.value("by_value", Json::object());
  const char* const key = has_file_ && entry.contains("sets_beside_file") ? "sets_beside_file" : "sets";
  if (const auto at = by_value.find(value); at != by_value.end()) return add_words(*at, ours);
  if (entry.value("keeps", false)) {  // a word of ours, too
    if (word.starts_with("--"))
      ours.insert(ours.end(), {word, value});
    else
      ours.push_back(word + "=" + value);
  } else if (entry.contains("is")) {
    ours.push_back(entry["is"].get<std::string>());
    if (word.starts_with("--")) given_[ours.back()] = word;
    ours.push_back(entry.value("values", Json::object()).value(value, value));
  } else if (entry.contains("collects")) {
    collect(word, entry["collects"], value);
  } else if (entry.contains("share_of")) {
    take_share(word, entry, entry[key].get<std::string>(), value, ours);
  } else if (entry.contains("sets")) {
    const std::string ours_value = entry.value("values", Json::object()).value(value, value);
    ours.push_back(entry[key].get<std::string>() + "=" + ours_value);
    // Of a flag null would be a text, and of key=value it is no value.
    if (word.starts_with("--") && ours_value != "null") given_[ours.back()] = word;
  } else if (entry.contains("refuse")) {
    ddh::fail(DDH_INVALID_ARGUMENT, word, " '", plain_text(value, kShownValue), "' ",
              entry["refuse"].get<std::string>());
  } else if (entry.contains("no_effect")) {
    note(word, entry);
  } else {
    std::string list;
    for (const auto& [text, unused] : by_value.items()) list += (list.empty() ? "" : ", ") + text;
    ddh::fail(DDH_INVALID_ARGUMENT, word, " '", plain_text(value, kShownValue),
              "' has no counterpart here; give one of ", list);
  }
}

void ForeignFlags::add_items(const Json& items) {
  for (const auto& [key, more] : items.items())
    for (const Json& one : more)
      if (Json& list = lists_[key]; std::find(list.begin(), list.end(), one) == list.end()) list.push_back(one);
}

// Several words in one value, in any order.
void ForeignFlags::give_words(const std::string& word, const Json& entry, const std::string& value,
                              std::vector<std::string>& ours) {
  const Json& by_word = entry["by_word"];
  std::string blanks = value;
  // Also a list as JSON or Python writes it.
  const auto is_mark = [](char c) { return std::string_view(",[]\"'").find(c) != std::string_view::npos; };
  std::replace_if(blanks.begin(), blanks.end(), is_mark, ' ');
  std::istringstream items(blanks);
  bool has_needed = !entry.contains("needs");
  std::vector<std::string> present;
  for (std::string item; items >> item; present.push_back(item)) {
    const auto at = by_word.find(item);
    if (at == by_word.end() && entry.contains("no_effect")) {
      note(word + " " + plain_text(item, kShownValue), entry);
    } else if (at == by_word.end()) {
      std::string list;
      for (const auto& [text, unused] : by_word.items()) list += (list.empty() ? "" : ", ") + text;
      ddh::fail(DDH_INVALID_ARGUMENT, word, " '", plain_text(item, kShownValue),
                "' has no counterpart here; give some of ", list);
    } else if (at->is_array()) {
      add_words(*at, ours);
    } else {
      add_items(*at);
    }
    has_needed = has_needed || is_one_of(entry["needs"], item);
  }
  if (!has_needed)
    ddh::fail(DDH_INVALID_ARGUMENT, word, " '", plain_text(value, kShownValue), "' is not enough; add ",
              entry["needs"].front().get<std::string>());
  const Json without = entry.value("without", Json::object());
  for (const auto& [item, words] : without.items())
    if (std::find(present.begin(), present.end(), item) == present.end()) add_words(words, ours);
}

void ForeignFlags::take_share(const std::string& word, const Json& entry, const std::string& to,
                              const std::string& value, std::vector<std::string>& ours) {
  const double share = number_of(word, value);
  const bool takes_number = entry.value("or_number", false);
  if (takes_number && (share == 0 || share >= 1)) return ours.push_back(to + "=" + value);
  if (share < 0 || share >= 1)
    ddh::fail(DDH_INVALID_ARGUMENT, word, " '", plain_text(value, kShownValue), "' is no part of ",
              entry["share_of"].get<std::string>(), "; give a number from 0 to below 1, or ", to, "=N");
  shares_.push_back({word, entry["share_of"].get<std::string>(), to, share, takes_number});
}

std::vector<std::string> ForeignFlags::each(const Json& entry, const std::vector<std::string>& values) {
  std::vector<std::string> ours;
  for (const std::string& value : values) {
    std::istringstream items(value);
    std::string joined;
    for (std::string item; std::getline(items, item, ',');)
      joined += (joined.empty() ? "" : ",") + entry["each"].value(item, item);
    ours.push_back(joined);
  }
  return ours;
}

void ForeignFlags::collect(const std::string& word, const Json& entry, const std::string& value) {
  const auto key = entry["into"].get<std::string>();
  Json item = Json::parse(json_number(value), nullptr, /*allow_exceptions=*/false);
  if (!item.is_number()) item = number_of(word, value);
  if (entry.contains("item")) {
    Json object = entry["item"];
    object[entry["as"].get<std::string>()] = item;
    item = object;
  }
  collected_[key][entry["place"].get<size_t>()] = item;
  if (entry.contains("else")) otherwise_[key] = entry["else"];
}

void ForeignFlags::finish(std::vector<std::string>& ours) {
  for (const auto& [key, items] : collected_) {
    const auto otherwise = otherwise_.find(key);
    Json list = otherwise == otherwise_.end() ? Json::array() : otherwise->second;
    for (const auto& [place, item] : items) {
      if (otherwise == otherwise_.end())
        list.push_back(item);
      else
        list[place] = item;
    }
    ours.push_back(key + "=" + list.dump());
  }
  for (const auto& [key, list] : lists_) ours.push_back(key + "=" + list.dump());
  for (const Share& share : shares_) finish(share, ours);
}

void ForeignFlags::finish(const Share& share, std::vector<std::string>& ours) {
  const auto given = [&](const std::string& key) -> std::optional<std::string> {
    const auto says = [&](const std::string& one) { return one.starts_with(key + "="); };
    const auto at = std::find_if(ours.rbegin(), ours.rend(), says);
    return at == ours.rend() ? std::nullopt : std::optional(at->substr(key.size() + 1));
  };
  const auto number = given(share.to), whole = given(share.of);
  if (number && number_of(share.to, *number) > 0) {  // as in the other program
    unused_.push_back(share.word + " has no effect here: " + share.to + "=" + *number + " says it");
  } else if (share.share == 0) {
    if (!number) ours.push_back(share.to + "=0");
  } else if (whole) {
    const double steps = std::ceil(number_of(share.of, *whole) * share.share);
    ours.push_back(share.to + "=" + std::to_string(static_cast<int64_t>(std::clamp(steps, 0.0, 1e15))));
  } else if (share.is_number_needed) {
    ddh::fail(DDH_INVALID_ARGUMENT, share.word, " '", Json(share.share).dump(), "' is a part of ", share.of,
              ", which the line does not give; give ", share.of, "=N too, or ", share.word, " N");
  } else {  // the option itself takes a part
    ours.push_back(share.to + "=" + Json(share.share).dump());
  }
}

}  // namespace ddhost
