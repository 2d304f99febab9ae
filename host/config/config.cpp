// SPDX-License-Identifier: Apache-2.0
//
// config/config.cpp: merging, checking and typed reading of the configuration.
#include "config/config.hpp"

#include <algorithm>
#include <cctype>

#include "config/given.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

Config::Config(const UserConfig& user, const std::vector<Section>& sections, bool plugin_sections) {
  for (const Section& section : sections)
    for (const Option& option : section.schema.options) {
      if (option.foreign) continue;
      set(section.name + "." + option.name, option.preset, "default");
      presets_[section.name + "." + option.name] = option.preset;
    }
  const std::vector<Given> given = values_given(user, sections, plugin_sections);
  for (const Given& g : given)
    for (const auto& [option, value] : g.defaults.items())
      set(g.key.substr(0, g.key.find('.') + 1) + option, value, g.source);
  for (const Given& g : given) {
    words_[g.key] = g.words;
    if (!g.option->foreign) set(g.key, g.value, g.source);
  }
  for (const Section& section : sections) {
    for (const Option& option : section.schema.options) {
      if (option.foreign) continue;
      const std::string key = section.name + "." + option.name;
      if (option.spellings.is_object()) spellings_[key] = option.spellings;
      if (at(key).value.is_null() && !option.takes("null"))
        ddh::fail(DDH_INVALID_ARGUMENT, key, " has no default; give it (", option.description, ")");
      warn_of_idle(option, key, at(key).value);
    }
  }
  // The last value of a foreign option counts, as for any other option.
  for (auto g = given.begin(); g != given.end(); ++g) {
    const auto is_later = [&](const Given& other) { return other.key == g->key; };
    if (g->option->foreign && std::none_of(g + 1, given.end(), is_later)) check_foreign(*g);
  }
}

void Config::warn_of_idle(const Option& option, const std::string& key, const Json& value) {
  if (option.idle.empty() || value == option.preset) return;
  const std::string text = value.is_number_float() ? number_text(value.get<double>()) : value.dump();
  warnings_.push_back(in_words_of_user(ddh::str(key, "=", text, " changes nothing: ", option.idle)));
}

void Config::check_foreign(const Given& given) {
  const Option& option = *given.option;
  warn_of_idle(option, given.key, given.value);
  if (option.repeats.empty() || given.value == option.preset) return;
  const std::string own = given.key.substr(0, given.key.find('.') + 1) + option.repeats;
  if (at(own).value != given.value)
    ddh::fail(DDH_INVALID_ARGUMENT,
              in_words_of_user(ddh::str(given.key, " = ", shown(given.value), " and ", own, " = ", shown(at(own).value),
                                        " differ, but ", option.description)),
              "; give both the same number");
}

void Config::set(const std::string& key, Json value, const std::string& source) {
  if (value.is_string() && !is_utf8(value.get_ref<const std::string&>()))
    ddh::fail(
        DDH_INVALID_ARGUMENT, key, " = ", shown(value),
        " is not UTF-8, so the run's configuration can't hold it; rename its folders, or start the run elsewhere");
  const auto [at, is_new] = values_.insert_or_assign(key, Value{std::move(value), source});
  if (is_new) order_.push_back(at->first);
}

namespace {

bool is_of_a_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Where a value ends that begins at `at`: a text in quotes, or a word.
size_t end_of_value(const std::string& sentence, size_t at) {
  if (at < sentence.size() && sentence[at] == '"') {
    const size_t quote = sentence.find('"', at + 1);
    return quote == std::string::npos ? sentence.size() : quote + 1;
  }
  return std::min(sentence.find_first_of(" ,;)", at), sentence.size());
}

// Where a mention of `key` ends, with its value in "key=value" and "key = value"; npos: there is none. A part of a longer
// key or of a path is no mention.
size_t end_of_mention(const std::string& sentence, const std::string& key) {
  for (size_t at = sentence.find(key); at != std::string::npos; at = sentence.find(key, at + 1)) {
    const size_t end = at + key.size();
    const char before = at == 0 ? ' ' : sentence[at - 1], after = end < sentence.size() ? sentence[end] : ' ';
    const bool goes_on = after == '.' && end + 1 < sentence.size() && is_of_a_name(sentence[end + 1]);
    if (is_of_a_name(before) || before == '.' || before == '/' || is_of_a_name(after) || after == '/' || goes_on)
      continue;
    if (after == '=') return end_of_value(sentence, end + 1);
    return sentence.compare(end, 3, " = ") == 0 ? end_of_value(sentence, end + 3) : end;
  }
  return std::string::npos;
}

}  // namespace

