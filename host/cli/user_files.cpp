// SPDX-License-Identifier: Apache-2.0
#include "cli/user_files.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "config/host_schema.hpp"
#include "ddh/sdk/plugin.hpp"
#include "plan/prepare.hpp"

namespace ddhost {
namespace {

constexpr size_t kMostNamed = 12;  // keys in one note

// The user's value of one of our keys; "precision.compute=fp16" asks whether it is that.
std::optional<Json> users_value(const UserConfig& user, const std::string& key, bool on_command_line) {
  const size_t equals = key.find('=');
  const std::string name = key.substr(0, equals);
  const Wish* const wish = on_command_line ? user.find_on_command_line(name) : user.find(name);
  if (wish == nullptr || wish->value.is_null()) return std::nullopt;
  if (equals == std::string::npos) return wish->value;
  return Json(wish->value == Json(key.substr(equals + 1)));
}

// Keys of the file that have no effect here, and are not at their default.
std::string idle_text(const Translation& translation) {
  std::string text;
  size_t count = 0;
  for (const Translation::Idle& idle : translation.idle) {
    const ForeignKey* const key = translation.table->find(idle.from.key);
    if (idle.from.kind != ForeignOrigin::Kind::given ||
        (key != nullptr && key->preset_in(translation.version) == idle.from.value))
      continue;
    if (++count <= kMostNamed) text += (text.empty() ? "" : ", ") + idle.from.key;
  }
  if (count > kMostNamed) text += ddh::str(" and ", count - kMostNamed, " more");
  return text;
}

void add_notes(const Translation& translation, std::vector<std::string>& notes) {
  notes.push_back(ddh::str("'", translation.file, "' is taken as ", translation.table->is, " ", translation.version,
                           "; `ddhost convert ", translation.file, "` says what became of each key"));
  if (const std::string idle = idle_text(translation); !idle.empty())
    notes.push_back(ddh::str("of '", translation.file, "' these keys have no effect here: ", idle));
}

std::string source_of(const Translation::Line& line) {
  const std::string place = line.from.line == 0 ? "" : ddh::str(", line ", line.from.line);
  const std::string file = "'" + line.from.file + "'" + place + " (";
  if (line.from.kind == ForeignOrigin::Kind::preset)
    return file + "the default of " + line.from.program + " for " + line.from.key + ")";
  return file + line.from.key + (line.from.kind == ForeignOrigin::Kind::automatic ? " = auto)" : ")");
}

// The file's values go on top of those of a file of ours, its defaults below them.
void put_values(const Translation& translation, UserConfig& user) {
  std::vector<Wish> given, presets;
  for (const Translation::Line& line : translation.lines) {
    const Wish wish{line.key, line.value, "", true, source_of(line), std::filesystem::current_path()};
    (line.from.kind == ForeignOrigin::Kind::preset ? presets : given).push_back(wish);
  }
  user.put_foreign(given, presets);
}

// Error: a file says what a word of the line denies.
void check_denied(const std::vector<DeniedValue>& denied, const UserConfig& user) {
  for (const DeniedValue& one : denied)
    if (const Wish* const wish = user.find(one.key);
        wish != nullptr && wish->from_file && wish->value == Json(one.value))
      throw ForeignFileError(DDH_INVALID_ARGUMENT, ddh::str(wish->source, " gives ", one.key, "=", one.value, ", and ",
                                                            one.word, " says the contrary; leave one of them out"));
}

// Error: there is none.
const ForeignTable& table_for(const std::filesystem::path& file) {
  if (const ForeignTable* const table = table_of_file(file)) return *table;
  require_readable(file);
  ddh::fail(DDH_INVALID_ARGUMENT, "'", file.string(),
            "' is no configuration file of another program that this program knows; give one with --config if it is ",
            "a file of ours, which are JSON");
}

// Error: the file for another program is one of ours.
void refuse_ours(const ForeignChoice& choice) {
  if (choice.format.empty()) return;
  const ForeignTable& table = *foreign_table(choice.format);
  bool is_ours = false;
  try {
    const std::vector<Section> sections = host_sections();
    const UserConfig file = UserConfig::read(choice.file, {});
    for (const Wish& wish : file.wishes()) {
      const std::string name = wish.key.substr(0, wish.key.find('.'));
      if (std::none_of(sections.begin(), sections.end(), [&](const Section& one) { return one.name == name; })) return;
      is_ours = is_ours || (table.find(name) == nullptr && !table.has_below(name));
    }
  } catch (const ddh::Error&) {
    return;  // whoever reads it says what is wrong
  }
  if (is_ours)
    ddh::fail(DDH_INVALID_ARGUMENT, "'", choice.file.string(), "' is a configuration file of this program, and not of ",
              table.program, "; give it with --config");
}

}  // namespace

void check_compat(const CommandLine& line, const std::string& format) {
  if (!line.compat_format.empty() && line.compat_format != format)
    throw ForeignFileError(
        DDH_INVALID_ARGUMENT,
        ddh::str("--compat ", line.compat_format, "-", line.compat_version, " fits no file that is given",
                 format.empty() ? "" : ", which is one of " + foreign_table(format)->program,
                 "; leave it out, or give a file of that program"));
}

Translation translate_for(const ForeignChoice& choice, const UserConfig& user, const std::function<int64_t()>& ranks) {
  refuse_ours(choice);
  const ForeignTable& table = choice.format.empty() ? table_for(choice.file) : *foreign_table(choice.format);
  return translate_file(table, choice.file,
                        {ranks, [&](const std::string& key) { return users_value(user, key, false); }, choice.version,
                         [&](const std::string& key) { return users_value(user, key, true); }});
}

UserFiles read_user_files(const CommandLine& line, const std::vector<Override>& overrides, const Registry& registry) {
  std::vector<ForeignChoice> foreign = line.foreign;
  std::filesystem::path own = line.config_file;
  if (!own.empty() && table_of_file(own) != nullptr) {
    foreign.push_back({own, table_of_file(own)->format, line.compat_version});
    own.clear();
  }
  try {
    if (own.extension() == ".yaml" || own.extension() == ".yml") static_cast<void>(table_for(own));  // none of ours is
  } catch (const ddh::Error& error) {
    throw ForeignFileError(error.code(), error.what());
  }
  check_compat(line, foreign.empty() ? "" : foreign[0].format);
  if (foreign.size() > 1)
    throw ForeignFileError(DDH_INVALID_ARGUMENT,
                           ddh::str("'", foreign[0].file.string(), "' and '", foreign[1].file.string(),
                                    "' are both configuration files of other programs; give one"));
  UserFiles files{UserConfig::read(own, overrides), {}};
  for (const ForeignChoice& choice : foreign) {
    try {
      const auto ranks = [&]() -> int64_t { return choose_place(files.user, registry).world_size; };
      const Translation translation = translate_for(choice, files.user, ranks);
      require_accepted(translation);
      put_values(translation, files.user);
      add_notes(translation, files.notes);
    } catch (const ddh::Error& error) {
      throw ForeignFileError(error.code(), error.what());
    }
  }
  check_denied(line.denied, files.user);
  return files;
}

}  // namespace ddhost
