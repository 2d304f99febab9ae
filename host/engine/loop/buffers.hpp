// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/buffers.hpp: a model's state without gradient, equal on all ranks. Buffers with DDH_SYNC_STEP are rank
// 0's and go to all ranks when a step begins. Those with DDH_SYNC_FOLD (running statistics) are made of what each
// micro-batch of all ranks contributes, in global order, so that their bits do not depend on the number of ranks.
#pragma once

#include <vector>

#include "engine/services/interfaces.hpp"

namespace ddhost {

// buffer = fold_decay * buffer + contribution, element by element; F32 in double, rounded once. Integers wrap around.
void fold_into(const ddh_buffer_desc& buffer, const void* contribution, void* values);

class Buffers {
 public:
  // `desc`, `table` and `services` outlive this object. `micro_batches`: of a step and rank. `syncs`: train.sync_buffers.
  Buffers(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table, const ddh_model_desc& desc,
          RankServices& services, uint64_t micro_batches, bool syncs);
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers();

  // Rank 0's values of all buffers with DDH_SYNC_STEP on every rank. [collective]
  void sync();
  // What a micro-batch contributes to folded buffers: after its forward, before it is discarded.
  void collect(int32_t program, uint64_t micro_batch);
  // The step's contributions of all ranks into the folded buffers of every rank. [collective]
  void fold();

 private:
  using Descs = std::vector<const ddh_buffer_desc*>;
  struct Folded {
    const ddh_buffer_desc* desc;
    uint32_t index;   // in the model's buffers
    uint64_t offset;  // bytes from the start of a row: 8 that say whether there is a contribution, then its elements
  };
  void add_folded(const ddh_buffer_desc& buffer, uint32_t index);
  void fold_one(const Folded& buffer, char* values) const;
  void account(int64_t sign);

  const PluginCaller call_;  // of the model, on the main thread
  ddh_inst* model_;
  const ddh_model_api& table_;
  RankServices& services_;
  const uint64_t micro_batches_;
  Descs synced_;
  std::vector<char> message_;  // all of them in a row
  std::vector<Folded> folded_;
  uint64_t row_bytes_ = 0;    // of one micro-batch
  std::vector<char> mine_;    // a row for each micro-batch of this rank
  std::vector<char> all_;     // those of all ranks, rank by rank
  std::vector<char> values_;  // of one buffer, while it is folded
};

}  // namespace ddhost