std::string Config::in_words_of_user(std::string sentence) const {
  for (const auto& [key, words] : words_) {
    if (words.empty() || sentence.find(words.substr(0, words.find(' '))) != std::string::npos) continue;
    const size_t end = end_of_mention(sentence, key);
    if (end == std::string::npos) continue;
    sentence.insert(end, words.starts_with("--") ? " (" + words + ")" : " (given as " + words + ")");
  }
  return sentence;
}

const Config::Value* Config::find(std::string_view key) const {
  const auto at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

Json Config::meaning_of(const std::string& key, const Json& value) const {
  const auto at = spellings_.find(key);
  if (at == spellings_.end() || !value.is_string()) return value;
  const auto word = at->second.find(value.get_ref<const std::string&>());
  return word == at->second.end() ? value : *word;
}

const Config::Value& Config::at(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr)
    ddh::fail(DDH_NOT_FOUND, "there is no config key '", key, "'; a key that is read must be in a schema");
  return *value;
}

namespace {
[[noreturn]] void wrong_type(std::string_view key, const Json& value, const char* wanted) {
  ddh::fail(DDH_INVALID_ARGUMENT, "config key '", key, "' is ", shown(value), ", not ", wanted);
}
}  // namespace

int64_t Config::integer(std::string_view key) const {
  const Json& value = at(key).value;
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number_integer()) wrong_type(key, value, "an integer");
  return value.get<int64_t>();
}

double Config::number(std::string_view key) const {
  const Json& value = at(key).value;
  if (!value.is_number()) wrong_type(key, value, "a number");
  return value.get<double>();
}

bool Config::flag(std::string_view key) const {
  const Json& value = at(key).value;
  if (!value.is_boolean()) wrong_type(key, value, "true or false");
  return value.get<bool>();
}

const std::string& Config::text(std::string_view key) const {
  const Json& value = at(key).value;
  if (!value.is_string()) wrong_type(key, value, "a string");
  return value.get_ref<const std::string&>();
}

std::vector<double> Config::numbers(std::string_view key) const {
  const Json& value = at(key).value;
  std::vector<double> numbers;
  if (!value.is_array()) wrong_type(key, value, "an array of numbers");
  for (const Json& item : value) {
    if (!item.is_number()) wrong_type(key, value, "an array of numbers");
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::vector<std::string> Config::texts(std::string_view key) const {
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

Json Config::given() const {
  Json out = Json::array();
  for (const std::string& key : order_) {
    const Value& value = at(key);
    const auto preset = presets_.find(key);
    const Json usual = preset == presets_.end() ? Json() : preset->second;
    if (value.value != usual) out.push_back({{"key", key}, {"source", value.source}, {"default", usual}});
  }
  return out;
}

Json Config::effective() const { return nested(true); }
Json Config::sources() const { return nested(false); }

std::unique_ptr<RunConfig> Config::with_section(const std::string& section, const char* schema,
                                                const std::string& owner, const std::string& options) const {
  auto out = std::make_unique<Config>(*this);
  const Json given = Json::parse(options.empty() ? "{}" : options, nullptr, /*allow_exceptions=*/false);
  if (!given.is_object())
    ddh::fail(DDH_INVALID_ARGUMENT, "the options of section '", section, "' are no JSON object: ", options);
  const Schema known = parse_schema(schema, owner);
  for (const auto& [name, value] : given.items())
    if (known.find(name) == nullptr) ddh::fail(DDH_INVALID_ARGUMENT, owner, " has no option '", name, "'");
  for (const Option& option : known.options) {
    const std::string key = section + "." + option.name;
    const auto wish = given.find(option.name);
    out->set(key, wish == given.end() ? option.preset : checked_value(option, *wish, key, "by the strategy"),
             "derived");
  }
  return out;
}

}  // namespace ddhost
