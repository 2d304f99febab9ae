// SPDX-License-Identifier: Apache-2.0
#include "config/foreign/reverse.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "config/foreign/given_values.hpp"
#include "config/foreign/rules.hpp"

namespace ddhost {
namespace {

constexpr int64_t kMostTried = 16;  // values of an integer

class Reverser {
 public:
  Reverser(const ForeignTable& table, std::string version, std::map<std::string, Json> ours)
      : table_(table), version_(std::move(version)), ours_(std::move(ours)) {}

  // First without regard to conditions, which may be on keys that are chosen later; then only what holds stays.
  void run() {
    for (const bool is_strict : {false, true, true})
      for (const ForeignKey& key : table_.keys) choose(key, is_strict);
  }

  [[nodiscard]] const std::map<std::string, Json>& chosen() const { return chosen_; }
  [[nodiscard]] const std::set<std::string>& covered() const { return covered_; }

 private:
  [[nodiscard]] Json value_of(const std::string& name) const {
    if (const auto at = chosen_.find(name); at != chosen_.end()) return at->second;
    const ForeignKey* const key = table_.find(name);
    return key == nullptr ? Json() : key->preset_in(version_);
  }
  [[nodiscard]] bool hold(const Json& when) const {
    return conditions_hold(when, [&](const std::string& name) { return value_of(name); });
  }

  void choose(const ForeignKey& key, bool is_strict) {
    if (!key.stands_for.empty()) return;
    chosen_.erase(key.name);
    if (is_strict && key.only.is_object() && !hold(key.only)) return;
    for (const ForeignRule& rule : key.rules) {
      for (const Json& value : candidates(key, rule)) {
        chosen_[key.name] = value;
        if (means_ours(key, value, is_strict)) return;
        chosen_.erase(key.name);
      }
    }
    if (is_strict) static_cast<void>(means_ours(key, key.preset_in(version_), is_strict));  // the default says it
  }

  // Values of the key to which the rule may apply.
  [[nodiscard]] std::vector<Json> candidates(const ForeignKey& key, const ForeignRule& rule) const {
    std::vector<Json> all;
    if (const auto own = ours_.find(rule.to); own != ours_.end() && !rule.to.empty())
      if (auto value = their_value(rule, own->second); value && misfit(key, *value).empty()) all.push_back(*value);
    if (!rule.gives.is_object()) return all;
    if (rule.is && rule.is->is_array())
      all.insert(all.end(), rule.is->begin(), rule.is->end());
    else if (rule.is && !rule.is->is_object())
      all.push_back(*rule.is);
    else if (key.words.is_array())
      all.insert(all.end(), key.words.begin(), key.words.end());
    else if (key.min.is_number_integer() && key.max.is_number_integer())
      for (int64_t v = key.min.get<int64_t>(); v <= key.max.get<int64_t>() && v < kMostTried; ++v) all.push_back(v);
    else if (std::find(key.types.begin(), key.types.end(), "boolean") != key.types.end())
      all = {true, false};
    std::erase_if(all, [](const Json& value) { return value.is_null(); });
    return all;
  }

  // Whether the first rule that applies to the value gives values of ours, and no other. Without regard to conditions: whether
  // any rule does.
  bool means_ours(const ForeignKey& key, const Json& value, bool is_strict) {
    for (const ForeignRule& rule : key.rules) {
      if (!is_for_value(rule, value) || !is_for_version(rule, version_) || (is_strict && !hold(rule.when))) continue;
      std::map<std::string, Json> gives;
      if (!rule.to.empty()) gives[rule.to] = our_value(rule, value);
      for (const auto& [own, fixed] : rule.gives.items()) gives[own] = fixed;
      const bool is_right = !gives.empty() && std::all_of(gives.begin(), gives.end(), [&](const auto& one) {
        const auto own = ours_.find(one.first);
        return own != ours_.end() && own->second == one.second;
      });
      if (!is_strict && !is_right) continue;
      if (is_strict && is_right)
        for (const auto& [own, unused] : gives) covered_.insert(own);
      return is_right;
    }
    return false;
  }

  const ForeignTable& table_;
  const std::string version_;
  const std::map<std::string, Json> ours_;
  std::map<std::string, Json> chosen_;
  std::set<std::string> covered_;
};

}  // namespace

Reversed reversed(const ForeignTable& table, const std::string& version,
                  const std::vector<std::pair<std::string, Json>>& ours) {
  Reverser reverser(table, version.empty() ? table.newest : version, {ours.begin(), ours.end()});
  reverser.run();
  Reversed out;
  for (const ForeignKey& key : table.keys) {
    const auto at = reverser.chosen().find(key.name);
    if (at == reverser.chosen().end()) continue;
    Json* node = &out.root;
    size_t begin = 0;
    for (size_t dot = key.name.find('.'); dot != std::string::npos; dot = key.name.find('.', begin)) {
      node = &(*node)[key.name.substr(begin, dot - begin)];
      begin = dot + 1;
    }
    (*node)[key.name.substr(begin)] = at->second;
  }
  for (const auto& [key, unused] : ours)
    if (!reverser.covered().contains(key)) out.left_out.push_back(key);
  return out;
}

}  // namespace ddhost
