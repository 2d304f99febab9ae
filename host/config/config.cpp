// SPDX-License-Identifier: Apache-2.0
//
// config/config.cpp: merging, checking and typed reading of the configuration.
#include "config/config.hpp"

#include <algorithm>
#include <cmath>

#include "config/nearest.hpp"
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
  return (base / path).lexically_normal().string();
}

Json with_absolute_paths(const Option& option, Json value, const fs::path& base) {
  if (!option.is_path) return value;
  if (value.is_string()) value = absolute_text(value.get<std::string>(), base);
  if (value.is_array())
    for (Json& item : value)
      if (item.is_string()) item = absolute_text(item.get<std::string>(), base);
  return value;
}

const Section* find_section(const std::vector<Section>& sections, const std::string& name) {
  const auto at = std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.name == name; });
  return at == sections.end() ? nullptr : &*at;
}

[[noreturn]] void unknown_section(const Wish& wish, const std::vector<Section>& sections) {
  if (head_of(wish.key).starts_with(kFurtherOptimizer))
    ddh::fail(DDH_INVALID_ARGUMENT, "section '", head_of(wish.key), "' ", where(wish),
              " belongs to no optimizer of the run; name it in train.optimizers, after 'optimizer'");
  std::vector<std::string> names;
  std::string list, same_name;
  for (const Section& section : sections) {
    names.push_back(section.name);
    list += (list.empty() ? "" : ", ") + section.name;
    if (section.schema.find(wish.key) != nullptr) same_name = section.name + "." + wish.key;
  }
  const std::string near = nearest(head_of(wish.key), names);
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
    here.push_back(section.name + "." + option.name);
    list += (list.empty() ? "" : ", ") + option.name;
  }
  for (const Alias& alias : section.schema.aliases) here.push_back(section.name + "." + alias.name);
  const std::string place = where(wish) + (section.plugin.empty() ? "" : " for " + section.plugin);
  std::string near = nearest(wish.key, here);
  if (near.empty()) {
    // The right name in the wrong section: model.lr for optimizer.lr.
    for (const std::string& key : everywhere)
      if (tail_of(key) == tail_of(wish.key)) near = key;
  }
  if (near.empty()) near = nearest(wish.key, everywhere);
  if (!near.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "unknown key '", wish.key, "' ", place, "; did you mean '", near, "'?");
  ddh::fail(DDH_INVALID_ARGUMENT, "unknown key '", wish.key, "' ", place, "; '", section.name, "' takes ", list);
}

// "offload_param" or "offload_param." where there is "offload_param.device".
bool has_options_below(const Section& section, const std::string& name) {
  const std::string prefix = name.back() == '.' ? name : name + ".";
  const auto lies_below = [&](const auto& named) { return named.name.rfind(prefix, 0) == 0; };
  return std::any_of(section.schema.options.begin(), section.schema.options.end(), lies_below) ||
         std::any_of(section.schema.aliases.begin(), section.schema.aliases.end(), lies_below);
}

// Null where the option has no meaning of its own for it.
bool is_not_given(const Option& option, const Json& value) {
  const bool has_word = option.spellings.is_object() && option.spellings.contains("null");
  return value.is_null() && !has_word && option.takes("null") == option.preset.is_null();
}

// A word that reads as JSON but where only a string is meant: run.name=2024.
Json value_for(const Option& option, const Wish& wish) {
  const bool only_text = option.takes("string") && option.types.size() == 1;
  if (!wish.from_file && only_text && !wish.value.is_string() && !wish.value.is_null()) return wish.text;
  return wish.value;
}

}  // namespace

Config::Config(const UserConfig& user, const std::vector<Section>& sections, bool plugin_sections) {
  for (const Section& section : sections)
    for (const Option& option : section.schema.options) set(section.name + "." + option.name, option.preset, "default");
  for (const Wish& wish : user.wishes()) apply(wish, sections, plugin_sections);
  refuse_contradictions();
  set_elsewhere(sections);
  named_.clear();
  for (const Section& section : sections) {
    for (const Option& option : section.schema.options) {
      const std::string key = section.name + "." + option.name;
      if (at(key).value.is_null() && !option.takes("null"))
        ddh::fail(DDH_INVALID_ARGUMENT, key, " has no default; give it (", option.description, ")");
      warn_of_idle(key, option);
    }
  }
}

