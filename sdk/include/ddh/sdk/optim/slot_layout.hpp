// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/optim/slot_layout.hpp: how a strategy stores one slot of the optimizer for a part of a flat space, by the slot's
// dtype and extent (DDH_SLOT_*): its bytes, and its entries of a checkpoint.
#pragma once

#include "ddh/sdk/params/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class SlotLayout {
 public:
  // Slot `index` of ddh.optim. `host` outlives the object.
  SlotLayout(const Host& host, uint32_t index);

  [[nodiscard]] int32_t index() const { return index_; }
  [[nodiscard]] int32_t dtype() const { return desc_.dtype; }
  // Whether a later step uses it for a parameter of the space.
  [[nodiscard]] bool is_used(const FlatSpace& space) const;

  // Bytes for `numel` elements of a space, a multiple of kGrid, whose parameters are `ranges`.
  [[nodiscard]] uint64_t bytes(const std::vector<ddh_range>& ranges, uint64_t numel) const;

  // Where the part of one range is, with the entry's place in the tensor of the slot.
  struct Part {
    int32_t param;
    uint64_t offset, numel;  // elements of the tensor
    uint64_t first_byte;     // from the start of the memory for `ranges`
  };
  [[nodiscard]] std::vector<Part> parts(const std::vector<ddh_range>& ranges) const;
  // The entries of memory for `ranges`, which begins at `base`.
  void append_state(std::vector<ddh_state_entry>& out, const std::vector<ddh_range>& ranges, void* base,
                    Replica replica, int32_t memory = DDH_MEM_DEVICE) const;

 private:
  [[nodiscard]] uint64_t width() const { return ddh_dtype_bytes(desc_.dtype); }
  [[nodiscard]] uint64_t sized_numel(int32_t param) const;

  const Host* host_;
  int32_t index_;
  ddh_slot_desc desc_{};
};

// All slots of ddh.optim.
std::vector<SlotLayout> slot_layouts(const Host& host);

// Per parameter a number, equal for parameters that use the same slots: Grouping::slot_use.
std::vector<int32_t> slot_use(const Host& host, const ddh_model_desc& model);

}  // namespace DDH_HIDDEN
}  // namespace ddh
