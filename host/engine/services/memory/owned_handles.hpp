// SPDX-License-Identifier: Apache-2.0
//
// engine/services/memory/owned_handles.hpp: the windows, exchanges, streams, events and graphs that the plugins of a rank own.
// A plugin destroys each of its own once, before it is destroyed itself.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "engine/calls/misuse.hpp"

namespace ddhost {

class OwnedHandles {
 public:
  // `misuse` outlives this object.
  explicit OwnedHandles(Misuse& misuse) : misuse_(misuse) {}

  // `owner`: "strategy 'zero1'"; `kind`: "window"; `name`: from the plugin, may be null.
  void add(const void* handle, const std::string& owner, const char* kind, const char* name);
  // Whether the plugin has such a handle, which it now destroys. If not, it is noted.
  [[nodiscard]] bool take(const void* handle, const std::string& owner, const char* kind);
  // Notes those that are left. Called when the plugins are destroyed.
  void note_leaks();

 private:
  struct Handle {
    std::string owner, kind, name;
  };
  Misuse& misuse_;
  std::mutex mutex_;
  std::multimap<const void*, Handle> handles_;  // the streams and events of the CPU are all the same pointer
};

}  // namespace ddhost
