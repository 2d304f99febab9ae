// SPDX-License-Identifier: Apache-2.0
//
// The list of all interfaces, and the seats of plugins, with the handles that they own.
#include "engine/services/tables/interfaces.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/services/tables/tables.hpp"

namespace ddhost {

void OwnedHandles::add(const void* handle, const std::string& owner, const char* kind, const char* name) {
  const std::lock_guard lock(mutex_);
  handles_.emplace(handle, Handle{owner, kind, name == nullptr ? "" : name});
}

bool OwnedHandles::take(const void* handle, const std::string& owner, const char* kind) {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = handles_.equal_range(handle);
  const auto mine =
      std::find_if(first, last, [&](const auto& at) { return at.second.owner == owner && at.second.kind == kind; });
  if (mine != last) {
    handles_.erase(mine);
    return true;
  }
  misuse_.note(ddh::str(owner, " destroyed something that is not ", kind[0] == 'e' ? "an " : "a ", kind,
                        " of its own, or not any more; destroy each handle once: fix the plugin"));
  return false;
}

void OwnedHandles::note_leaks() {
  const std::lock_guard lock(mutex_);
  if (handles_.empty()) return;
  const Handle& first = handles_.begin()->second;
  const auto count = std::count_if(handles_.begin(), handles_.end(),
                                   [&](const auto& other) { return other.second.owner == first.owner; });
  misuse_.note(ddh::str(first.owner, " was destroyed and had not destroyed its ", first.kind,
                        first.name.empty() ? "" : " '" + first.name + "'",
                        count > 1 ? ddh::str(" and ", count - 1, " more handles") : "",
                        "; destroy each handle in destroy at the latest: fix the plugin"));
}

void detail::check_ranges(const ddh_range* ranges, uint32_t n_ranges) {
  if (ranges == nullptr && n_ranges > 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "the array of ", n_ranges, " parameter ranges is NULL; fix the strategy");
  for (uint32_t i = 0; i < n_ranges; ++i)
    if (ranges[i].reserved0 != 0)
      ddh::fail(DDH_UNIMPLEMENTED, "ddh_range.reserved0 is ", ranges[i].reserved0, " in range ", i,
                "; it is reserved and must be 0");
}

const void* host_interface(const char* id) {
  struct Entry {
    std::string_view id;
    const void* table;
  };
  static constexpr std::array<Entry, 13> kAll = {{{DDH_LOG_IFACE, &detail::kLogTable},
                                                  {DDH_CONFIG_IFACE, &detail::kConfigTable},
                                                  {DDH_ALLOC_IFACE, &detail::kAllocTable},
                                                  {DDH_STREAM_IFACE, &detail::kStreamTable},
                                                  {DDH_COPY_IFACE, &detail::kCopyTable},
                                                  {DDH_FLATOPS_IFACE, &detail::kFlatopsTable},
                                                  {DDH_COMM_IFACE, &detail::kCommTable},
                                                  {DDH_WINDOW_IFACE, &detail::kWindowTable},
                                                  {DDH_OPTIM_IFACE, &detail::kOptimTable},
                                                  {DDH_KV_IFACE, &detail::kKvTable},
                                                  {DDH_METRICS_IFACE, &detail::kMetricsTable},
                                                  {DDH_PARAMS_IFACE, &detail::kParamsTable},
                                                  {DDH_KERNELS_IFACE, &detail::kKernelsTable}}};
  for (const Entry& entry : kAll) {
    if (entry.id == id) return entry.table;
  }
  return nullptr;
}

PluginSeat::PluginSeat(RankServices& rank_services, std::string plugin_name, const std::string& options_section)
    : services(rank_services),
      name(std::move(plugin_name)),
      shown(name.substr(0, name.find(':')) + " '" + name.substr(name.find(':') + 1) + "'"),
      kind(name.substr(0, name.find(':'))),
      section(options_section.empty() ? kind : options_section),
      is_model(kind == "model"),
      host_{sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this,
            [](void*, const char* id) noexcept -> const void* { return host_interface(id); }} {}

}  // namespace ddhost
