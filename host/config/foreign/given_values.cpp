// SPDX-License-Identifier: Apache-2.0
#include "config/foreign/given_values.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr uint64_t kMostForeignBytes = uint64_t{1} << 20;
constexpr const char* kAuto = "auto";

std::string last_part(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

class Gatherer {
 public:
  Gatherer(const ForeignTable& table, const ForeignContext& context, const ForeignText& text, const std::string& file)
      : table_(table),
        context_(context),
        text_(text),
        version_(context.version.empty() ? table.newest : context.version) {
    out_.file = file;
  }

  GivenValues gather() {
    walk(text_.root, "", "");
    for (const ForeignKey& key : table_.keys)
      if (key.line.is_object()) take_from_line(key);
    return std::move(out_);
  }

 private:
  [[nodiscard]] ForeignOrigin origin(const std::string& path, const Json& value) const {
    return {path, value, ForeignOrigin::Kind::given, out_.file, text_.line_of(path), table_.program};
  }
  void refuse(const ForeignOrigin& from, const std::string& sentence) { out_.refused.push_back({from, sentence}); }

  // `path` is the file's, `name` the table's.
  void walk(const Json& object, const std::string& path, const std::string& name) {
    for (const auto& [part, value] : object.items()) {
      const std::string here = path.empty() ? part : path + "." + part,
                        meant = name_of(name.empty() ? part : name + "." + part);
      const ForeignKey* key = find(meant);
      const bool has_below = table_.has_below(meant);
      if (value.is_object() && has_below && !(key != nullptr && is_open(*key))) {
        walk(value, here, meant);
      } else if (key != nullptr) {
        check_fields(*key, here, value);
        take(*key, here, value);
      } else if (has_below && value.is_null()) {
        continue;
      } else if (has_below) {
        refuse(origin(here, value),
               "= " + shown(value) + " is not an object; write {\"" + first_below(meant) + "\": ...}");
      } else {
        refuse(origin(here, value), unknown(name, part));
      }
    }
  }

  // An object whose values are not looked at may have certain keys alone.
  void check_fields(const ForeignKey& key, const std::string& path, const Json& value) {
    if (!value.is_object() || key.fields.empty()) return;
    for (const auto& [part, inner] : value.items()) {
      if (std::find(key.fields.begin(), key.fields.end(), part) != key.fields.end()) continue;
      refuse(origin(path + "." + part, inner), unknown_of(part, key.fields));
    }
  }

  static bool is_open(const ForeignKey& key) {
    return std::find(key.types.begin(), key.types.end(), "open") != key.types.end();
  }
  // Other names of objects, such as "bfloat16".
  [[nodiscard]] std::string name_of(const std::string& name) const { return table_.sections.value(name, name); }

  // By its name, or another one.
  [[nodiscard]] const ForeignKey* find(const std::string& name) const {
    if (const ForeignKey* key = table_.find(name)) return key;
    for (const ForeignKey& key : table_.keys)
      if (std::find(key.also.begin(), key.also.end(), name) != key.also.end()) return &key;
    return nullptr;
  }

  [[nodiscard]] std::string first_below(const std::string& name) const {
    for (const ForeignKey& key : table_.keys)
      if (key.name.starts_with(name + "."))
        return key.name.substr(name.size() + 1, key.name.find('.', name.size() + 1) - name.size() - 1);
    return "";
  }

  // The sentence for a key that the table does not have, with the nearest name of its object, or its place elsewhere.
  [[nodiscard]] std::string unknown(const std::string& object, const std::string& part) const {
    std::vector<std::string> here;
    std::string elsewhere;
    const std::string prefix = object.empty() ? "" : object + ".";
    for (const ForeignKey& key : table_.keys) {
      const auto add = [&](const std::string& name) {
        if (name.starts_with(prefix))
          here.push_back(name.substr(prefix.size(), name.find('.', prefix.size()) - prefix.size()));
        if (!elsewhere.empty() || !key.removed.empty()) return;
        if (last_part(name) == part) elsewhere = name;
        if (name.starts_with(part + ".")) elsewhere = part;
      };
      add(key.name);
      for (const std::string& name : key.also) add(name);
    }
    if (!elsewhere.empty()) return "is no key of " + table_.program + " there; it belongs at " + elsewhere;
    return unknown_of(part, here);
  }

  [[nodiscard]] std::string unknown_of(const std::string& part, const std::vector<std::string>& known) const {
    const std::string near = nearest(part, known);
    if (!near.empty()) return "is no key of " + table_.program + "; did you mean '" + near + "'?";
    return "is no key of " + table_.program + "; remove it, or correct its name";
  }

  void take(const ForeignKey& key, const std::string& path, Json value) {
    const ForeignOrigin from = origin(path, value);
    const ForeignKey* target = &key;
    if (!key.stands_for.empty()) {
      const std::string word = value.is_string() ? value.get<std::string>() : value.dump();
      if (!key.stands_as.contains(word)) {
        std::string list;
        for (const auto& [text, unused] : key.stands_as.items()) list += (list.empty() ? "" : ", ") + text;
        return refuse(from, "= " + shown(value) + " is none of " + list + "; give one of them");
      }
      value = key.stands_as[word];
      target = table_.find(key.stands_for);
    }
    const bool takes_null = std::find(target->types.begin(), target->types.end(), "null") != target->types.end();
    if (value.is_null() && !takes_null && target->preset.is_null())  // as if it were not there
      return out_.set(target->name + "#" + path, {value, from, false, false});
    GivenValue given{std::move(value), from, false, false};
    if (given.value == Json(kAuto)) {
      if (!fill(*target, given)) return refuse(from, "= \"auto\" has no meaning for this key; give a value");
    } else if (const std::string wrong = misfit(*target, given.value); !wrong.empty()) {
      refuse(from, wrong);
      given.is_bad = true;
    }
    const GivenValue* before = out_.find(target->name);
    if (before != nullptr && before->value != given.value && !before->is_bad && !given.is_bad)
      return refuse(from, "= " + shown(from.value) + " and " + before->from.key + " = " + shown(before->from.value) +
                              " are two names of one setting with different values; leave one of them out");
    if (before == nullptr) return out_.set(target->name, std::move(given));
    out_.set(target->name + "#" + path, std::move(given));  // said twice: both are accounted for
  }

  // What "auto" means; false: nothing.
  bool fill(const ForeignKey& key, GivenValue& given) const {
    given.from.kind = ForeignOrigin::Kind::automatic;
    if (key.automatic.is_object()) {
      const std::string own = key.automatic.value("from", "");
      const std::optional<Json> users = own.empty() ? std::nullopt : context_.given(own);
      given.value = users ? *users : key.automatic["else"];
      given.is_guess = !users;
      return true;
    }
    const auto is_below = [&](const std::string& object) { return key.name.starts_with(object + "."); };
    if (std::none_of(table_.drops.begin(), table_.drops.end(), is_below)) return false;
    given.value = key.preset_in(version_);
    return true;
  }

  // What other keys say depends on it: the line changes all of them together.
  void take_from_line(const ForeignKey& key) {
    if (!context_.on_command_line) return;
    std::optional<Json> users = context_.on_command_line(key.line["from"].get<std::string>());
    if (users && key.line.contains("values"))
      users = users->is_string() ? key.line["values"].value(users->get<std::string>(), Json()) : Json();
    if (!users || users->is_null()) return;
    const GivenValue* const own = out_.find(key.name);
    if (own != nullptr && own->is_bad) return;
    if (*users == (own == nullptr ? key.preset_in(version_) : own->value)) return;
    ForeignOrigin from{key.name, *users, ForeignOrigin::Kind::derived, out_.file, 0, table_.program};
    if (own != nullptr) from = own->from;
    out_.set(key.name, {*std::move(users), std::move(from), false, false});
  }

  const ForeignTable& table_;
  const ForeignContext& context_;
  const ForeignText& text_;
  const std::string version_;
  GivenValues out_;
};

std::string at_line(size_t line) { return line == 0 ? "" : ddh::str(", line ", line); }

}  // namespace

