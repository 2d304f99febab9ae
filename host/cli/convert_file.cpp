// SPDX-License-Identifier: Apache-2.0
//
// cli/convert_file.cpp: `ddhost convert`.
#include <algorithm>
#include <map>
#include <ostream>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/user_files.hpp"
#include "config/foreign/reverse.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"
#include "plan/prepare.hpp"

namespace ddhost {
namespace {

Json json_of(const ForeignOrigin& from) {
  Json out = {{"key", from.key}, {"value", from.value}, {"kind", from.kind_text()}, {"program", from.program}};
  if (from.line > 0) out["line"] = from.line;
  if (!from.file.empty()) out["file"] = from.file;
  return out;
}

Json json_of(const Translation& translation) {
  Json out = {{"file", translation.file}, {"format", translation.table->format}, {"version", translation.version}};
  out["config"] = translation.config();
  for (const char* list : {"lines", "same", "no_effect", "refused"}) out[list] = Json::array();
  for (const Translation::Line& line : translation.lines)
    out["lines"].push_back({{"key", line.key}, {"value", line.value}, {"from", json_of(line.from)}});
  for (const Translation::Same& same : translation.same)
    out["same"].push_back({{"keys", same.keys}, {"from", json_of(same.from)}});
  for (const Translation::Idle& idle : translation.idle)
    out["no_effect"].push_back({{"reason", idle.reason}, {"from", json_of(idle.from)}});
  for (const Translation::Refusal& refusal : translation.refused)
    out["refused"].push_back({{"sentence", refusal.sentence}, {"from", json_of(refusal.from)}});
  return out;
}

constexpr const char* kStrategy = "strategy.plugin";

// "optimizer.params.lr (line 12)", "gradient_clipping (default)"
std::string origin_text(const ForeignOrigin& from) {
  if (from.kind == ForeignOrigin::Kind::preset || from.kind == ForeignOrigin::Kind::derived)
    return from.key + " (" + from.kind_text() + ")";
  const std::string line = from.line == 0 ? "" : ddh::str(", line ", from.line);
  return from.key + (from.kind == ForeignOrigin::Kind::automatic ? " = auto" : "") + line;
}

// Our configuration file, with the origin of each line as a comment.
void print_object(const Json& object, const Translation& translation, const std::string& path, std::ostream& out) {
  const std::string indent(static_cast<size_t>(2) + 2 * static_cast<size_t>(std::count(path.begin(), path.end(), '.')),
                           ' ');
  size_t left = object.size();
  for (const auto& [name, value] : object.items()) {
    const std::string comma = --left > 0 ? "," : "";
    out << indent << Json(name).dump() << ": ";
    const std::string key = path + name;
    if (value.is_object()) {
      out << "{\n";
      print_object(value, translation, key + ".", out);
      out << indent << "}" << comma << "\n";
      continue;
    }
    out << value.dump() << comma;
    for (const Translation::Line& line : translation.lines)
      if (line.key == key) out << "  // " << origin_text(line.from);
    out << "\n";
  }
}

void print_text(const Translation& translation, std::ostream& out) {
  out << "// from '" << translation.file << "', " << translation.table->is << " " << translation.version << "\n{\n";
  print_object(translation.config(), translation, "", out);
  out << "}\n";
  out << "// No effect here:\n";
  for (const Translation::Idle& idle : translation.idle)
    if (idle.from.kind != ForeignOrigin::Kind::preset)
      out << "//   " << origin_text(idle.from) << ": " << idle.reason << "\n";
  if (!translation.refused.empty()) out << "// Refused:\n";
  for (const Translation::Refusal& refusal : translation.refused)
    out << "//   " << origin_text(refusal.from) << " " << refusal.sentence << "\n";
}

// Values as YAML. A list is written as JSON, which YAML takes.
std::string yaml_text(const Json& object, const std::string& indent = "") {
  std::string text;
  for (const auto& [name, value] : object.items())
    text += indent + name + (value.is_object() ? ":\n" + yaml_text(value, indent + "  ") : ": " + value.dump() + "\n");
  return text;
}

// Ours for another program: its file on `out`, and what it can't say on stderr.
int convert_back(const CommandLine& line, std::ostream& out) {
  const ForeignTable* const table = foreign_table(line.converting.to);
  if (table == nullptr || table->keys.empty()) {
    std::string formats;
    for (const ForeignTable& known : foreign_tables())
      if (!known.keys.empty()) formats += (formats.empty() ? "" : ", ") + known.format;
    ddh::fail(DDH_INVALID_ARGUMENT, "--to '", plain_text(line.converting.to, kShownValue),
              "' is no format; give one of ", formats);
  }
  check_compat(line, table->format);
  if (const ForeignTable* const other = table_of_file(line.config_file))
    ddh::fail(DDH_INVALID_ARGUMENT, "'", line.config_file.string(), "' is ", other->is,
              ", and --to takes a configuration file of this program; leave --to out");
  const UserConfig user = UserConfig::read(line.config_file, line.overrides);
  std::map<std::string, Json> last;
  for (const Wish& wish : user.wishes())
    if (!wish.value.is_null() && !wish.key.ends_with('.')) last[wish.key] = wish.value;
  const Reversed back = reversed(*table, line.compat_version, {last.begin(), last.end()});
  if (std::find(back.left_out.begin(), back.left_out.end(), kStrategy) != back.left_out.end())
    ddh::fail(DDH_INVALID_ARGUMENT, "a file of ", table->program, " can't say ", kStrategy, "=", last[kStrategy].dump(),
              "; choose another strategy, or another format with --to");
  std::string left_out;
  for (const std::string& key : back.left_out) left_out += (left_out.empty() ? "" : ", ") + key;
  if (line.converting.json) {
    out << json_document({{"format", table->format}, {"config", back.root}, {"left_out", back.left_out}});
  } else {
    out << (table->is_yaml ? yaml_text(back.root) : json_document(back.root));
    if (!left_out.empty()) print_sentence(ddh::str(table->program, " has no key for ", left_out));
  }
  return 0;
}

}  // namespace

int convert_file(const CommandLine& line, const Registry& registry, std::ostream& out) {
  try {
    if (!line.converting.keys.empty()) return print_foreign_page(line.converting.keys, out);
    if (!line.converting.to.empty()) return convert_back(line, out);
    const UserConfig user = UserConfig::read("", line.overrides);
    const auto ranks = [&]() -> int64_t { return choose_place(user, registry).world_size; };
    if (const ForeignTable* const table = table_of_file(line.config_file)) check_compat(line, table->format);
    const Translation translation = translate_for({line.config_file, "", line.compat_version}, user, ranks);
    if (line.converting.json)
      out << json_document(json_of(translation));
    else
      print_text(translation, out);
    return translation.refused.empty() ? 0 : 2;
  } catch (const ddh::Error& error) {
    throw ForeignFileError(error.code(), error.what());
  }
}

}  // namespace ddhost
