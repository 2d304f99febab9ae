// SPDX-License-Identifier: Apache-2.0
#include "engine/services/memory/owned_handles.hpp"

#include <algorithm>

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

}  // namespace ddhost
