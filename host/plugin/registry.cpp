// SPDX-License-Identifier: Apache-2.0
//
// plugin/registry.cpp: the search for plugins.
#include "plugin/registry.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "plugin/elf_note.hpp"
#include "plugin/probe.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// "the optimizer 'adamw' and the optimizer 'sgd'"
std::string contents_of(const ddh_module& module) {
  std::string text;
  for (uint32_t i = 0; i < module.n_desc; ++i)
    text += ddh::str(i == 0 ? "" : " and ", "the ", kind_name(module.desc[i]->kind), " '", module.desc[i]->id, "'");
  return text;
}

std::vector<fs::path> libraries_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ec;
  for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec))
    if (at->path().extension() == ".so" && at->is_regular_file(ec)) files.push_back(at->path());
  std::sort(files.begin(), files.end());
  return files;
}

// Throws if a name stands for several plugins: which of them is meant is not known.
void require_one(int32_t kind, const std::string& name, bool is_linked, const std::vector<fs::path>& files) {
  if (files.size() + (is_linked ? 1 : 0) < 2) return;
  std::string places = is_linked ? "this program" : "";
  for (const fs::path& file : files) places += (places.empty() ? "" : " and ") + file.string();
  ddh::fail(DDH_INVALID_ARGUMENT, "the name '", name, "' of ", with_article(kind_name(kind)), " is in ", places,
            "; give the path of the file that you want: --", kind_name(kind), " ", files.back().string(), ":", name,
            is_linked ? ", or remove the file to use the one in this program" : "");
}

// The plugins in a file's note, read without loading it; empty if it can't be read.
std::vector<NotePlugin> announced(const fs::path& file) {
  try {
    const std::optional<PluginNote> note = read_elf(file).note;
    return note ? note->plugins : std::vector<NotePlugin>{};
  } catch (const ddh::Error&) {
    return {};
  }
}

}  // namespace

Choice parse_choice(const std::string& text) {
  Choice choice;
  const size_t colon = text.rfind(".so:");
  if (colon != std::string::npos) {
    choice = {text.substr(0, colon + 3), text.substr(colon + 4), true};
  } else {
    const bool ends_in_so = text.size() > 3 && text.compare(text.size() - 3, 3, ".so") == 0;
    choice = {text, "", ends_in_so || text.find('/') != std::string::npos};
  }
  return choice;
}

std::string id_of(const std::string& choice) {
  const Choice parts = parse_choice(choice);
  if (!parts.id.empty()) return parts.id;
  return parts.is_path ? fs::path(parts.file).stem().string() : parts.file;
}

namespace {
fs::path program_file() {
  std::error_code ec;
  fs::path program = fs::read_symlink("/proc/self/exe", ec);
  if (ec)
    ddh::fail(DDH_FAILED_PRECONDITION, "/proc/self/exe, the name of this program, can't be read (", ec.message(),
              "); mount /proc: mount -t proc proc /proc");
  return program;
}
}  // namespace

fs::path executable_folder() { return program_file().parent_path(); }

Registry::Registry(InterfaceLookup host, fs::path exe_folder, const std::vector<LinkedPlugin>& linked)
    : lookup_(host), exe_folder_(std::move(exe_folder)) {
  for (const LinkedPlugin& plugin : linked) built_in_.push_back(&linked_module(plugin, host));
  for (const char* folder : {"plugins", "../lib/ddhost/plugins"})
    for (const char* part : {"", "/formats"})
      folders_.push_back((exe_folder_ / (std::string(folder) + part)).lexically_normal());
  const char* more = std::getenv("DDHOST_PLUGIN_PATH");
  std::istringstream list(more == nullptr ? "" : more);
  for (std::string folder; std::getline(list, folder, ':');)
    if (!folder.empty()) folders_.push_back(fs::absolute(folder).lexically_normal());
}

fs::path Registry::locate(const std::string& path, const fs::path& base) const {
  fs::path beside_user = fs::absolute(base / path).lexically_normal();
  fs::path beside_exe = (exe_folder_ / path).lexically_normal();
  std::error_code ec;
  if (fs::exists(beside_user, ec)) return beside_user;
  if (fs::exists(beside_exe, ec)) return beside_exe;
  ddh::fail(DDH_NOT_FOUND, "there is no plugin file '", path, "' (looked for ", beside_user.string(),
            beside_user == beside_exe ? "" : " and " + beside_exe.string(), "); check the path, or see `ddhost list`");
}

