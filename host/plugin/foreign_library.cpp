// SPDX-License-Identifier: Apache-2.0
#include "plugin/foreign_library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "ddh/sdk/plugin.hpp"
#include "plugin/check_module.hpp"
#include "plugin/elf_note.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

const char* set_value(const std::string& variable) {
  const char* const value = variable.empty() ? nullptr : std::getenv(variable.c_str());
  return value == nullptr || *value == '\0' ? nullptr : value;
}

// "avx2:NAME=value" of ddh_library.limits.
struct Limit {
  std::string instructions, variable, value;
};
std::vector<Limit> limits_of(const ForeignLibrary& library) {
  std::vector<Limit> out;
  for (const std::string& word : library.limits) {
    const size_t colon = word.find(':'), equals = word.find('=', colon == std::string::npos ? 0 : colon);
    if (colon == std::string::npos || equals == std::string::npos) continue;
    out.push_back({word.substr(0, colon), word.substr(colon + 1, equals - colon - 1), word.substr(equals + 1)});
  }
  return out;
}

// An error is reported when the plugin needs it.
void load_quietly(const fs::path& file) { static_cast<void>(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)); }

}  // namespace

bool ForeignLibrary::has_file(const std::string& file_name) const {
  return std::any_of(files.begin(), files.end(),
                     [&](const std::string& begin) { return file_name.starts_with(begin); });
}

std::vector<ForeignLibrary> libraries_from(const Json& list) {
  std::vector<ForeignLibrary> out;
  if (!list.is_array()) return out;
  for (const Json& entry : list) {
    if (!entry.is_object()) continue;
    const auto text = [&](const char* key) {
      const auto at = entry.find(key);
      return at != entry.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    if (text("name").empty()) continue;
    out.push_back({text("name"), text("version"), text("folder"), text("cure"), words_of(text("files")),
                   words_of(text("threads")), words_of(text("limits"))});
  }
  return out;
}

Json to_json(const std::vector<ForeignLibrary>& libraries) {
  Json list = Json::array();
  for (const ForeignLibrary& one : libraries)
    list.push_back({{"name", one.name},
                    {"version", one.version},
                    {"folder", one.folder},
                    {"cure", one.cure},
                    {"files", joined(one.files)},
                    {"threads", joined(one.threads)},
                    {"limits", joined(one.limits)}});
  return list;
}

std::vector<ForeignLibrary> libraries_of(const ddh_build& build) {
  std::vector<ForeignLibrary> out;
  for (const ddh_library* at = build.libraries; at != nullptr && at->name != nullptr; ++at) {
    const auto text = [](const char* given) { return std::string(given == nullptr ? "" : given); };
    out.push_back({at->name, text(at->version), text(at->folder), text(at->cure), words_of(text(at->files)),
                   words_of(text(at->threads)), words_of(text(at->limits))});
  }
  return out;
}

void set_variables(const ForeignLibrary& library, const LibraryLimits& limits) {
  const auto set = [](const std::string& variable, const std::string& value) {
    if (set_value(variable) == nullptr) ::setenv(variable.c_str(), value.c_str(), /*overwrite=*/1);  // it may be empty
  };
  if (limits.threads > 0 && !library.threads.empty()) {
    set(library.threads.front(), std::to_string(limits.threads));
    const std::string first = set_value(library.threads.front());
    // One number, or one for each level: "4,2". Libraries take over each other's, so one that differs would replace it.
    for (const std::string& variable : library.threads) set(variable, first.substr(0, first.find(',')));
  }
  for (const Limit& limit : limits_of(library))
    if (limit.instructions == limits.instructions) set(limit.variable, limit.value);
}

int threads_of(const ForeignLibrary& library) {
  for (const std::string& variable : library.threads)
    if (const char* const value = set_value(variable)) return std::max(0, std::atoi(value));
  return 0;
}

std::string other_limits(const ForeignLibrary& library, const std::string& instructions) {
  std::string text;
  std::vector<std::string> seen;
  for (const Limit& limit : limits_of(library)) {
    const char* const value = std::getenv(limit.variable.c_str());
    if (value == nullptr || std::find(seen.begin(), seen.end(), limit.variable) != seen.end()) continue;
    seen.push_back(limit.variable);
    const std::vector<Limit> all = limits_of(library);
    const bool is_ours = std::any_of(all.begin(), all.end(), [&](const Limit& other) {
      return other.variable == limit.variable && other.instructions == instructions && other.value == value;
    });
    if (!is_ours) text += ddh::str(' ', limit.variable, '=', value);
  }
  return text;
}

void offer_library(const ForeignLibrary& library, const fs::path& plugin, const ElfFacts& facts) {
  const char* const folder = set_value(library.folder);
  if (folder == nullptr) return;
  for (const std::string& name : facts.needed) {
    if (!library.has_file(name)) continue;
    const fs::path file = fs::path(folder) / "lib" / name;
    if (!fs::exists(file))
      refuse_plugin(plugin, ddh::str("needs ", name, ", which ", library.folder, "=", folder,
                                     " does not hold in its folder lib; correct or unset it"));
    load_quietly(file);
  }
}

void preload_library(const ForeignLibrary& library, const ElfFacts& facts) {
  if (library.folder.empty()) return;
  std::istringstream folders(facts.runpath);
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const std::string& name : facts.needed) {
      std::error_code ec;
      const fs::path file = fs::path(folder) / name;
      if (library.has_file(name) && file.is_absolute() && fs::exists(file, ec)) load_quietly(file);
    }
  }
}

}  // namespace ddhost