void Config::apply(const Wish& wish, const std::vector<Section>& sections, bool plugin_sections) {
  const Section* section = find_section(sections, head_of(wish.key));
  const std::string name = tail_of(wish.key);
  if (section != nullptr && name.empty()) {
    if (wish.from_file && wish.value.is_null() && wish.key == section->name + ".") return;  // an empty section
    ddh::fail(DDH_INVALID_ARGUMENT, "'", section->name, "' ", where(wish),
              " is a section; name one of its keys, such as ", section->name, ".", section->schema.options.front().name,
              "=...");
  }
  if (section == nullptr) unknown_section(wish, sections);
  if (apply_to_object(wish, *section, name, sections)) return;
  const Option* option = section->schema.find(name);
  const Alias* alias = option == nullptr ? section->schema.find_alias(name) : nullptr;
  if (option == nullptr && alias == nullptr) {
    if (!plugin_sections && is_plugin_section(section->name)) return;
    unknown_key(wish, *section, sections);
  }
  const Option& meant = option != nullptr ? *option : *section->schema.find(alias->key);
  if (is_not_given(meant, wish.value)) {
    if (!wish.from_file) take_back(wish, *section, meant, sections);
    return;
  }
  if (option != nullptr && !option->sets.empty()) {
    const Json value = checked_value(*option, value_for(*option, wish), wish.key, where(wish));
    borrowed_[wish.key] = {option->sets, value, wish.source, where(wish), wish.from_file};
    return;
  }
  if (option != nullptr) {
    const Json value = checked_value(*option, value_for(*option, wish), wish.key, where(wish));
    return take(wish, wish.key, with_absolute_paths(*option, value, wish.base));
  }
  const std::string key = section->name + "." + alias->key;
  const std::string here = where(wish) + " (as " + wish.key + ")";
  if (alias->scale == 1.0)  // another name, no other unit
    return take(wish, key,
                with_absolute_paths(meant, checked_value(meant, value_for(meant, wish), key, here), wish.base));
  if (wish.value.is_null() && meant.takes("null")) return take(wish, key, wish.value);
  if (!wish.value.is_number())
    ddh::fail(DDH_INVALID_ARGUMENT, wish.key, " = ", wish.value.dump(), " ", where(wish),
              " is not a number; it stands for ", key, " = ", number_text(alias->scale), " * ", wish.key,
              wish.value == Json("auto") ? "; leave it out for the default" : "");
  // Away from zero: a little is not nothing, and less than nothing stays out of range.
  const double exact = wish.value.get<double>() * alias->scale;
  const double whole = exact < 0 ? std::floor(exact) : std::ceil(exact);
  take(wish, key, checked_value(meant, meant.takes("number") ? exact : whole, key, here));
}

// `{}` and null for "offload_param" where there is "offload_param.device": whether the wish was such a one.
bool Config::apply_to_object(const Wish& wish, const Section& section, const std::string& name,
                             const std::vector<Section>& sections) {
  const bool is_empty_word = !wish.from_file && wish.value.is_object() && wish.value.empty();
  if (is_empty_word && has_options_below(section, name)) return true;
  const bool has_value = section.schema.find(name) != nullptr || section.schema.find_alias(name) != nullptr;
  if (!wish.value.is_null() || has_value || !has_options_below(section, name)) return false;
  if (wish.from_file) return true;
  if (name.back() == '.') return false;
  for (const Option& option : section.schema.options)
    if (option.name.rfind(name + ".", 0) == 0) take_back(wish, section, option, sections);
  for (const Alias& alias : section.schema.aliases)
    if (alias.name.rfind(name + ".", 0) == 0) take_back(wish, section, *section.schema.find(alias.key), sections);
  return true;
}

void Config::take_back(const Wish& wish, const Section& section, const Option& option,
                       const std::vector<Section>& sections) {
  const std::string key = option.sets.empty() ? section.name + "." + option.name : option.sets;
  std::erase_if(named_, [&](const Named& n) { return n.key == key && (n.from_file || n.name == wish.key); });
  std::erase_if(borrowed_,
                [&](const auto& b) { return b.second.target == key && (b.second.from_file || b.first == wish.key); });
  const auto other = std::find_if(named_.begin(), named_.end(), [&](const Named& n) { return n.key == key; });
  if (other != named_.end()) return set(key, other->value, wish.source);
  const Section* target = find_section(sections, head_of(key));
  const Option* preset_of = target == nullptr ? nullptr : target->schema.find(tail_of(key));
  if (preset_of != nullptr) set(key, preset_of->preset, "default");
}

void Config::take(const Wish& wish, const std::string& key, Json value) {
  Named named{key, wish.key, wish.from_file, value, ddh::str(wish.key, " = ", wish.value.dump(), " ", where(wish))};
  const auto same_name = [&](const Named& n) { return n.name == named.name && n.from_file == named.from_file; };
  const auto before = std::find_if(named_.begin(), named_.end(), same_name);
  if (before == named_.end())
    named_.push_back(std::move(named));
  else
    *before = std::move(named);
  set(key, std::move(value), wish.key == key ? wish.source : wish.source + " (as " + wish.key + ")");
}

