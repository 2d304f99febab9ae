// SPDX-License-Identifier: Apache-2.0
//
// The list of all interfaces, and the seats of plugins, with the handles that they own.
#include "engine/services/tables/interfaces.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string_view>

#include "engine/services/tables/kind_services.hpp"
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
  const ServiceEntry* const entry = find_service(id);
  return entry == nullptr ? nullptr : entry->table;
}

PluginSeat::PluginSeat(RankServices& rank_services, std::string plugin_name, const std::string& options_section,
                       const ddh_desc* plugin_desc, std::unique_ptr<const RunConfig> config_of_its_own)
    : services(rank_services),
      name(std::move(plugin_name)),
      shown(name.substr(0, name.find(':')) + " '" + name.substr(name.find(':') + 1) + "'"),
      kind(name.substr(0, name.find(':'))),
      section(options_section.empty() ? kind : options_section),
      is_model(kind == "model"),
      desc_(plugin_desc),
      host_{sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this,
            [](void* h, const char* id) noexcept -> const void* { return detail::seat_of(h).service(id); }},
      own_config_(std::move(config_of_its_own)) {}

namespace {

bool has(const char* const* list, std::string_view id) {
  for (; list != nullptr && *list != nullptr; ++list)
    if (*list == id) return true;
  return false;
}

}  // namespace

const void* PluginSeat::service(const char* id) {
  const ServiceEntry* const entry = id == nullptr ? nullptr : find_service(id);
  if (entry == nullptr) return nullptr;
  if (entry->table == &detail::kCodecsTable && services.codec == nullptr) return nullptr;
  if (desc_ == nullptr) return entry->table;
  const bool is_for_kind = entry->is_for(desc_->kind), is_listed = has(desc_->needs, id) || has(desc_->wants, id);
  if (is_for_kind && is_listed) return entry->table;
  const std::lock_guard lock(mutex_);
  if (refused_.insert(id).second && services.log != nullptr)
    services.log->warn("{} asks for the service '{}' and does not get it: {}; fix the plugin", shown, id,
                       is_for_kind ? "its descriptor lists it neither in `needs` nor in `wants`"
                                   : "plugins of its kind have no such service");
  return nullptr;
}

}  // namespace ddhost
