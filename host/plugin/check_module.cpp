// SPDX-License-Identifier: Apache-2.0
#include "plugin/check_module.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ddh/sdk/plugin.hpp"
#include "plugin/capabilities.hpp"
#include "plugin/library.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

bool legal_id(const char* id) {
  if (id == nullptr || *id == '\0' || std::strlen(id) > 64) return false;
  return std::strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_") == std::strlen(id);
}

bool has_control_characters(const char* text) {
  return std::any_of(text, text + std::strlen(text), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// Prefixes the message of ddh::copy_of about a bad struct with the file's name.
template <class T>
void require_well_formed(const fs::path& file, const T* given, const std::string& what) {
  try {
    static_cast<void>(ddh::copy_of(given));
  } catch (const ddh::Error& error) {
    refuse_plugin(file, ddh::str("has an ill-formed ", what, ": ", error.what()));
  }
}

void check_bits(const fs::path& file, const ddh_desc& desc) {
  const std::string name = kind_name(desc.kind) + " '" + desc.id + "'";
  if (const uint64_t unknown = desc.caps & ~known_caps(desc.kind); unknown != 0)
    refuse_plugin(file, ddh::str("offers the ", name, " with capability bits 0x", hex(unknown),
                                 " that this host does not know; update ddhost, or use bits from "
                                 "DDH_CAP_VENDOR_FIRST on for bits that you define"));
  if (const uint64_t unknown = desc.uses & ~kKnownFeatures; unknown != 0)
    refuse_plugin(file, ddh::str("offers the ", name, ", which uses the features 0x", hex(unknown),
                                 " that this host does not know; update ddhost"));
  if (desc.oldest_state_version > desc.state_version)
    refuse_plugin(file, ddh::str("offers the ", name, " with oldest_state_version ", desc.oldest_state_version,
                                 ", which is above its state_version ", desc.state_version));
}

void check_descriptor(const fs::path& file, const ddh_module& module, uint32_t index) {
  const ddh_desc* desc = module.desc[index];
  require_well_formed(file, desc, ddh::str("descriptor ", index));
  if (!legal_id(desc->id))
    refuse_plugin(file, ddh::str("has an illegal id in descriptor ", index, "; use lower case, digits and '_'"));
  if (desc->version == nullptr || desc->summary == nullptr)
    refuse_plugin(file, ddh::str("gives no version or no summary for '", desc->id, "'"));
  if (has_control_characters(desc->version) || has_control_characters(desc->summary))
    refuse_plugin(file, ddh::str("gives control characters in the version or the summary of '", desc->id,
                                 "'; they would change the terminal that lists them"));
  for (const char* text : {desc->vendor, desc->url, desc->license})
    if (text != nullptr && has_control_characters(text))
      refuse_plugin(file, ddh::str("gives control characters in the vendor, url or license of '", desc->id, "'"));
  if (desc->kind < DDH_VENDOR_FIRST) {  // kinds of vendors are for other programs and are not checked
    if (interface_of(desc->kind).empty())
      refuse_plugin(file, ddh::str("offers '", desc->id, "', which is of ", kind_name(desc->kind),
                                   ", unknown to this host; update ddhost, or use a kind from DDH_VENDOR_FIRST on "
                                   "for a kind that you define"));
    check_bits(file, *desc);
  }
  for (uint32_t i = 0; i < index; ++i)
    if (module.desc[i]->kind == desc->kind && std::strcmp(module.desc[i]->id, desc->id) == 0)
      refuse_plugin(file, ddh::str("offers the ", kind_name(desc->kind), " '", desc->id, "' twice"));
}

// "strategy 'zero1', optimizer 'sgd'", sorted. The word for a kind of a vendor is the vendor's own, so only the id of
// such a plugin is compared.
std::string listed(const std::vector<NotePlugin>& plugins) {
  std::vector<std::string> names;
  for (const NotePlugin& plugin : plugins)
    names.push_back((kind_number(plugin.kind) == 0 ? "" : plugin.kind + " ") + "'" + plugin.id + "'");
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "nothing" : text;
}

std::string warning_or_refuse(const fs::path& file, const HeaderVerdict& verdict) {
  if (verdict.kind == HeaderVerdict::Kind::kRefuse) refuse_plugin(file, verdict.sentence);
  return verdict.kind == HeaderVerdict::Kind::kWarn ? ddh::str("plugin '", file.string(), "' ", verdict.sentence) : "";
}

}  // namespace

void refuse_plugin(const fs::path& file, const std::string& why) {
  ddh::fail(DDH_FAILED_PRECONDITION, "plugin '", file.string(), "' ", why);
}

void refuse_major(const fs::path& file, int major) {
  if (DDH_ABI_MAJOR == 0 && major == 1)
    refuse_plugin(
        file,
        "was built for the first draft of the ABI (version 1.0), which no host loads any more; rebuild it with "
        "this host's SDK");
  refuse_plugin(file, ddh::str("was built for version ", major, " of the ddhost ABI, but this host uses version ",
                               DDH_ABI_MAJOR, "; rebuild it with this host's SDK"));
}

HeaderVerdict judge_headers(int host_major, int host_minor, int minor, uint64_t checksum, uint64_t host_checksum) {
  if (checksum == host_checksum) return {};
  const std::string sums = ddh::str(" (their checksum is ", hex(checksum), ", this host's ", hex(host_checksum), ")");
  if (host_major == 0)
    return {HeaderVerdict::Kind::kRefuse,
            "was built with other headers of the ABI than this host" + sums +
                ", which must be the same until the freeze at 1.0; rebuild it with this host's SDK"};
  if (minor != host_minor) return {};
  return {HeaderVerdict::Kind::kWarn, ddh::str("was built with other headers of the same ABI version ", host_major, ".",
                                               minor, sums, "; rebuild it with this host's SDK if it misbehaves")};
}

void check_note(const fs::path& file, const PluginNote& note) {
  if (note.abi_major != DDH_ABI_MAJOR) refuse_major(file, note.abi_major);
  const uint64_t checksum = std::strtoull(note.headers.c_str(), nullptr, 16);
  static_cast<void>(warning_or_refuse(
      file, judge_headers(DDH_ABI_MAJOR, DDH_ABI_MINOR, note.abi_minor, checksum, DDH_HEADER_CHECKSUM)));
}

void check_note_of_module(const fs::path& file, const PluginNote& note, const ddh_module& module) {
  std::vector<NotePlugin> offered;
  for (uint32_t i = 0; i < module.n_desc; ++i) offered.push_back({kind_name(module.desc[i]->kind), module.desc[i]->id});
  const std::string in_note = listed(note.plugins), in_module = listed(offered);
  if (in_note != in_module)
    refuse_plugin(file, "lists " + in_note + " in its note, but offers " + in_module +
                            " when it is loaded; name the same plugins in DDH_PLUGIN and in the descriptors "
                            "(ddh/abi.h), and build it again");
}

std::string check_module(const fs::path& file, const ddh_module& module) {
  require_well_formed(file, &module, "module");
  require_well_formed(file, module.build, "build");
  const ddh_build& build = *module.build;
  if (build.abi_major != DDH_ABI_MAJOR) refuse_major(file, build.abi_major);
  std::string warning = warning_or_refuse(
      file, judge_headers(DDH_ABI_MAJOR, DDH_ABI_MINOR, build.abi_minor, build.header_checksum, DDH_HEADER_CHECKSUM));
  if (build.min_host_minor > DDH_ABI_MINOR)
    refuse_plugin(file, ddh::str("needs ABI ", DDH_ABI_MAJOR, ".", build.min_host_minor, ", but this host has ",
                                 DDH_ABI_MAJOR, ".", DDH_ABI_MINOR, "; update ddhost"));
  if (module.n_desc == 0 || module.desc == nullptr) refuse_plugin(file, "holds no plugin");
  if (module.create == nullptr || module.get_interface == nullptr || module.destroy == nullptr)
    refuse_plugin(file, "lacks create, get_interface or destroy");
  for (uint32_t i = 0; i < module.n_desc; ++i) check_descriptor(file, module, i);
  return warning;
}

}  // namespace ddhost
