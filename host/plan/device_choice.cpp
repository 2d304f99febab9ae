// SPDX-License-Identifier: Apache-2.0
#include "plan/device_choice.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "ddh/abi.h"
#include "ddh/sdk/plugin.hpp"
#include "launch/launch.hpp"
#include "plugin/elf_note.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// Libraries that can't be read: one of them might hold a device.
std::vector<std::string> unreadable_files(const Registry& registry) {
  std::vector<std::string> warnings;
  const auto add = [&](const fs::path& file, const std::string& problem) {
    warnings.push_back(
        ddh::str("device.plugin=auto does not know whether '", file.string(), "' holds a device: it ", problem));
  };
  for (const fs::path& file : registry.all_files()) {
    try {
      if (const std::string problem = read_elf(file).problem; !problem.empty()) add(file, problem);
    } catch (const ddh::Error& error) {
      warnings.push_back(ddh::str("device.plugin=auto does not know whether a file holds a device: ", error.what()));
    }
  }
  return warnings;
}

std::string counted_devices(const std::string& plugin, int count) {
  return ddh::str(count, count == 1 ? " device" : " devices", " of '", plugin, "'");
}

DeviceChoice choose_present(const Registry& registry, const AskDevices& ask) {
  std::map<std::string, int> present;  // by plugin; one name may be in several folders, and loading it says so
  DeviceChoice choice;
  choice.warnings = unreadable_files(registry);
  for (const fs::path& file : registry.files_of(DDH_KIND_DEVICE)) {
    for (const DeviceAnswer& device : ask(file)) {
      if (!device.problem.empty())
        choice.warnings.push_back(ddh::str("device.plugin=auto can't ask device '", device.plugin, "' ('",
                                           file.string(), "'), so it is not taken: ", device.problem));
      if (device.present > 0) present.emplace(device.plugin, device.present);
    }
  }
  if (present.empty()) {
    choice.plugin = linked_device(registry);
    choice.reason = "no other device is present";
    return choice;
  }
  const auto& [plugin, count] = *present.begin();
  if (present.size() > 1) {
    const auto& [other, other_count] = *std::next(present.begin());
    ddh::fail(DDH_INVALID_ARGUMENT,
              "device.plugin is auto, but there is more than one kind of device here: ", counted_devices(plugin, count),
              " and ", counted_devices(other, other_count), "; choose one: --device ", plugin);
  }
  choice.plugin = plugin;
  choice.present = count;
  choice.reason = counted_devices(plugin, count) + (count == 1 ? " is present" : " are present");
  return choice;
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
  if (files.size() != 1) return 0;
  const std::vector<DeviceAnswer> devices = ask(files.front());
  if (parts.is_path && parts.id.empty()) return devices.size() == 1 ? devices.front().present : 0;
  for (const DeviceAnswer& device : devices)
    if (device.plugin == id_of(choice)) return device.present;
  return 0;
}

}  // namespace

std::string linked_device(const Registry& registry) {
  for (const Plugin& plugin : registry.built_in())
    if (plugin.desc->kind == DDH_KIND_DEVICE) return plugin.id();
  ddh::fail(DDH_NOT_FOUND, "no device is linked into this program; name one: --device NAME");
}

DeviceChoice choose_device(const Config& config, const Registry& registry, const fs::path& base,
                           const AskDevices& ask) {
  const std::string& wish = config.text("device.plugin");
  if (wish == "auto") return choose_present(registry, ask);
  const bool counts = config.find("run.nproc")->value.is_null();
  return {wish, "", counts ? present_of(wish, registry, base, ask) : 0};
}

int resolve_world_size(std::optional<int64_t> nproc, const DeviceChoice& device, int most) {
  if (nproc && (*nproc < 1 || *nproc > most))
    ddh::fail(DDH_OUT_OF_RANGE, "run.nproc (--nproc) is ", *nproc, "; ",
              most == kMaxRanks ? "start 1 to " : "plan 1 to ", most, " ranks");
  if (nproc) return static_cast<int>(*nproc);
  return device.present > 0 ? std::min(device.present, kMaxRanks) : 2;
}

}  // namespace ddhost
