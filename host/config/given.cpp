// SPDX-License-Identifier: Apache-2.0
//
// config/given.cpp: translates the user's names and values to keys and values.
#include "config/given.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.hpp"
#include "config/words.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

std::string head_of(const std::string& key) { return key.substr(0, key.find('.')); }
std::string tail_of(const std::string& key) {
  const size_t dot = key.find('.');
  return dot == std::string::npos ? "" : key.substr(dot + 1);
}

// "in 'gpt.json'", "on the command line", "by --nproc"
std::string where(const Wish& wish) {
  const char* word = wish.from_file ? "in " : wish.source.rfind("--", 0) == 0 ? "by " : "on ";
  return word + wish.source;
}

std::string absolute_text(const std::string& path, const fs::path& base) {
  if (path.empty()) return path;
  std::string full = (base / path).lexically_normal().string();
  if (!is_utf8(full))
    ddh::fail(
        DDH_INVALID_ARGUMENT, "the path '", full,
        "' is not UTF-8, so the run's configuration can't hold it; rename its folders, or start the run elsewhere");
  return full;
}

Json with_absolute_paths(const Option& option, Json value, const fs::path& base) {
  if (!option.is_path) return value;
  if (value.is_string()) value = absolute_text(value.get<std::string>(), base);
  if (value.is_array())
    for (Json& item : value)
      if (Json& path = item.is_object() && item.contains("file") ? item["file"] : item; path.is_string())
        path = absolute_text(path.get<std::string>(), base);
  return value;
}

const Section* find_section(const std::vector<Section>& sections, const std::string& name) {
  const auto at = std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.name == name; });
  return at == sections.end() ? nullptr : &*at;
}

// Refuses a word of another program for a key, if it is known.
void refuse_known_word(const Wish& wish) {
  const std::string value = wish.value.is_string() ? wish.value.get<std::string>() : shown(wish.value);
  const std::string hint = hint_of_option(wish.key, value);
  if (!hint.empty() && hint.find(" " + wish.key + "=") == std::string::npos)
    ddh::fail(DDH_INVALID_ARGUMENT, "unknown key '", wish.key, "' ", where(wish), "; ", hint);
}

[[noreturn]] void unknown_section(const Wish& wish, const std::vector<Section>& sections) {
  if (head_of(wish.key).starts_with(kFurtherOptimizer))
    ddh::fail(DDH_INVALID_ARGUMENT, "section '", head_of(wish.key), "' ", where(wish),
              " belongs to no optimizer of the run; name it in train.optimizers, after 'optimizer'");
  if (head_of(wish.key).starts_with(kFurtherSchedule))
    ddh::fail(DDH_INVALID_ARGUMENT, "section '", head_of(wish.key), "' ", where(wish),
              " belongs to no phase of the run; name it as the schedule of one in train.phases");
  if (head_of(wish.key) == kHostCommSection)
    ddh::fail(DDH_INVALID_ARGUMENT, "section '", kHostCommSection, "' ", where(wish),
              " belongs to no transport of the run: only a transport of GPU memory has one of host memory beside it; ",
              "leave it out");
  if (head_of(wish.key) == kInsideCommSection)
    ddh::fail(
        DDH_INVALID_ARGUMENT, "section '", kInsideCommSection, "' ", where(wish),
        " belongs to no transport of the run: only with comm.plugin=auto on several hosts, of which one has several ",
        "ranks, there are two transports; name its options in section 'comm'");
  std::vector<std::string> names;
  std::string list, same_name;
  for (const Section& section : sections) {
    names.push_back(section.name);
    list += (list.empty() ? "" : ", ") + section.name;
    if (same_name.empty() && section.schema.find(wish.key) != nullptr) same_name = section.name + "." + wish.key;
  }
  const std::string near = nearest(head_of(wish.key), names);
  if (same_name.empty()) refuse_known_word(wish);
  if (!same_name.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "unknown key '", wish.key, "' ", where(wish), "; did you mean '", same_name, "'?");
  if (!near.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "unknown section '", head_of(wish.key), "' ", where(wish), "; did you mean '", near,
              "'?");
  ddh::fail(DDH_INVALID_ARGUMENT, "unknown section '", head_of(wish.key), "' ", where(wish), "; the sections are ",
            list);
}

