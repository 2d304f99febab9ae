// SPDX-License-Identifier: Apache-2.0
#include "plan/device_choice.hpp"

#include <algorithm>

#include "ddh/abi.h"
#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"
#include "plugin/elf_note.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

std::string linked_device(const Registry& registry) {
  for (const Plugin& plugin : registry.built_in())
    if (plugin.desc->kind == DDH_KIND_DEVICE) return plugin.id();
  ddh::fail(DDH_NOT_FOUND, "no device is linked into this program; name one: --device NAME");
}

// "; '/plugins/cuda.so' is empty": a library that can't be read might hold a device.
std::string unreadable_files(const Registry& registry) {
  std::string text;
  for (const fs::path& file : registry.all_files()) {
    const std::string problem = read_elf(file).problem;
    if (!problem.empty()) text += ddh::str("; '", file.string(), "' ", problem);
  }
  return text;
}

DeviceChoice choose_present(const Registry& registry, const AskDevices& ask) {
  std::vector<PresentDevices> present;
  std::string problems;
  for (const fs::path& file : registry.files_of(DDH_KIND_DEVICE)) {
    for (const PresentDevices& devices : ask(file)) {
      if (!devices.problem.empty())
        problems += ddh::str("; device '", devices.plugin, "' could not be asked: ", devices.problem);
      if (devices.count > 0) present.push_back(devices);
    }
  }
  if (present.empty())
    return {linked_device(registry), "no other device is present" + problems + unreadable_files(registry)};
  if (present.size() > 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "device.plugin is auto, but there are ", present[0].count, " devices of '",
              present[0].plugin, "' and ", present[1].count, " of '", present[1].plugin, "'; choose one: --device ",
              present[0].plugin);
  const PresentDevices& one = present.front();
  return {one.plugin,
          ddh::str(one.count, one.count == 1 ? " device" : " devices", " of '", one.plugin, "' ",
                   one.count == 1 ? "is" : "are", " present", problems),
          one.count};
}

// How many devices of a named plugin are present; 0 also if it can't be asked: loading it gives the reason.
int present_of(const std::string& choice, const Registry& registry, const fs::path& base, const AskDevices& ask) {
  const Choice parts = parse_choice(choice);
  std::vector<fs::path> files;
  try {
    files = parts.is_path ? std::vector{registry.locate(parts.file, base)} : registry.files_of(DDH_KIND_DEVICE, choice);
  } catch (const ddh::Error&) {
    return 0;
  }
  for (const fs::path& file : files)
    for (const PresentDevices& devices : ask(file))
      if (devices.plugin == id_of(choice) || (parts.is_path && parts.id.empty())) return devices.count;
  return 0;
}

}  // namespace

DeviceChoice choose_device(const Config& config, const Registry& registry, const fs::path& base,
                           const AskDevices& ask) {
  const std::string& wish = config.text("device.plugin");
  if (wish == "auto") return choose_present(registry, ask);
  const bool counts = config.find("run.nproc")->value.is_null();
  return {wish, "", counts ? present_of(wish, registry, base, ask) : 0};
}

int resolve_world_size(std::optional<int64_t> nproc, const DeviceChoice& device) {
  if (nproc && (*nproc < 1 || *nproc > kMaxRanks))
    ddh::fail(DDH_OUT_OF_RANGE, "run.nproc (--nproc) is ", *nproc, "; start 1 to ", kMaxRanks, " ranks");
  if (nproc) return static_cast<int>(*nproc);
  return device.present > 0 ? std::min(device.present, kMaxRanks) : 2;
}

}  // namespace ddhost
