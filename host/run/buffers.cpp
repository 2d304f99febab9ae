// SPDX-License-Identifier: Apache-2.0
#include "run/buffers.hpp"

#include <cstring>

#include "services/buffer_values.hpp"

namespace ddhost {

Buffers::Buffers(const ddh_model_desc& model, RankServices& services, bool syncs) : services_(services) {
  if (!syncs || services.seat.world_size == 1) return;
  uint64_t bytes = 0;
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    if (model.buffers[b]->sync != DDH_SYNC_STEP || model.buffers[b]->numel == 0) continue;
    synced_.push_back(model.buffers[b]);
    bytes += bytes_of(*synced_.back());
  }
  message_.resize(bytes);
  services_.memory.account(DDH_TAG_COMM, static_cast<int64_t>(bytes), /*alias=*/false);
}

Buffers::~Buffers() { services_.memory.account(DDH_TAG_COMM, -static_cast<int64_t>(message_.size()), /*alias=*/false); }

void Buffers::sync() {
  if (message_.empty()) return;
  services_.device->synchronize(nullptr);  // the model's work on them
  const bool is_first = services_.seat.rank == 0;
  char* at = message_.data();
  for (const ddh_buffer_desc* buffer : synced_) {
    if (is_first) std::memcpy(at, buffer_values(*buffer, *services_.staging), bytes_of(*buffer));
    at += bytes_of(*buffer);
  }
  services_.comm->broadcast_bytes(message_.data(), message_.size(), 0, "buffers");
  at = message_.data();
  for (const ddh_buffer_desc* buffer : synced_) {
    if (!is_first) set_buffer_values(*buffer, at, *services_.staging);
    at += bytes_of(*buffer);
  }
}

}  // namespace ddhost