[[noreturn]] void unknown_key(Wish wish, const Section& section, const std::vector<Section>& sections) {
  if (wish.key.back() == '.') wish.key.pop_back();  // an empty object
  std::vector<std::string> here, everywhere;
  std::string list;
  for (const Section& other : sections)
    for (const Option& option : other.schema.options) everywhere.push_back(other.name + "." + option.name);
  for (const Option& option : section.schema.options) {
    here.push_back(option.name);
    if (!option.foreign) list += (list.empty() ? "" : ", ") + option.name;
  }
  for (const Alias& alias : section.schema.aliases) here.push_back(alias.name);
  std::string below;  // the options of an object, which was given a value itself
  for (const Option& option : section.schema.options)
    if (option.name.starts_with(tail_of(wish.key) + ".") && !option.foreign)
      below += (below.empty() ? "" : ", ") + section.name + "." + option.name;
  const std::string place = where(wish) + (section.plugin.empty() ? "" : " for " + section.plugin);
  if (section.schema.find(tail_of(wish.key)) != nullptr)  // known, but not as an object
    ddh::fail(DDH_INVALID_ARGUMENT, "'", wish.key, "' ", place, " is an object, but takes a value; give that");
  if (!below.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "'", wish.key, "' ", place, " takes no value itself; give ", below);
  std::string near = nearest(tail_of(wish.key), here);
  const bool is_typo = !near.empty() && edit_distance(tail_of(wish.key), near) <= 2;
  if (!is_typo) refuse_known_word(wish);
  if (!near.empty()) near = section.name + "." + near;
  const std::string of_plugin = tail_of(wish.key).substr(0, tail_of(wish.key).find('.'));
  if (near.empty() && of_plugin != tail_of(wish.key) && section.schema.find("plugins") != nullptr)
    ddh::fail(DDH_INVALID_ARGUMENT, "'", wish.key, "' ", place, " is an option of a plugin that ", section.name,
              ".plugins does not name; add '", of_plugin, "' to ", section.name, ".plugins");
  if (near.empty()) {
    // The right name in the wrong section: model.lr for optimizer.lr.
    for (const std::string& key : everywhere)
      if (tail_of(key) == tail_of(wish.key)) near = key;
  }
  // A plugin has few options of its own, and a similar key of another section rarely has the same meaning.
  if (near.empty() && section.plugin.empty()) near = nearest(wish.key, everywhere);
  if (!near.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "unknown key '", wish.key, "' ", place, "; did you mean '", near, "'?");
  ddh::fail(
      DDH_INVALID_ARGUMENT, "unknown key '", wish.key, "' ", place, "; '", section.name, "' takes ", list,
      section.plugin.empty() ? "" : " here; another plugin may have this option (`ddhost inspect NAME` shows them)");
}

// "offload_param" or "offload_param." if there is "offload_param.device".
bool has_options_below(const Section& section, const std::string& name) {
  const std::string prefix = name.back() == '.' ? name : name + ".";
  const auto lies_below = [&](const auto& named) { return named.name.rfind(prefix, 0) == 0; };
  return std::any_of(section.schema.options.begin(), section.schema.options.end(), lies_below) ||
         std::any_of(section.schema.aliases.begin(), section.schema.aliases.end(), lies_below);
}

// Whether the value is null and null has no meaning for the option.
bool is_not_given(const Option& option, const Json& value) {
  const bool has_word = option.spellings.is_object() && option.spellings.contains("null");
  return value.is_null() && !has_word && option.takes("null") == option.preset.is_null();
}

bool takes_only_text(const Option& option) { return option.takes("string") && option.types.size() == 1; }

// A word that parses as JSON but must be a string: run.name=2024.
Json value_for(const Option& option, const Wish& wish) {
  if (!wish.from_file && takes_only_text(option) && !wish.value.is_string() && !wish.value.is_null()) return wish.text;
  return wish.value;
}

// The option of a full key, or nullptr.
const Option* find_option(const std::vector<Section>& sections, const std::string& key) {
  const Section* section = find_section(sections, head_of(key));
  return section == nullptr ? nullptr : section->schema.find(tail_of(key));
}

// Converts the number of an alias to the unit of its key.
Json in_unit_of_key(const Wish& wish, const Option& meant, const std::string& key, double scale) {
  if (wish.value.is_null()) return wish.value;
  if (!wish.value.is_number())
    ddh::fail(DDH_INVALID_ARGUMENT, wish.key, " = ", shown(wish.value), " ", where(wish),
              " is not a number; it stands for ", key, " = ", number_text(scale), " * ", wish.key,
              wish.value == Json("auto") ? "; leave it out for the default" : "");
  const double exact = wish.value.get<double>() * scale;
  if (meant.takes("number")) return exact;
  const double whole = exact < 0 ? std::floor(exact) : std::ceil(exact);  // away from zero: a fraction counts as a byte
  return std::abs(whole) < 0x1p63 ? Json(static_cast<int64_t>(whole)) : Json(whole);
}

