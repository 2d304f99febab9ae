// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/translate.cpp: applies a table to the values of a file.
#include <algorithm>
#include <cstdint>

#include "base/text.hpp"
#include "config/compat.hpp"
#include "config/foreign/given_values.hpp"
#include "config/foreign/product.hpp"
#include "config/foreign/rules.hpp"
#include "config/foreign/translation.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr int kMostFiles = 4;  // that name each other
constexpr const char* kRanks = "run.nproc";

class Translator {
 public:
  Translator(const ForeignTable& table, const ForeignContext& context, GivenValues given, int depth,
             bool is_handed = false)
      : table_(table), context_(context), given_(std::move(given)), depth_(depth), is_handed_(is_handed) {
    out_.table = &table;
    out_.version = context.version.empty() ? table.newest : context.version;
  }

  Translation run() {
    for (const Translation::Refusal& refusal : given_.refused) out_.refused.push_back(refusal);
    for (const auto& [name, value] : given_.values)  // said twice, by two names
      if (const size_t mark = name.find('#'); mark != std::string::npos)
        out_.same.push_back({value.from, {name.substr(0, mark)}});
    std::vector<Product> products;
    for (const ForeignProduct& product : table_.products) {
      products.emplace_back(product, table_, context_, given_);
      products.back().complete();
    }
    for (const ForeignKey& key : table_.keys) apply(key);
    for (const Product& product : products)
      if (auto refusal = product.mistake(/*may_be_missing=*/is_handed_)) out_.refused.push_back(*std::move(refusal));
    hand_over();
    const auto place = [](const Translation::Refusal& refusal) {
      return refusal.from.line == 0 ? SIZE_MAX : refusal.from.line;
    };
    std::stable_sort(out_.refused.begin(), out_.refused.end(),
                     [&](const auto& a, const auto& b) { return place(a) < place(b); });
    return std::move(out_);
  }

 private:
  [[nodiscard]] const GivenValue* find(const std::string& key) const { return given_.find(key); }

  [[nodiscard]] Json value_of(const std::string& name) const {
    if (const GivenValue* given = find(name)) return given->value;
    const ForeignKey* key = table_.find(name);
    return key == nullptr ? Json() : key->preset_in(out_.version);
  }

  [[nodiscard]] bool hold(const Json& when) const {
    return conditions_hold(when, [&](const std::string& name) { return value_of(name); });
  }

  void refuse(const ForeignOrigin& from, const std::string& sentence) { out_.refused.push_back({from, sentence}); }

  void apply(const ForeignKey& key) {
    if (!key.stands_for.empty()) return;
    const GivenValue* given = find(key.name);
    const Json value = value_of(key.name);
    ForeignOrigin from{key.name, value, ForeignOrigin::Kind::preset, given_.file, 0, table_.program};
    if (given != nullptr) from = given->from;
    if (given != nullptr && given->is_bad) return;  // refused already
    const bool is_mentioned = given != nullptr && from.kind != ForeignOrigin::Kind::preset;
    const auto is_below = [&](const std::string& object) { return key.name.starts_with(object + "."); };
    if (is_handed_ && !is_mentioned && std::any_of(table_.script.begin(), table_.script.end(), is_below)) {
      out_.idle.push_back({from, "a script has it, and here the options of this program"});
      return;
    }
    if (key.only.is_object() && !hold(key.only)) {
      if (is_mentioned) refuse(from, without_condition(key));
      return;
    }
    for (const ForeignRule& rule : key.rules) {
      if ((rule.only_given && !is_mentioned) || !is_for_version(rule, out_.version)) continue;
      if (!is_for_value(rule, value) || !hold(rule.when)) continue;
      apply(key, rule, value, from);
      return;
    }
    if (is_mentioned) refuse(from, "has no meaning here; leave it out");
  }

  [[nodiscard]] std::string without_condition(const ForeignKey& key) const {
    std::string text;
    for (const auto& [name, wanted] : key.only.items())
      text += (text.empty() ? "" : " and ") + name + " " + condition_in_words(wanted) + " (it is " +
              condition_in_words(value_of(name)) + ")";
    return "is read by " + table_.program + " with " + text + " alone; leave it out";
  }

