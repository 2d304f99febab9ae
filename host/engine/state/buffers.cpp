// SPDX-License-Identifier: Apache-2.0
#include "engine/state/buffers.hpp"

#include <algorithm>
#include <cstring>

#include "checkpoint/usable_values.hpp"
#include "engine/services/memory/staging.hpp"

namespace ddhost {
namespace {

constexpr uint64_t kFlagBytes = 8;  // keeps contributions aligned

uint64_t row_bytes_of(const ddh_buffer_desc& buffer) {
  return kFlagBytes + (bytes_of(buffer) + kFlagBytes - 1) / kFlagBytes * kFlagBytes;
}

template <class T, class Add>
void fold_elements(const void* contribution, void* values, uint64_t numel, Add&& add) {
  const auto* given = static_cast<const T*>(contribution);
  auto* to = static_cast<T*>(values);
  for (uint64_t i = 0; i < numel; ++i) to[i] = add(to[i], given[i]);
}

}  // namespace

void fold_into(const ddh_buffer_desc& buffer, const void* contribution, void* values) {
  if (buffer.dtype == DDH_I64)
    return fold_elements<uint64_t>(contribution, values, buffer.numel, [](uint64_t a, uint64_t b) { return a + b; });
  const double decay = buffer.fold_decay;
  fold_elements<float>(contribution, values, buffer.numel, [decay](float old, float given) {
    return static_cast<float>(decay * static_cast<double>(old) + static_cast<double>(given));
  });
}

uint64_t buffers_bytes(const ddh_model_desc& desc, uint64_t micro_batches, uint64_t world_size, bool syncs) {
  uint64_t synced = 0, largest = 0, row = 0;
  for (uint32_t b = 0; b < desc.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *desc.buffers[b];
    if (buffer.numel == 0) continue;
    if (buffer.sync == DDH_SYNC_FOLD) {
      row += row_bytes_of(buffer);
      largest = std::max(largest, bytes_of(buffer));
    }
    if (buffer.sync == DDH_SYNC_STEP && syncs && world_size > 1) synced += bytes_of(buffer);
  }
  return synced + row * micro_batches * (1 + world_size) + largest;
}

Buffers::Buffers(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table, const ddh_model_desc& desc,
                 RankServices& services, uint64_t micro_batches, bool syncs)
    : call_(call), model_(model), table_(table), services_(services), micro_batches_(micro_batches) {
  uint64_t synced_bytes = 0, largest = 0;
  for (uint32_t b = 0; b < desc.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *desc.buffers[b];
    if (buffer.numel == 0) continue;
    if (buffer.sync == DDH_SYNC_FOLD) {
      add_folded(buffer, b);
      largest = std::max(largest, bytes_of(buffer));
    }
    if (buffer.sync != DDH_SYNC_STEP || !syncs || services.seat.world_size() == 1) continue;
    synced_.push_back(&buffer);
    synced_bytes += bytes_of(buffer);
  }
  message_.resize(synced_bytes);
  mine_.resize(row_bytes_ * micro_batches_);
  all_.resize(mine_.size() * static_cast<uint64_t>(services.seat.world_size()));
  values_.resize(largest);
  account(1);
}

Buffers::~Buffers() { account(-1); }

void Buffers::account(int64_t sign) {
  const uint64_t bytes = message_.size() + mine_.size() + all_.size() + values_.size();
  if (bytes > 0) services_.memory.account(DDH_TAG_COMM, sign * static_cast<int64_t>(bytes), /*alias=*/false);
}

void Buffers::add_folded(const ddh_buffer_desc& buffer, uint32_t index) {
  folded_.push_back({&buffer, index, row_bytes_});
  row_bytes_ += row_bytes_of(buffer);
}

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

void Buffers::collect(int32_t program, uint64_t micro_batch) {
  char* const row = mine_.data() + micro_batch * row_bytes_;
  for (const Folded& buffer : folded_) {
    int32_t given = 0;
    call_(PluginCall::kContribution, table_.contribution, model_, buffer.index, program,
          static_cast<int32_t>(micro_batch), static_cast<void*>(row + buffer.offset + kFlagBytes), &given);
    row[buffer.offset] = given != 0 ? 1 : 0;
  }
}

std::string Buffers::fold() {
  if (folded_.empty()) return "";
  services_.comm->all_gather_bytes(mine_.data(), all_.data(), mine_.size(), "buffers of the step");
  std::string left_out = drop_nonfinite();
  for (const Folded& buffer : folded_) {
    std::memcpy(values_.data(), buffer_values(*buffer.desc, *services_.staging), bytes_of(*buffer.desc));
    fold_one(buffer, values_.data());
    set_buffer_values(*buffer.desc, values_.data(), *services_.staging);
  }
  return left_out;
}

std::string Buffers::drop_nonfinite() {
  std::string first;
  for (uint64_t m = 0; m < micro_batches_; ++m) {
    for (uint64_t r = 0; r < static_cast<uint64_t>(services_.seat.world_size()); ++r) {
      char* const row = row_of(r, m);
      const auto spoiled = std::find_if(folded_.begin(), folded_.end(), [row](const Folded& buffer) {
        const char* const at = row + buffer.offset;
        return *at != 0 && first_unusable(*buffer.desc, at + kFlagBytes);
      });
      if (spoiled == folded_.end()) continue;
      if (first.empty()) first = spoiled->desc->name;
      for (const Folded& buffer : folded_) row[buffer.offset] = 0;
    }
  }
  return first;
}

void Buffers::fold_one(const Folded& buffer, char* values) {
  const auto world_size = static_cast<uint64_t>(services_.seat.world_size());
  for (uint64_t m = 0; m < micro_batches_; ++m) {
    for (uint64_t r = 0; r < world_size; ++r) {
      const char* const at = row_of(r, m) + buffer.offset;
      if (*at != 0) fold_into(*buffer.desc, at + kFlagBytes, values);
    }
  }
}

}  // namespace ddhost