bool Registry::is_own(const fs::path& file) const {
  const fs::path folder = file.parent_path().lexically_normal();
  const auto is_it = [&](const char* own) { return folder == (exe_folder_ / own).lexically_normal(); };
  return is_it("plugins") || is_it("../lib/ddhost/plugins");
}

std::vector<fs::path> Registry::name_folders() const {
  std::vector<fs::path> folders;
  for (const fs::path& folder : folders_) folders.push_back(folder / "names");
  return folders;
}

const std::vector<Registry::Offer>& Registry::offers() const {
  if (offers_) return *offers_;
  std::vector<Offer> offers;
  std::set<fs::path> seen;
  for (const fs::path& folder : folders_)
    for (const fs::path& file : libraries_in(folder))
      if (std::error_code ec; seen.insert(fs::weakly_canonical(file, ec)).second)
        offers.push_back({file, announced(file)});
  return offers_.emplace(std::move(offers));
}

std::vector<fs::path> Registry::all_files() const {
  std::vector<fs::path> files;
  for (const Offer& offer : offers()) files.push_back(offer.file);
  return files;
}

std::vector<fs::path> Registry::files_of(int32_t kind, const std::string& name) const {
  const auto is_it = [&](const NotePlugin& plugin) {
    return plugin.kind == kind_name(kind) && (name.empty() || plugin.id == name);
  };
  std::vector<fs::path> files;
  for (const auto& [file, plugins] : offers())
    if (std::any_of(plugins.begin(), plugins.end(), is_it)) files.push_back(file);
  return files;
}

std::vector<std::string> Registry::ids_of(int32_t kind) const {
  std::vector<std::string> ids;
  for (const Offer& offer : offers())
    for (const NotePlugin& plugin : offer.plugins)
      if (plugin.kind == kind_name(kind) && std::find(ids.begin(), ids.end(), plugin.id) == ids.end())
        ids.push_back(plugin.id);
  return ids;
}

std::string Registry::names_of(int32_t kind) const {
  std::string names;
  for (const std::string& id : ids_of(kind)) names += (names.empty() ? "" : ", ") + id;
  return names.empty() ? "none" : names;
}

std::vector<Plugin> Registry::built_in() const {
  const fs::path program = program_file();
  std::vector<Plugin> all;
  for (const ddh_module* module : built_in_)
    for (uint32_t i = 0; i < module->n_desc; ++i) all.push_back({module, module->desc[i], program});
  return all;
}

const Library& Registry::load(const fs::path& file) {
  const fs::path key = fs::weakly_canonical(file);
  const auto at = loaded_.find(key);
  if (at != loaded_.end()) return at->second;
  // A damaged library may end the process that loads it without a word, so a child loads it first. Large libraries take
  // 0.2 s, so they are loaded before, and the child inherits them.
  prepare_libraries_of(key, limits_);
  static_cast<void>(probe(key, lookup_, MissingInterfaces::kRefuse, std::chrono::minutes(5)));
  return loaded_.emplace(key, Library::load(key, lookup_)).first->second;
}

Plugin Registry::find(int32_t kind, const std::string& text, const fs::path& base) {
  if (text.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "no ", kind_name(kind), " is named; give a name or a path, see `ddhost list`");
  const Choice choice = parse_choice(text);
  if (!choice.is_path) return find_by_name(kind, choice.file);
  return pick(load(locate(choice.file, base)), kind, choice.id);
}

std::vector<fs::path> Registry::files_named(const std::string& name) const {
  std::vector<fs::path> files = all_files();
  std::erase_if(files, [&](const fs::path& file) { return file.filename() != name + ".so"; });
  return files;
}

bool Registry::knows(int32_t kind, const std::string& name) const {
  const std::vector<Plugin> linked = built_in();
  const std::vector<std::string> ids = ids_of(kind);
  return std::find(ids.begin(), ids.end(), name) != ids.end() || !files_named(name).empty() ||
         std::any_of(linked.begin(), linked.end(),
                     [&](const Plugin& plugin) { return plugin.desc->kind == kind && plugin.id() == name; });
}

