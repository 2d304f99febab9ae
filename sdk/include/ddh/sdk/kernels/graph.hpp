// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/kernels/graph.hpp: groups of kernels that are queued as one graph, where the device has graphs and the run
// uses them (device.graphs). A group is recognized by its kernels and their arguments, byte for byte: addresses that
// change, such as those of gathered parameters, make another graph. Draft: no shipped model uses graphs yet.
//
//   ddh::Graphs graphs(host);
//   ddh::KernelGroup group;
//   group.add(image, "scale", kernel, numel);
//   graphs.queue(group, "unit 3", stream);
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ddh/sdk/kernels/element_kernels.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Kernels in the order in which they run. It owns copies of their arguments.
class KernelGroup {
 public:
  // A kernel over `work` items; without work it is left out. All bytes of the kernel are compared: it has no padding
  // between or behind its members, or its padding is zero. Else equal kernels differ, and are captured again.
  template <class Kernel>
  void add(const char* image, const char* name, const Kernel& kernel, uint64_t work) {
    add({image, name, &kernel, sizeof kernel, work});
  }
  void add(const KernelCall& kernel);
  void queue(const Host& host, ddh_stream* stream) const;

 private:
  friend class Graphs;
  struct Item {
    const char *image, *name;
    uint64_t work;
    std::string arg;
  };
  // Equal for groups that do the same.
  [[nodiscard]] std::string key() const;
  std::vector<Item> items_;
};

class Graphs {
 public:
  explicit Graphs(const Host& host) : host_(host) {}
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  // The queued work is done.
  ~Graphs();

  // Queues the group: the first time kernel by kernel, the second time it is captured, later it is replayed. A group
  // counts as new if kMost other groups were new since its first time.
  void queue(const KernelGroup& group, const char* name, ddh_stream* stream);
  [[nodiscard]] uint64_t replays() const { return replays_; }

 private:
  static constexpr size_t kMost = 1024;  // graphs; further groups are queued kernel by kernel
  [[nodiscard]] ddh_graph* captured(const KernelGroup& group, const char* name, ddh_stream* stream);

  const Host& host_;
  bool possible_ = true;                      // until the device says that it is not
  std::map<std::string, ddh_graph*> graphs_;  // by key
  std::set<std::string> seen_;                // keys that were queued once, kMost at most
  uint64_t replays_ = 0;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
