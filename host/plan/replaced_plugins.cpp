// SPDX-License-Identifier: Apache-2.0
#include "plan/replaced_plugins.hpp"

#include <algorithm>

#include "config/replaced.hpp"
#include "ddh/kind/device.h"
#include "ddh/sdk/plugin.hpp"
#include "plugin/registry.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

const Section& find_section_of_host(const std::vector<Section>& sections, const std::string& name) {
  const auto at = std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.name == name; });
  if (at == sections.end()) ddh::fail(DDH_INTERNAL, "there is no section '", name, "'");
  return *at;
}

// Whether `choice`, of a file in the folder `base`, means `plugin`. Another library with a plugin of the same id counts as
// another build of it.
bool is_choice_of(const std::string& choice, const fs::path& base, const Plugin& plugin) {
  if (id_of(choice) == plugin.id()) return true;
  const Choice parts = parse_choice(choice);
  std::error_code ec;
  return parts.is_path && parts.id.empty() && fs::equivalent(base / parts.file, plugin.file, ec);
}

std::string with_commas(const std::vector<std::string>& keys) {
  std::string out;
  for (const std::string& key : keys) out += (out.empty() ? "" : ", ") + key;
  return out;
}

// Any value of the file: it has the file's name and folder.
const Wish* any_of_file(const UserConfig& user) {
  const auto at =
      std::find_if(user.wishes().begin(), user.wishes().end(), [](const Wish& wish) { return wish.from_file; });
  return at == user.wishes().end() ? nullptr : &*at;
}

// The plugin that the file chooses, if the run has another one; else "".
std::string replaced_choice(const UserConfig& user, const std::vector<Section>& sections, const ChosenPlugin& chosen) {
  const Wish* const file = any_of_file(user);
  const std::string choice = file == nullptr ? "" : choice_of_file(user, sections, chosen.key);
  const int32_t kind = chosen.plugin.desc->kind;
  const bool is_any = (kind == DDH_KIND_DEVICE || kind == DDH_KIND_COMM) && choice == kAutoComm;
  return is_any || choice.empty() || is_choice_of(choice, file->base, chosen.plugin) ? "" : choice;
}

std::string sentence_about(const UserConfig& user, const Plugin& plugin, const std::string& key,
                           const std::string& choice, const std::vector<std::string>& keys) {
  if (keys.empty()) return "";
  const Wish* const chosen = user.find_in_file(key);
  return ddh::str(kind_name(plugin.desc->kind), " '", plugin.id(), "' replaces '", id_of(choice), "' of ",
                  (chosen == nullptr ? any_of_file(user) : chosen)->source,
                  ", so the file's options for it are not used (", with_commas(keys), "); give those of '", plugin.id(),
                  "' on the command line");
}

}  // namespace

std::string replace_options(UserConfig& user, const std::vector<Section>& sections, const ChosenPlugin& chosen) {
  const std::string choice = replaced_choice(user, sections, chosen);
  if (choice.empty()) return "";
  return sentence_about(user, chosen.plugin, chosen.key, choice,
                        replace_plugin_options(user, find_section_of_host(sections, chosen.section)));
}

std::string replace_host_comm_options(UserConfig& user, const std::vector<Section>& sections, const Plugin& comm) {
  const std::string choice = replaced_choice(user, sections, {comm, "comm", "comm.plugin"});
  if (choice.empty()) return "";
  return sentence_about(user, comm, "comm.plugin", choice, replace_plugin_options(user, {kHostCommSection, {}, ""}));
}

std::string replace_other_transports(UserConfig& user, const std::vector<Section>& sections, const Plugin& comm,
                                     bool has_inside) {
  const Wish *const file = user.find_in_file("comm.plugin"), *const any = any_of_file(user);
  if (any == nullptr || (file != nullptr && file->value != kAutoComm)) return "";
  const std::string inside = std::string(kInsideCommSection) + ".";
  const Schema& schema = find_section_of_host(sections, "comm").schema;
  const std::vector<std::string> keys = user.replace_in_file([&](const Wish& wish) {
    if (!has_inside && wish.key.starts_with(inside)) return true;
    if (file == nullptr || !wish.key.starts_with("comm.")) return false;
    const std::string name = wish.key.substr(5);
    return schema.find(name) == nullptr && schema.find_alias(name) == nullptr;
  });
  if (keys.empty()) return "";
  const std::string source = (file == nullptr ? any : file)->source;
  const std::string how = user.find_on_command_line("comm.plugin") == nullptr
                              ? ddh::str("comm.plugin=auto of ", source, " is '", comm.id(), "' here")
                              : ddh::str("comm '", comm.id(), "' replaces 'auto' of ", source);
  return ddh::str(how, ", so the file's options for other transports are not used: ", with_commas(keys));
}

std::string replace_monitor_options(UserConfig& user, const std::vector<Section>& sections,
                                    const std::vector<Plugin>& monitors) {
  const Wish* const file = user.find_in_file("monitor.plugins");
  if (file == nullptr || file->value.is_null() || user.find_on_command_line("monitor.plugins") == nullptr) return "";
  std::vector<std::string> kept;
  for (const Plugin& monitor : monitors) kept.push_back(monitor.id() + ".");
  const std::vector<std::string> keys = replace_plugin_options(user, find_section_of_host(sections, "monitor"), kept);
  if (keys.empty()) return "";
  return ddh::str("monitor.plugins replaces that of ", file->source, ", so the file's options for other monitors are ",
                  "not used: ", with_commas(keys));
}

}  // namespace ddhost
