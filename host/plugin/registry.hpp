// SPDX-License-Identifier: Apache-2.0
//
// plugin/registry.hpp: finds plugins by path or by name, and loads each library once.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plugin/elf_note.hpp"
#include "plugin/library.hpp"
#include "plugin/linked.hpp"

namespace ddhost {

class Registry {
 public:
  // Searches names in `linked`, <exe_folder>/plugins, <exe_folder>/../lib/ddhost/plugins, their folders formats, and
  // $DDHOST_PLUGIN_PATH.
  Registry(InterfaceLookup host, std::filesystem::path exe_folder, const std::vector<LinkedPlugin>& linked = {});

  // Finds and loads: `choice` is "zero3", "path/to/x.so" or "path/to/x.so:id". A relative path is relative to `base`,
  // then to the folder of the executable. Error: not found (and the known plugins), wrong kind (and the actual one), or
  // several plugins of that name (and their files).
  Plugin find(int32_t kind, const std::string& choice, const std::filesystem::path& base);

  // The file of a choice that is a path, or Error.
  [[nodiscard]] std::filesystem::path locate(const std::string& path, const std::filesystem::path& base) const;
  // Every *.so of the search folders, sorted by name within a folder.
  [[nodiscard]] std::vector<std::filesystem::path> all_files() const;

  // Files whose note lists a plugin of the kind, and of the name unless it is "".
  [[nodiscard]] std::vector<std::filesystem::path> files_of(int32_t kind, const std::string& name = "") const;
  // The names of all plugins of the kind in these files, each once.
  [[nodiscard]] std::vector<std::string> ids_of(int32_t kind) const;
  // Whether `find` knows the name, without loading a library.
  [[nodiscard]] bool knows(int32_t kind, const std::string& name) const;
  // "torch, llmc": the same as text; "none".
  [[nodiscard]] std::string names_of(int32_t kind) const;

  // The linked plugins.
  [[nodiscard]] std::vector<Plugin> built_in() const;

  const Library& load(const std::filesystem::path& file);
  // What the libraries of other makers may use that `load` brings along.
  void set_limits(LibraryLimits limits) { limits_ = std::move(limits); }
  // What `find` takes.
  struct Wanted {
    int32_t kind;
    std::string choice;
    std::filesystem::path base;
  };
  // Sets the variables of the libraries of plugins that `find` will load. What can't be found or read is left to `find`.
  void set_variables_of(const std::vector<Wanted>& plugins) const;
  [[nodiscard]] InterfaceLookup lookup() const { return lookup_; }
  [[nodiscard]] const std::vector<std::filesystem::path>& folders() const { return folders_; }
  // Whether a file is in one of the program's own folders, and not where the user told it to search.
  [[nodiscard]] bool is_own(const std::filesystem::path& file) const;
  // Their folders `names`, which hold tables of other programs' names.
  [[nodiscard]] std::vector<std::filesystem::path> name_folders() const;
  // Warnings of loading.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  // A file of the search folders, and the plugins in its note.
  struct Offer {
    std::filesystem::path file;
    std::vector<NotePlugin> plugins;
  };
  // The search folders as they were at the first call.
  [[nodiscard]] const std::vector<Offer>& offers() const;
  Plugin find_by_name(int32_t kind, const std::string& name);
  // The files <name>.so of the search folders.
  [[nodiscard]] std::vector<std::filesystem::path> files_named(const std::string& name) const;
  Plugin pick(const Library& library, int32_t kind, const std::string& id) const;

  InterfaceLookup lookup_;
  LibraryLimits limits_;
  std::filesystem::path exe_folder_;
  std::vector<const ddh_module*> built_in_;
  std::vector<std::filesystem::path> folders_;
  mutable std::optional<std::vector<Offer>> offers_;
  std::map<std::filesystem::path, Library> loaded_;
};

// Splits "x.so:id" into file and id ("" = none given).
struct Choice {
  std::string file, id;
  bool is_path = false;
};
Choice parse_choice(const std::string& text);
// The id that the text of a choice names: "zero3" for zero3, path/to/zero3.so and path/to/x.so:zero3.
std::string id_of(const std::string& choice);

std::filesystem::path executable_folder();

}  // namespace ddhost
