// SPDX-License-Identifier: Apache-2.0
//
// plugin/library.cpp: dlopen through Boost.DLL, and checks of the loaded library.
#include "plugin/library.hpp"

#define BOOST_DLL_USE_STD_FS
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <boost/dll/shared_library.hpp>
#include <cstdlib>

#include "ddh/sdk/plugin.hpp"
#include "plugin/check_module.hpp"
#include "plugin/elf_note.hpp"
#include "plugin/float_state.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// Replaces a table that the host lacks when a library is only inspected: struct_size is 0, so it is empty.
alignas(64) constexpr std::array<char, 1024> kEmptyTable{};

// The system's reason, without Boost's additions.
std::string dlopen_reason(const std::string& text) {
  constexpr std::string_view kFrame = "(dlerror system message: ";
  const size_t begin = text.find(kFrame);
  if (begin == std::string::npos) return text;
  const size_t end = text.rfind(')');
  return text.substr(begin + kFrame.size(), end - begin - kFrame.size());
}

std::string with_cure(const std::string& reason, const ElfFacts& facts) {
  const bool missing = reason.find("cannot open shared object file") != std::string::npos;
  const auto names = [&](const std::string& word) { return reason.find(word) != std::string::npos; };
  if (facts.note && missing)
    for (const ForeignLibrary& library : facts.note->libraries)
      if (std::any_of(library.files.begin(), library.files.end(), names) && !library.cure.empty())
        return ddh::str("; it was built with ", library.text(), ": ", library.cure);
  if (missing) return "; install the library that is missing, or put its folder on LD_LIBRARY_PATH";
  if (names("failed to map segment") || names("annot allocate memory"))
    return "; raise the limit of this process's addresses (`ulimit -v`), or free memory";
  if (names("undefined symbol")) return "; link the plugin with -Wl,-z,defs to see at build time what is missing";
  return "";
}

boost::dll::shared_library open_pinned(const fs::path& file, const ElfFacts& facts) {
  // Never unloaded: tables, descriptors and strings of a plugin stay valid, and so do its thread-locals.
  const auto mode = static_cast<boost::dll::load_mode::type>(RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (facts.note)
    for (const ForeignLibrary& library : facts.note->libraries) offer_library(library, file, facts);
  try {
    return boost::dll::shared_library(file, mode);
  } catch (const fs::filesystem_error& error) {
    const std::string reason = dlopen_reason(error.what());
    refuse_plugin(file, "can't be loaded: " + reason + with_cure(reason, facts));
  } catch (const std::system_error& error) {
    const std::string reason = dlopen_reason(error.what());
    refuse_plugin(file, "can't be loaded: " + reason + with_cure(reason, facts));
  }
}

// Another major version has another symbol: report that instead of "no symbol".
[[noreturn]] void refuse_without_entry(const fs::path& file, const boost::dll::shared_library& library) {
  for (int major = 0; major < 100; ++major)
    if (library.has(ddh::str("ddh_plugin_entry_", major))) refuse_major(file, major);
  refuse_plugin(file, "is a shared library but not a ddhost plugin: it does not export " DDH_ENTRY_SYMBOL
                      "; end its source with DDH_PLUGIN (ddh/abi.h)");
}

const ddh_module* call_entry(const fs::path& file, const boost::dll::shared_library& library, const ddh_host& host) {
  // Not noexcept here, so that an exception of a wrong entry is caught.
  const auto& entry = library.get<ddh_rc(const ddh_host*, const ddh_module**, ddh_err*)>(DDH_ENTRY_SYMBOL);
  ddh::ErrorBuffer err;
  const ddh_module* module = nullptr;
  ddh_rc rc = DDH_OK;
  try {
    rc = entry(&host, &module, err.get());
  } catch (...) {
    refuse_plugin(file, "threw an exception from its entry; entries must return a code");
  }
  if (rc != DDH_OK)
    refuse_plugin(file, err.text()[0] != '\0' ? ddh::str("refuses this host: ", err.text())
                                              : ddh::str("refuses this host with code ", rc, " and no reason"));
  if (module == nullptr) refuse_plugin(file, "returned no module from its entry");
  return module;
}

}  // namespace

ProbeHost::ProbeHost(InterfaceLookup lookup, MissingInterfaces missing) : lookup_(lookup), missing_(missing) {
  host_.struct_size = sizeof(ddh_host);
  host_.abi_major = DDH_ABI_MAJOR;
  host_.abi_minor = DDH_ABI_MINOR;
  host_.h = this;
  host_.get_interface = [](void* h, const char* id) noexcept -> const void* {
    const auto* self = static_cast<const ProbeHost*>(h);
    const void* table = self->lookup_ == nullptr ? nullptr : self->lookup_(id);
    return table == nullptr && self->missing_ == MissingInterfaces::kPretend ? kEmptyTable.data() : table;
  };
}

namespace {

void set_variables_of_note(const ElfFacts& facts, const LibraryLimits& limits) {
  if (!facts.note) return;
  for (const ForeignLibrary& library : facts.note->libraries) set_variables(library, limits);
}

}  // namespace

void set_variables_of_libraries(const fs::path& file, const LibraryLimits& limits) {
  set_variables_of_note(read_elf(file), limits);
}

void prepare_libraries_of(const fs::path& file, const LibraryLimits& limits) {
  const ElfFacts facts = read_elf(file);
  set_variables_of_note(facts, limits);
  if (!facts.problem.empty() || !facts.note) return;
  const char* const first = std::getenv("LD_LIBRARY_PATH");
  if (first != nullptr && *first != '\0') return;  // it comes before the run path, so the loader must choose
  const FloatState before = FloatState::current();
  for (const ForeignLibrary& library : facts.note->libraries) {
    offer_library(library, file, facts);
    preload_library(library, facts);
  }
  static_cast<void>(before.restore_if_changed());
}

Library Library::load(const fs::path& file, InterfaceLookup lookup, MissingInterfaces missing) {
  const ElfFacts facts = read_elf(file);
  if (!facts.problem.empty()) refuse_plugin(file, facts.problem);
  if (facts.note) check_note(file, *facts.note);
  Library library;
  library.file_ = file;
  const FloatState before = FloatState::current();
  const boost::dll::shared_library handle = open_pinned(file, facts);
  if (before.restore_if_changed())
    library.warnings_.push_back(
        "plugin '" + file.string() +
        "' set the processor to flush tiny numbers to zero when it was loaded; ddhost has undone this; "
        "build it without -ffast-math");
  if (!handle.has(DDH_ENTRY_SYMBOL)) refuse_without_entry(file, handle);
  const ProbeHost probe(lookup, missing);
  library.module_ = call_entry(file, handle, probe.host());
  const std::string warning = check_module(file, *library.module_);
  if (facts.note) check_note_of_module(file, *facts.note, *library.module_);
  if (!warning.empty()) library.warnings_.push_back(warning);
  return library;
}

}  // namespace ddhost