// Names have no order that a user sees, so none of them can win; the command line's do win over the file's.
void Config::refuse_contradictions() const {
  for (auto b = named_.begin(); b != named_.end(); ++b)
    for (auto a = named_.begin(); a != b; ++a)
      if (a->key == b->key && a->from_file == b->from_file && a->value != b->value)
        ddh::fail(DDH_INVALID_ARGUMENT, a->said, " and ", b->said, " are two names of ", a->key,
                  "; leave one of them out, or give both the same value");
}

// After all layers: the key itself may be given too. On the command line it wins over another name in the file; in one
// layer neither does.
void Config::set_elsewhere(const std::vector<Section>& sections) {
  for (const auto& [key, wish] : borrowed_) {
    const Section* section = find_section(sections, head_of(wish.target));
    const Option* option = section == nullptr ? nullptr : section->schema.find(tail_of(wish.target));
    if (option == nullptr)
      ddh::fail(DDH_INVALID_ARGUMENT, key, " stands for '", wish.target, "', which is no option; mend the plugin");
    const Json value = checked_value(*option, wish.value, wish.target, wish.where + " (as " + key + ")");
    const auto given = [&, &target = wish.target](bool from_file) {
      return std::find_if(named_.begin(), named_.end(),
                          [&](const Named& n) { return n.key == target && n.from_file == from_file; });
    };
    const auto beside = given(wish.from_file);
    if (beside != named_.end() && beside->value != value)
      ddh::fail(DDH_INVALID_ARGUMENT, key, " = ", wish.value.dump(), " ", wish.where, " stands for ", wish.target,
                ", which is ", beside->value.dump(), " by ", wish.source, "; leave one of them out");
    if (wish.from_file && given(false) != named_.end()) continue;  // the command line wins
    set(wish.target, value, wish.source + " (as " + key + ")");
  }
  borrowed_.clear();
}

void Config::warn_of_idle(const std::string& key, const Option& option) {
  const Value& given = at(key);
  if (!option.idle.empty() && given.value != option.preset)
    warnings_.push_back(
        ddh::str(key, "=", given.value.is_number_float() ? number_text(given.value.get<double>()) : given.value.dump(),
                 " changes nothing: ", option.idle));
}

void Config::set(const std::string& key, Json value, const std::string& source) {
  const auto [at, is_new] = values_.insert_or_assign(key, Value{std::move(value), source});
  if (is_new) order_.push_back(at->first);
}

const Config::Value* Config::find(std::string_view key) const {
  const auto at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

const Config::Value& Config::at(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr)
    ddh::fail(DDH_NOT_FOUND, "there is no config key '", key, "'; a key that is read must be in a schema");
  return *value;
}

namespace {
[[noreturn]] void wrong_type(std::string_view key, const Json& value, const char* wanted) {
  ddh::fail(DDH_INVALID_ARGUMENT, "config key '", key, "' is ", value.dump(), ", not ", wanted);
}
}  // namespace

template <>
int64_t Config::get<int64_t>(std::string_view key) const {
  const Json& value = at(key).value;
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number_integer()) wrong_type(key, value, "an integer");
  return value.get<int64_t>();
}

template <>
double Config::get<double>(std::string_view key) const {
  const Json& value = at(key).value;
  if (!value.is_number()) wrong_type(key, value, "a number");
  return value.get<double>();
}

template <>
bool Config::get<bool>(std::string_view key) const {
  const Json& value = at(key).value;
  if (!value.is_boolean()) wrong_type(key, value, "true or false");
  return value.get<bool>();
}

const std::string& Config::text(std::string_view key) const {
  const Json& value = at(key).value;
  if (!value.is_string()) wrong_type(key, value, "a string");
  return value.get_ref<const std::string&>();
}

template <>
std::string Config::get<std::string>(std::string_view key) const {
  return text(key);
}

template <>
std::vector<double> Config::get<std::vector<double>>(std::string_view key) const {
  const Json& value = at(key).value;
  std::vector<double> numbers;
  if (!value.is_array()) wrong_type(key, value, "an array of numbers");
  for (const Json& item : value) {
    if (!item.is_number()) wrong_type(key, value, "an array of numbers");
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

template <>
std::vector<std::string> Config::get<std::vector<std::string>>(std::string_view key) const {
  const Json& value = at(key).value;
  std::vector<std::string> texts;
  if (!value.is_array()) wrong_type(key, value, "an array of strings");
  for (const Json& item : value) {
    if (!item.is_string()) wrong_type(key, value, "an array of strings");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

Json Config::nested(bool values) const {
  Json root = Json::object();
  for (const std::string& key : order_) {
    Json* node = &root;
    size_t begin = 0;
    for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', begin)) {
      node = &(*node)[key.substr(begin, dot - begin)];
      begin = dot + 1;
    }
    const Value& value = at(key);
    (*node)[key.substr(begin)] = values ? value.value : Json(value.source);
  }
  return root;
}

Json Config::effective() const { return nested(true); }
Json Config::sources() const { return nested(false); }

}  // namespace ddhost