// Interprets the user's values in order.
class Reader {
 public:
  Reader(const std::vector<Section>& sections, const std::vector<Wish>& wishes, bool plugin_sections)
      : sections_(sections), plugin_sections_(plugin_sections) {
    for (const Wish& wish : wishes) {
      if (wish.from_file) in_file_.insert(wish.key);
      if (!wish.from_file && wish.value.is_null()) taken_back_.insert(wish.key);
    }
  }

  void read(const Wish& wish) {
    const Section* section = find_section(sections_, head_of(wish.key));
    if (section == nullptr && (is_taken_back(wish) || is_open(wish))) return;
    if (section == nullptr) unknown_section(wish, sections_);
    const std::string name = tail_of(wish.key);
    if (name.empty()) return read_section(wish, *section);
    check_form(wish, *section, section->schema.find(name));
    if (is_object(wish, *section, name) || is_entry(wish, *section, name)) return;
    const Option* option = section->schema.find(name);
    const Alias* alias = option == nullptr ? section->schema.find_alias(name) : nullptr;
    if (alias != nullptr) option = section->schema.find(alias->key);
    if (option == nullptr && !plugin_sections_ && is_plugin_section(section->name)) return;
    if (option == nullptr && is_taken_back(wish)) return;
    if (option == nullptr) unknown_key(wish, *section, sections_);
    const std::string key = section->name + "." + option->name;
    if (is_not_given(*option, wish.value)) {
      if (!wish.from_file) take_back(wish.key, key_of(*option, key));
    } else if (!option->sets.empty()) {
      add_elsewhere(wish, *option);
    } else {
      const bool has_unit = alias != nullptr && alias->scale != 1.0;
      add(wish, *option, key, has_unit ? in_unit_of_key(wish, *option, key, alias->scale) : value_for(*option, wish),
          has_unit);
      if (alias != nullptr) given_.back().defaults = alias->defaults;
    }
  }

  // No name of an option takes precedence over another. But the command line takes precedence over the file.
  std::vector<Given> take() {
    for (auto b = given_.begin(); b != given_.end(); ++b)
      for (auto a = given_.begin(); a != b; ++a)
        if (a->key == b->key && a->from_file == b->from_file && a->value != b->value)
          ddh::fail(DDH_INVALID_ARGUMENT, a->said, " and ", b->said, " are two names of ", a->key,
                    "; leave one of them out, or give both the same value");
    return std::move(given_);
  }

 private:
  static std::string key_of(const Option& option, const std::string& key) {
    return option.sets.empty() ? key : option.sets;
  }

  // What begins as JSON must be JSON, unless the option takes a text.
  void check_form(const Wish& wish, const Section& section, const Option* option) const {
    const bool is_open = option == nullptr && !plugin_sections_ && is_plugin_section(section.name);
    if (wish.problem.empty() || is_open || (option != nullptr && takes_only_text(*option))) return;
    ddh::fail(DDH_INVALID_ARGUMENT, "the value of '", wish.key, "': ", wish.problem);
  }

  static void read_section(const Wish& wish, const Section& section) {
    if (wish.from_file && wish.value.is_null() && wish.key == section.name + ".") return;  // an empty section
    ddh::fail(DDH_INVALID_ARGUMENT, "'", section.name, "' ", where(wish),
              " is a section; name one of its keys, such as ", section.name, ".", section.schema.options.front().name,
              "=...");
  }

  // Handles an object and null for "offload_param" if there is "offload_param.device". Returns whether this was such a
  // value.
  bool is_object(const Wish& wish, const Section& section, const std::string& name) {
    const bool is_word = !wish.from_file && wish.value.is_object();
    if (is_word && wish.value.empty() && has_options_below(section, name)) return true;
    const bool has_value = section.schema.find(name) != nullptr || section.schema.find_alias(name) != nullptr;
    if (is_word && !has_value && has_options_below(section, name)) {
      for (const auto& [part, value] : wish.value.items()) {
        Wish inner = wish;
        inner.key += "." + part;
        inner.value = value;
        inner.text = value.is_string() ? value.get<std::string>() : value.dump();
        read(inner);
      }
      return true;
    }
    if (!wish.value.is_null() || has_value || !has_options_below(section, name)) return false;
    if (wish.from_file) return true;
    if (name.back() == '.') return false;
    const std::string below = name + ".", prefix = section.name + ".";
    for (const Option& option : section.schema.options)
      if (option.name.starts_with(below)) take_back(wish.key, key_of(option, prefix + option.name));
    for (const Alias& alias : section.schema.aliases)
      if (alias.name.starts_with(below)) take_back(wish.key, prefix + alias.key);
    return true;
  }

