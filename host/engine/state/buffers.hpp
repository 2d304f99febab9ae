// SPDX-License-Identifier: Apache-2.0
//
// engine/state/buffers.hpp: keeps a model's buffers equal on all ranks. For DDH_SYNC_STEP, rank 0's values are sent to
// all ranks when a step begins. For DDH_SYNC_FOLD (running statistics), the contributions of the micro-batches of all
// ranks are folded in global order, so the result does not depend on the number of ranks.
#pragma once

#include <string>
#include <vector>

#include "engine/services/tables/interfaces.hpp"

namespace ddhost {

// buffer = fold_decay * buffer + contribution, element by element; F32 in double, rounded once. Integers wrap around.
void fold_into(const ddh_buffer_desc& buffer, const void* contribution, void* values);

// What an object of this class will take.
uint64_t buffers_bytes(const ddh_model_desc& desc, uint64_t micro_batches, uint64_t world_size, bool syncs);

class Buffers {
 public:
  // `desc`, `table` and `services` outlive this object. `micro_batches`: of a step and rank. `syncs`: train.sync_buffers.
  Buffers(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table, const ddh_model_desc& desc,
          RankServices& services, uint64_t micro_batches, bool syncs);
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers();

  // Sends rank 0's values of all buffers with DDH_SYNC_STEP to every rank. [collective]
  void sync();
  // Reads the contribution of a micro-batch to folded buffers. Called with its metrics, before it is discarded.
  void collect(int32_t program, uint64_t micro_batch);
  // Folds the step's contributions of all ranks into the buffers of every rank. Called after decide, which has waited for
  // the model's work on them. A micro-batch with a contribution that is not finite changes no buffer, because the buffers
  // would never be finite again, and its other contributions are of the same forward. Returns the name of the first such
  // buffer of the step, or "". Every rank sees all contributions, so the ranks agree. [collective]
  std::string fold();

 private:
  using Descs = std::vector<const ddh_buffer_desc*>;
  struct Folded {
    const ddh_buffer_desc* desc;
    uint32_t index;   // in the model's buffers
    uint64_t offset;  // bytes from the start of a row: an 8-byte flag for a contribution, then its elements
  };
  void add_folded(const ddh_buffer_desc& buffer, uint32_t index);
  // Takes back the contributions of micro-batches with one that is not finite. Returns what fold returns.
  std::string drop_nonfinite();
  [[nodiscard]] char* row_of(uint64_t rank, uint64_t micro_batch) {
    return all_.data() + rank * mine_.size() + micro_batch * row_bytes_;
  }
  void fold_one(const Folded& buffer, char* values);
  void account(int64_t sign);

  const PluginCaller call_;  // of the model, on the main thread
  ddh_inst* model_;
  const ddh_model_api& table_;
  RankServices& services_;
  const uint64_t micro_batches_;
  Descs synced_;
  std::vector<char> message_;  // the values of all of them, one after another
  std::vector<Folded> folded_;
  uint64_t row_bytes_ = 0;    // of one micro-batch
  std::vector<char> mine_;    // a row for each micro-batch of this rank
  std::vector<char> all_;     // those of all ranks, rank by rank
  std::vector<char> values_;  // of one buffer, while it is folded
};

}  // namespace ddhost
