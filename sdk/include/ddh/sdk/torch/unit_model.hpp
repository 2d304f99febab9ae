// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/unit_model.hpp: the base of models that write their gradients themselves, unit by unit (models/gpt, models/vit,
// models/kgat). It owns their batches, and what they keep for each micro-batch from forward to backward.
//
//   class Gpt final : public ddh::UnitModel<GptBatch, Context> { ... };
//
// Batch has `int64_t bytes() const`, the memory of its samples. Context has a default constructor.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "ddh/sdk/torch/base.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

template <class Batch, class Context>
class UnitModel : public TorchBase {
 public:
  using TorchBase::TorchBase;

  void batch_destroy(ddh_batch* batch) noexcept final {
    const std::unique_ptr<Batch> owned(&batch_of(batch));
    host.alloc->account(host.h, DDH_TAG_DATA, -owned->bytes());
  }

 protected:
  [[nodiscard]] static Batch& batch_of(ddh_batch* batch) { return *reinterpret_cast<Batch*>(batch); }

  // Counts its memory. The host destroys it.
  [[nodiscard]] ddh_batch* give_away(std::unique_ptr<Batch> batch) {
    host.alloc->account(host.h, DDH_TAG_DATA, batch->bytes());
    return reinterpret_cast<ddh_batch*>(batch.release());
  }

  void forget(int32_t micro_batch) noexcept final { contexts_.erase(micro_batch); }

  std::map<int32_t, Context> contexts_;  // per micro-batch
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