  // Adds "micro_batch.cf" as the entry "cf" of the option "micro_batch_of", which takes an object. Returns whether the key
  // names such an entry.
  bool is_entry(const Wish& wish, const Section& section, const std::string& name) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      for (const char* further : {"_of", ""}) {
        const Option* option = section.schema.find(name.substr(0, dot) + further);
        if (option == nullptr || !option->takes("object") || dot + 1 == name.size()) continue;
        add_entry(wish, *option, section.name + "." + option->name, name.substr(dot + 1));
        return true;
      }
    }
    return false;
  }
  void add_entry(const Wish& wish, const Option& option, const std::string& key, const std::string& entry) {
    const auto same = [&](const Given& g) { return g.key == key && g.from_file == wish.from_file; };
    const auto before = std::find_if(given_.rbegin(), given_.rend(), [&](const Given& g) { return g.key == key; });
    Json value = before == given_.rend() || !before->value.is_object() ? Json::object() : before->value;
    value[entry] = wish.value;
    if (wish.value.is_null()) value.erase(entry);
    std::erase_if(given_, same);
    given_.push_back({key, key, checked_value(option, std::move(value), wish.key, where(wish)), &option, wish.from_file,
                      wish.source, ddh::str(wish.key, " = ", shown(wish.value), " ", where(wish)), ""});
  }

  // After the user chose another plugin, the file may have a key that no plugin of this run has. Null on the command line
  // removes it. Returns whether `wish` is such a key or such a null.
  [[nodiscard]] bool is_taken_back(const Wish& wish) const {
    return wish.from_file ? taken_back_.contains(wish.key) : wish.value.is_null() && in_file_.contains(wish.key);
  }

  // Whether a transport that is not known yet decides if there is such a section.
  [[nodiscard]] bool is_open(const Wish& wish) const {
    const std::string section = head_of(wish.key);
    return !plugin_sections_ && (section == kHostCommSection || section == kInsideCommSection);
  }

  // Null on the command line removes the file's value of the key, under any name, and an earlier value of this name.
  void take_back(const std::string& name, const std::string& key) {
    std::erase_if(given_, [&](const Given& g) { return g.key == key && (g.from_file || g.name == name); });
  }

  void add(const Wish& wish, const Option& option, const std::string& key, Json value, bool has_unit) {
    const std::string as = wish.key == key ? "" : " (as " + wish.key + ")";
    const std::string said = wish.key + " = " + shown(wish.value), unit = has_unit ? " (given as " + said + ")" : "";
    const bool is_as_written = !wish.from_file && wish.value.is_number() && !has_unit;
    value = checked_value(option, std::move(value), has_unit ? key : wish.key, where(wish) + unit,
                          is_as_written ? wish.text : "");
    value = with_absolute_paths(option, std::move(value), wish.base);
    std::erase_if(given_, [&](const Given& g) { return g.name == wish.key && g.from_file == wish.from_file; });
    given_.push_back({key, wish.key, std::move(value), &option, wish.from_file, wish.source + as,
                      said + " " + where(wish), words_of(wish, key, has_unit ? said : wish.key)});
  }

  static std::string words_of(const Wish& wish, const std::string& key, const std::string& name) {
    if (wish.source.starts_with("--")) return wish.source;
    return wish.key == key ? "" : name;
  }

  // The value of an option that is another name for a key of another section.
  void add_elsewhere(const Wish& wish, const Option& option) {
    const Option* target = find_option(sections_, option.sets);
    if (target == nullptr)
      ddh::fail(DDH_INVALID_ARGUMENT, wish.key, " is another name for '", option.sets,
                "', which is not an option; fix the plugin");
    add(wish, *target, option.sets, checked_value(option, value_for(option, wish), wish.key, where(wish)),
        /*has_unit=*/false);
  }

  const std::vector<Section>& sections_;
  const bool plugin_sections_;
  std::vector<Given> given_;
  std::set<std::string> in_file_, taken_back_;  // keys; the second: null on the command line
};

}  // namespace

std::vector<Given> values_given(const UserConfig& user, const std::vector<Section>& sections, bool plugin_sections) {
  Reader reader(sections, user.wishes(), plugin_sections);
  for (const Wish& wish : user.wishes())
    if (!wish.replaced) reader.read(wish);
  return reader.take();
}

}  // namespace ddhost