std::string read_foreign_file(const fs::path& file) {
  const std::string name = "'" + file.string() + "'";
  std::string text = ddh::read_input(file.string(), {"configuration file", "check its path"}, kMostForeignBytes);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    ddh::fail(DDH_INVALID_ARGUMENT, "configuration file ", name, " is empty; give the file that you train with");
  if (text.find('\0') != std::string::npos || !is_utf8(text))
    ddh::fail(DDH_INVALID_ARGUMENT, "configuration file ", name,
              " is not UTF-8 (UTF-16 and other encodings are not read); save it as UTF-8");
  return text;
}

namespace {

ForeignText read_text_of(const fs::path& file, bool is_yaml) {
  const std::string text = read_foreign_file(file);
  try {
    return is_yaml ? read_yaml(text) : read_relaxed_json(text);
  } catch (const ForeignTextError& error) {
    ddh::fail(DDH_INVALID_ARGUMENT, "'", file.string(), "'", at_line(error.line), ": ", error.what(),
              "; correct it there");
  }
}

bool is_yaml_by_name(const fs::path& file) { return file.extension() == ".yaml" || file.extension() == ".yml"; }

}  // namespace

void require_readable(const fs::path& file) { static_cast<void>(read_text_of(file, is_yaml_by_name(file))); }

GivenValues given_values(const ForeignTable& table, const fs::path& file, const ForeignContext& context) {
  const ForeignText read = read_text_of(file, table.is_yaml);
  if (!read.root.is_object())
    ddh::fail(DDH_INVALID_ARGUMENT, "'", file.string(), "' holds ", shown(read.root), ", but ", table.is,
              " is an object; give the right file");
  return Gatherer(table, context, read, file.string()).gather();
}

const ForeignTable* table_of_file(const fs::path& file) {
  std::error_code ec;
  if (!fs::is_regular_file(file, ec)) return nullptr;
  std::string text;
  try {
    text = read_foreign_file(file);
  } catch (const ddh::Error&) {
    return nullptr;  // whoever reads it says so
  }
  for (const ForeignTable& table : foreign_tables()) {
    if (table.keys.empty()) continue;  // it has words alone
    try {
      const Json root = table.is_yaml ? read_yaml(text).root : read_relaxed_json(text).root;
      if (!root.is_object()) continue;
      const auto has = [&](const Json& key) { return root.contains(key.get<std::string>()); };
      const Json all = table.known_by.value("all", Json::array()), any = table.known_by.value("any", Json::array());
      const bool is_any = any.empty() || std::any_of(any.begin(), any.end(), has);
      if (is_any && std::all_of(all.begin(), all.end(), has)) return &table;
    } catch (const ForeignTextError&) {
      continue;
    }
  }
  return nullptr;
}

}  // namespace ddhost
