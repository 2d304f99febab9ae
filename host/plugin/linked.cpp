// SPDX-License-Identifier: Apache-2.0
#include "plugin/linked.hpp"

#include "ddh/sdk/plugin.hpp"
#include "plugin/check_module.hpp"

namespace ddhost {

const ddh_module& linked_module(const LinkedPlugin& plugin, InterfaceLookup lookup) {
  const ProbeHost probe(lookup, MissingInterfaces::kRefuse);
  ddh::ErrorBuffer err;
  const ddh_module* module = nullptr;
  const ddh_rc rc = plugin.entry(&probe.host(), &module, err.get());
  if (rc != DDH_OK) refuse_plugin(plugin.name, ddh::str("is linked into this program and refuses it: ", err.text()));
  check_module(plugin.name, *module);
  return *module;
}

}  // namespace ddhost
