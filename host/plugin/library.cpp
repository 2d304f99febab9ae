// SPDX-License-Identifier: Apache-2.0
//
// plugin/library.cpp: dlopen through Boost.DLL, and the checks of what came.
#include "plugin/library.hpp"

#define BOOST_DLL_USE_STD_FS
#include <dlfcn.h>

#include <array>
#include <boost/dll/shared_library.hpp>
#include <cstring>

#include "ddh/sdk/plugin.hpp"
#include "plugin/elf_note.hpp"
#include "plugin/float_state.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr std::array<const char*, 5> kKinds = {"strategy", "model", "optimizer", "comm", "device"};

// Stands for a table that the host lacks when a library is only looked at: struct_size 0, so nothing is in it.
alignas(64) constexpr std::array<char, 1024> kEmptyTable{};

[[noreturn]] void refuse(const fs::path& file, const std::string& why) {
  ddh::fail(DDH_FAILED_PRECONDITION, "plugin '", file.string(), "' ", why);
}

// The system's reason without Boost's frame around it.
std::string dlopen_reason(const std::string& text) {
  constexpr std::string_view kFrame = "(dlerror system message: ";
  const size_t begin = text.find(kFrame);
  if (begin == std::string::npos) return text;
  const size_t end = text.rfind(')');
  return text.substr(begin + kFrame.size(), end - begin - kFrame.size());
}

std::string with_cure(const std::string& reason, const ElfFacts& facts) {
  const bool missing = reason.find("cannot open shared object file") != std::string::npos;
  const auto names = [&](const char* word) { return reason.find(word) != std::string::npos; };
  if (facts.note && missing && (names("libtorch") || names("libc10")))
    return ddh::str("; it was built with LibTorch ", torch_version_text(facts.note->torch_version),
                    ": install that, or put its lib folder on LD_LIBRARY_PATH");
  if (facts.note && missing && names("libnccl"))
    return ddh::str("; it was built with NCCL ", nccl_version_text(facts.note->nccl_version), ": install that");
  if (facts.note && missing && names("libcu"))
    return ddh::str("; it was built with CUDA ", cuda_version_text(facts.note->cuda_version), ": install that");
  if (missing) return "; install the library that is missing, or put its folder on LD_LIBRARY_PATH";
  if (names("undefined symbol")) return "; link the plugin with -Wl,-z,defs to see at build time what is missing";
  return "";
}