  void apply(const ForeignKey& key, const ForeignRule& rule, const Json& value, const ForeignOrigin& from) {
    if (!rule.refuse.empty()) {
      refuse(from,
             rule.refuse + (key.removed.empty() ? "" : "; " + table_.program + " " + key.removed + " has removed it"));
      return;
    }
    if (!rule.no_effect.empty()) out_.idle.push_back({from, rule.no_effect});
    if (rule.part_of.is_array()) {
      Translation::Same same{from, {}};
      for (const Json& own : rule.part_of) same.keys.push_back(own.get<std::string>());
      out_.same.push_back(same);
    }
    const bool has_value = !value.is_null() ||
                           std::find(key.types.begin(), key.types.end(), "null") != key.types.end() ||
                           from.kind != ForeignOrigin::Kind::preset;
    if (!rule.to.empty() && has_value) add(rule.to, our_value(rule, value), from);
    if (!rule.to.empty() && !has_value) out_.idle.push_back({from, "it is left to the options of this program"});
    for (const auto& [own, fixed] : rule.gives.items()) add(own, fixed, from);
    for (const auto& [own, entry] : rule.append.items()) add_entry(own, entry, from);
    if (!rule.hand_to.empty()) hand(rule.hand_to, our_value(rule, value), from);
    if (!rule.file_of.empty()) files_.push_back({rule.file_of, value, from});
  }

  void add(const std::string& own, Json value, const ForeignOrigin& from) {
    const bool is_preset = from.kind == ForeignOrigin::Kind::preset;
    for (Translation::Line& line : out_.lines) {
      if (line.key != own) continue;
      const bool was_preset = line.from.kind == ForeignOrigin::Kind::preset;
      if (line.value != value && !is_preset && !was_preset)
        refuse(from, ddh::str("= ", shown(from.value), " and ", line.from.key, " = ", shown(line.from.value),
                              " both set ", own, " here; give both the same value, or leave one out"));
      const ForeignOrigin loser = was_preset && !is_preset ? line.from : from;
      if (was_preset && !is_preset) line = {own, std::move(value), from};
      out_.same.push_back({loser, {own}});
      return;
    }
    out_.lines.push_back({own, std::move(value), from});
  }

  void add_entry(const std::string& own, const Json& entry, const ForeignOrigin& from) {
    for (Translation::Line& line : out_.lines) {
      if (line.key != own) continue;
      line.value.push_back(entry);
      out_.same.push_back({from, {own}});
      return;
    }
    const size_t dot = own.find('.');
    Json list = default_options().at(own.substr(0, dot)).at(own.substr(dot + 1));
    list.push_back(entry);
    out_.lines.push_back({own, list, from});
  }

  void hand(const std::string& target, Json value, const ForeignOrigin& from) {
    const size_t colon = target.find(':');
    handed_[target.substr(0, colon)].set(target.substr(colon + 1), {std::move(value), from, false});
    out_.same.push_back({from, {target.substr(colon + 1)}});
  }

  // What belongs to the tables of other programs.
  void hand_over() {
    for (const File& file : files_) {
      const ForeignTable* other = foreign_table(file.format);
      const fs::path path = fs::path(given_.file).parent_path() / file.value.get<std::string>();
      if (depth_ >= kMostFiles) {
        refuse(file.from, "names a file in a chain of too many files; name the last one alone");
        continue;
      }
      try {
        std::error_code ec;  // relative to the folder of the command, or else of the file
        const fs::path found =
            fs::exists(file.value.get<std::string>(), ec) ? fs::path(file.value.get<std::string>()) : path;
        GivenValues values = given_values(*other, found, context_);
        for (const auto& [name, value] : handed_[file.format].values) add_handed(values, name, value);
        const ForeignContext below = context_below();
        merge(Translator(*other, below, std::move(values), depth_ + 1).run());
        out_.same.push_back({file.from, {other->is}});
      } catch (const ddh::Error& error) {
        refuse(file.from, ddh::str("= ", shown(file.value), ": ", error.what()));
      }
    }
    for (auto& [format, values] : handed_) {
      values.file = given_.file;
      const ForeignContext below = context_below();
      if (files_.empty())
        merge(Translator(*foreign_table(format), below, std::move(values), depth_ + 1, /*is_handed=*/true).run());
    }
  }

