// SPDX-License-Identifier: Apache-2.0
//
// tests/support/cpu_device.hpp: the device "cpu" that the host carries.
#pragma once

#include <string_view>

#include "ddh/kind/device.h"
#include "ddh/sdk/plugin.hpp"
#include "plugin/linked.hpp"

namespace ddhost::test {

inline const ddh_module& cpu_module() {
  for (const LinkedPlugin& plugin : linked_plugins())
    if (std::string_view(plugin.name) == "cpu") return linked_module(plugin, nullptr);
  ddh::fail(DDH_NOT_FOUND, "this program carries no device 'cpu'");
}

inline const ddh_device_api& cpu_device() {
  return *static_cast<const ddh_device_api*>(cpu_module().get_interface(nullptr, DDH_DEVICE_IFACE));
}

}  // namespace ddhost::test