void Registry::set_variables_of(const std::vector<Wanted>& plugins) const {
  const auto set = [&](const auto& file) {
    try {
      set_variables_of_libraries(file(), limits_);
    } catch (const ddh::Error&) {  // `find` says why
    }
  };
  std::vector<NotePlugin> named;
  for (const Wanted& wanted : plugins) {
    const Choice choice = parse_choice(wanted.choice);
    if (!choice.is_path)
      named.push_back({kind_name(wanted.kind), choice.file});
    else
      set([&] { return locate(choice.file, wanted.base); });
  }
  for (const auto& [file, offered] : offers()) {
    const auto is_named = [&](const NotePlugin& one) {
      return std::any_of(named.begin(), named.end(),
                         [&](const NotePlugin& name) { return name.kind == one.kind && name.id == one.id; });
    };
    if (std::any_of(offered.begin(), offered.end(), is_named)) set([&, &path = file] { return path; });
  }
}

Plugin Registry::pick(const Library& library, int32_t kind, const std::string& id) const {
  const ddh_module& module = library.module();
  std::vector<const ddh_desc*> matches;
  for (uint32_t i = 0; i < module.n_desc; ++i)
    if (module.desc[i]->kind == kind && (id.empty() || id == module.desc[i]->id)) matches.push_back(module.desc[i]);
  if (matches.size() == 1) return {&module, matches[0], library.file()};
  const std::string contents = contents_of(module);
  const std::string file = library.file().string();
  if (matches.empty() && !id.empty())
    ddh::fail(DDH_NOT_FOUND, "'", file, "' holds no ", kind_name(kind), " '", id, "' but ", contents);
  if (matches.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "'", file, "' holds ", contents, ", not ", with_article(kind_name(kind)),
              "; use --", kind_name(module.desc[0]->kind), " for it");
  ddh::fail(DDH_INVALID_ARGUMENT, "'", file, "' holds ", contents, "; choose one as ",
            library.file().filename().string(), ":", matches[0]->id);
}

Plugin Registry::find_by_name(int32_t kind, const std::string& name) {
  std::vector<std::string> known;
  std::optional<Plugin> linked;
  for (const Plugin& plugin : built_in()) {
    if (plugin.desc->kind != kind) continue;
    known.push_back(plugin.id());
    if (plugin.id() == name) linked = plugin;
  }
  // The note of a library lists its plugins, and is read without loading it.
  std::vector<fs::path> offering;
  std::string wrong_kind;
  for (const auto& [file, plugins] : offers()) {
    for (const NotePlugin& plugin : plugins) {
      const bool right_kind = plugin.kind == kind_name(kind);
      if (right_kind) known.push_back(plugin.id);
      if (plugin.id != name) continue;
      if (right_kind) offering.push_back(file);
      if (!right_kind && wrong_kind.empty())
        wrong_kind = ddh::str("'", name, "' is ", with_article(plugin.kind), ", not ", with_article(kind_name(kind)),
                              " (", file.string(), "); use --", plugin.kind, " ", name);
    }
  }
  if (linked || !offering.empty()) {
    require_one(kind, name, linked.has_value(), offering);
    return linked ? *linked : pick(load(offering[0]), kind, name);
  }
  if (!wrong_kind.empty()) ddh::fail(DDH_INVALID_ARGUMENT, wrong_kind);
  // For a file of that name without a note or with another id: its plugins, or why it can't be used.
  if (const std::vector<fs::path> files = files_named(name); !files.empty()) {
    require_one(kind, name, false, files);
    return pick(load(files[0]), kind, "");
  }
  std::string list, searched;
  for (const std::string& id : known) list += (list.empty() ? "" : ", ") + id;
  for (const fs::path& folder : folders_) searched += (searched.empty() ? "" : ", ") + folder.string();
  const std::string near = nearest(name, known);
  if (!near.empty())
    ddh::fail(DDH_NOT_FOUND, "there is no ", kind_name(kind), " '", name, "' (did you mean '", near,
              "'?); there are: ", list);
  ddh::fail(DDH_NOT_FOUND, "there is no ", kind_name(kind), " '", name, "'",
            list.empty() ? "; none was found" : "; there are: " + list, " (searched ", searched, ")");
}

std::vector<std::string> Registry::warnings() const {
  std::vector<std::string> all;
  for (const auto& [file, library] : loaded_)
    all.insert(all.end(), library.warnings().begin(), library.warnings().end());
  return all;
}

}  // namespace ddhost
