// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/kernels/graph.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

void KernelGroup::add(const KernelCall& kernel) {
  if (kernel.work == 0) return;
  items_.push_back({kernel.image, kernel.name, kernel.work, {static_cast<const char*>(kernel.arg), kernel.arg_bytes}});
}

void KernelGroup::queue(const Host& host, ddh_stream* stream) const {
  for (const Item& item : items_)
    launch_kernel(host, {item.image, item.name, item.arg.data(), item.arg.size(), item.work}, stream);
}

std::string KernelGroup::key() const {
  std::string out;
  for (const Item& item : items_)
    out +=
        str(static_cast<const void*>(item.image), ' ', item.name, ' ', item.work, ' ', item.arg.size(), ' ') + item.arg;
  return out;
}

Graphs::~Graphs() {
  for (const auto& [key, graph] : graphs_) host_.stream->graph_destroy(host_.h, graph);
}

// The kernels have run before, so their images are loaded.
ddh_graph* Graphs::captured(const KernelGroup& group, const char* name, ddh_stream* stream) {
  const ddh_stream_api& streams = *host_.stream;
  ErrorBuffer err;
  const ddh_rc begun = streams.capture_begin(host_.h, stream, name, err.get());
  if (begun == DDH_UNIMPLEMENTED) return nullptr;
  err.check(begun);
  try {
    group.queue(host_, stream);
  } catch (...) {
    streams.capture_end(host_.h, stream, nullptr, nullptr);
    throw;
  }
  ddh_graph* out = nullptr;
  call(streams.capture_end, host_.h, stream, &out);
  return out;
}

void Graphs::queue(const KernelGroup& group, const char* name, ddh_stream* stream) {
  possible_ = possible_ && DDH_CAN(host_.stream, ddh_stream_api, graph_destroy);
  if (!possible_) return group.queue(host_, stream);
  const std::string key = group.key();
  auto graph = graphs_.find(key);
  if (graph == graphs_.end()) {
    if (graphs_.size() >= kMost) return group.queue(host_, stream);
    if (seen_.erase(key) == 0) {
      if (seen_.size() >= kMost) seen_.clear();
      seen_.insert(key);
      return group.queue(host_, stream);
    }
    ddh_graph* const made = captured(group, name, stream);
    possible_ = made != nullptr;
    if (!possible_) return group.queue(host_, stream);
    graph = graphs_.emplace(key, made).first;
  }
  call(host_.stream->graph_launch, host_.h, graph->second, stream);
  ++replays_;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