boost::dll::shared_library open_pinned(const fs::path& file, const ElfFacts& facts) {
  // Never unloaded: tables, descriptors and strings of a plugin stay valid, and so do its thread-locals.
  const auto mode = static_cast<boost::dll::load_mode::type>(RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  try {
    return boost::dll::shared_library(file, mode);
  } catch (const fs::filesystem_error& error) {
    const std::string reason = dlopen_reason(error.what());
    refuse(file, "can't be loaded: " + reason + with_cure(reason, facts));
  } catch (const std::system_error& error) {
    const std::string reason = dlopen_reason(error.what());
    refuse(file, "can't be loaded: " + reason + with_cure(reason, facts));
  }
}

// Another major has another symbol: say so instead of "no symbol".
[[noreturn]] void refuse_without_entry(const fs::path& file, const boost::dll::shared_library& library) {
  for (int major = 0; major < 100; ++major) {
    if (!library.has(ddh::str("ddh_plugin_entry_", major))) continue;
    refuse(file, ddh::str("was built for version ", major, " of the ddhost ABI, this host speaks version ",
                          DDH_ABI_MAJOR, "; rebuild it with this host's plugin_api"));
  }
  refuse(file, "is a shared library but no ddhost plugin: it does not export " DDH_ENTRY_SYMBOL
               "; end its source with DDH_PLUGIN (ddh/abi.h)");
}

const ddh_module* call_entry(const fs::path& file, const boost::dll::shared_library& library, const ddh_host& host) {
  // Not noexcept on this side, so that an entry that throws in spite of the rules is caught.
  const auto& entry = library.get<ddh_rc(const ddh_host*, const ddh_module**, ddh_err*)>(DDH_ENTRY_SYMBOL);
  ddh::ErrorBuffer err;
  const ddh_module* module = nullptr;
  ddh_rc rc = DDH_OK;
  try {
    rc = entry(&host, &module, err.get());
  } catch (...) {
    refuse(file, "threw an exception from its entry; entries must return a code");
  }
  if (rc != DDH_OK)
    refuse(file, err.text()[0] != '\0' ? ddh::str("refuses this host: ", err.text())
                                       : ddh::str("refuses this host with code ", rc, " and no reason"));
  if (module == nullptr) refuse(file, "returned no module from its entry");
  return module;
}

bool legal_id(const char* id) {
  if (id == nullptr || *id == '\0' || std::strlen(id) > 64) return false;
  return std::strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_") == std::strlen(id);
}

void check_descriptors(const fs::path& file, const ddh_module& module) {
  for (uint32_t i = 0; i < module.n_desc; ++i) {
    const ddh_desc* desc = module.desc[i];
    if (desc == nullptr || desc->struct_size < DDH_DESC_MIN_SIZE)
      refuse(file, ddh::str("has an ill-formed descriptor ", i, "; set struct_size = sizeof(ddh_desc)"));
    if (!legal_id(desc->id))
      refuse(file, ddh::str("has an illegal id in descriptor ", i, "; use lower case, digits and '_'"));
    if (desc->version == nullptr || desc->summary == nullptr)
      refuse(file, ddh::str("gives no version or no summary for '", desc->id, "'"));
    for (uint32_t j = 0; j < i; ++j)
      if (module.desc[j]->kind == desc->kind && std::strcmp(module.desc[j]->id, desc->id) == 0)
        refuse(file, ddh::str("offers the ", kind_name(desc->kind), " '", desc->id, "' twice"));
  }
}

void check_module(const fs::path& file, const ddh_module& module) {
  if (module.struct_size < DDH_MODULE_MIN_SIZE || module.build == nullptr ||
      module.build->struct_size < DDH_BUILD_MIN_SIZE)
    refuse(file, "returned an ill-formed module; set struct_size = sizeof(ddh_module) and build");
  if (module.build->abi_major != DDH_ABI_MAJOR)
    refuse(file,
           ddh::str("was built for version ", module.build->abi_major, " of the ddhost ABI, this host speaks version ",
                    DDH_ABI_MAJOR, "; rebuild it with this host's plugin_api"));
  if (module.build->min_host_minor > DDH_ABI_MINOR)
    refuse(file, ddh::str("needs ABI ", DDH_ABI_MAJOR, ".", module.build->min_host_minor, ", this host has ",
                          DDH_ABI_MAJOR, ".", DDH_ABI_MINOR, "; update ddhost"));
  if (module.n_desc == 0 || module.desc == nullptr) refuse(file, "holds no plugin");
  if (module.create == nullptr || module.get_interface == nullptr || module.destroy == nullptr)
    refuse(file, "lacks create, get_interface or destroy");
  check_descriptors(file, module);
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

Library Library::load(const fs::path& file, InterfaceLookup lookup, MissingInterfaces missing) {
  const ElfFacts facts = read_elf(file);
  if (!facts.problem.empty()) refuse(file, facts.problem);
  if (facts.note && facts.note->abi_major != DDH_ABI_MAJOR)
    refuse(file,
           ddh::str("was built for version ", facts.note->abi_major, " of the ddhost ABI, this host speaks version ",
                    DDH_ABI_MAJOR, "; rebuild it with this host's plugin_api"));
  Library library;
  library.file_ = file;
  const FloatState before = FloatState::current();
  const boost::dll::shared_library handle = open_pinned(file, facts);
  if (before.restore_if_changed())
    library.warnings_.push_back(
        "plugin '" + file.string() +
        "' switched the processor's handling of tiny numbers when it was loaded, which was undone; "
        "build it without -ffast-math");
  if (!handle.has(DDH_ENTRY_SYMBOL)) refuse_without_entry(file, handle);
  const ProbeHost probe(lookup, missing);
  library.module_ = call_entry(file, handle, probe.host());
  check_module(file, *library.module_);
  const ddh_build& build = *library.module_->build;
  if (build.abi_minor == DDH_ABI_MINOR && build.header_checksum != DDH_HEADER_CHECKSUM)
    library.warnings_.push_back(ddh::str("plugin '", file.string(),
                                         "' was built with other headers of the same ABI version ", DDH_ABI_MAJOR, ".",
                                         DDH_ABI_MINOR, "; rebuild it if it misbehaves"));
  return library;
}

std::string kind_name(int32_t kind) {
  if (kind < 1 || kind > static_cast<int32_t>(kKinds.size())) return ddh::str("kind ", kind);
  return kKinds[static_cast<size_t>(kind - 1)];
}

int32_t kind_number(std::string_view name) {
  for (size_t i = 0; i < kKinds.size(); ++i)
    if (name == kKinds[i]) return static_cast<int32_t>(i + 1);
  return 0;
}

}  // namespace ddhost