  // A value of this file beside the file that it names. It fills in what that file leaves open: `auto`, or a section that it
  // does not have and that a switch turns on. Everything else in this file would be ignored, which is refused.
  void add_handed(GivenValues& values, const std::string& name, const GivenValue& value) {
    const GivenValue* const own = values.find(name);
    if (own != nullptr && own->from.kind == ForeignOrigin::Kind::automatic) return values.set(name, value);
    if (value.from.kind == ForeignOrigin::Kind::preset) return;
    const size_t dot = name.rfind('.');
    const std::string section = name.substr(0, dot == std::string::npos ? 0 : dot + 1);
    const bool has_section = std::any_of(values.values.begin(), values.values.end(),
                                         [&](const auto& entry) { return entry.first.starts_with(section); });
    if (own == nullptr && name.ends_with(".enabled") && !has_section) return values.set(name, value);
    if (own == nullptr)
      refuse(value.from, "is not read beside the file that this one names; write it into that file as " + name);
    else if (own->value != value.value)
      refuse(value.from, ddh::str("and the file that this one names, with ", name, " = ", shown(own->value),
                                  ", contradict each other; write the same into both"));
  }

  // This file may say how many ranks there are.
  [[nodiscard]] ForeignContext context_below() const {
    ForeignContext below = context_;
    below.version.clear();  // it is that of this table's program
    for (const Translation::Line& line : out_.lines)
      if (line.key == kRanks && line.value.is_number_integer() && !context_.given(kRanks))
        below.ranks = [ranks = line.value.get<int64_t>()] { return ranks; };
    return below;
  }

  void merge(Translation other) {
    for (Translation::Line& line : other.lines) add(line.key, line.value, line.from);
    out_.same.insert(out_.same.end(), other.same.begin(), other.same.end());
    out_.idle.insert(out_.idle.end(), other.idle.begin(), other.idle.end());
    out_.refused.insert(out_.refused.end(), other.refused.begin(), other.refused.end());
  }

  struct File {
    std::string format;
    Json value;
    ForeignOrigin from;
  };
  const ForeignTable& table_;
  const ForeignContext& context_;
  GivenValues given_;
  const int depth_;
  const bool is_handed_;  // by another table, and there is no file of this one
  Translation out_;
  std::vector<File> files_;
  std::map<std::string, GivenValues> handed_;
};

}  // namespace

Translation translate_file(const ForeignTable& table, const fs::path& file, const ForeignContext& context) {
  Translation out = Translator(table, context, given_values(table, file, context), 0).run();
  out.file = file.string();
  return out;
}

Json Translation::config() const {
  Json root = Json::object();
  for (const Line& line : lines) {
    Json* node = &root;
    size_t begin = 0;
    for (size_t dot = line.key.find('.'); dot != std::string::npos; dot = line.key.find('.', begin)) {
      node = &(*node)[line.key.substr(begin, dot - begin)];
      begin = dot + 1;
    }
    (*node)[line.key.substr(begin)] = line.value;
  }
  return root;
}

void require_accepted(const Translation& translation) {
  if (translation.refused.empty()) return;
  const Translation::Refusal& first = translation.refused.front();
  const size_t more = translation.refused.size() - 1;
  const std::string line = first.from.line == 0 ? "" : ddh::str(", line ", first.from.line);
  ddh::fail(DDH_INVALID_ARGUMENT, "'", first.from.file, "'", line, ": ", first.from.key, " ", first.sentence,
            more == 0 ? "" : ddh::str(" (", more, " more: `ddhost convert ", translation.file, "` lists all)"));
}

}  // namespace ddhost
