// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/optim/optim_store.hpp: how a data-parallel strategy stores the optimizer state of what this rank updates:
// masters and the optimizer's slots. ResidentOptim keeps them in memory. TieredOptim (ddh/sdk/tier/tiered_optim.hpp)
// keeps them on another tier.
#pragma once

#include <functional>
#include <vector>

#include "ddh/sdk/grads/grad_store.hpp"
#include "ddh/sdk/optim/optim_state.hpp"
#include "ddh/sdk/params/param_store.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// A `space` is an index in ModelLayout::spaces. Failures are thrown.
class OptimStore {
 public:
  virtual ~OptimStore() = default;

  // Peak bytes under DDH_TAG_OPTIM on this rank, and bytes of files. Known before materialize.
  [[nodiscard]] virtual uint64_t bytes() const = 0;
  [[nodiscard]] virtual uint64_t file_bytes() const { return 0; }
  // Of the bytes: in pinned memory.
  [[nodiscard]] virtual uint64_t pinned_bytes() const { return 0; }
  virtual void materialize() = 0;
  // Sets initial values of parameters and masters.
  virtual void init(ParamStore& params) = 0;

  virtual void step_begin() {}
  // The phases of a step, after its gradients are summed: what the optimizer needs of whole parameters, such as their
  // norms; then master, slots and values of everything that has a gradient.
  virtual void prepare(const ddh_step_block& block, ParamStore& params, GradStore& grads) = 0;
  virtual void update(const ddh_step_block& block, ParamStore& params, GradStore& grads) = 0;
  virtual void step_done() {}

  // A load has written the masters: updates the values.
  virtual void refresh(ParamStore& params) = 0;
  // Frees the slots that the optimizer does not use any more.
  virtual void free_unused() = 0;
  // The entries of a checkpoint: values, or the masters if there are any, and slots. Entries without a pointer are read
  // and written in elements, from `offset` of the entry on.
  virtual void append_state(std::vector<ddh_state_entry>& out, ParamStore& params) = 0;
  virtual void state_read(uint32_t entry, uint64_t offset, uint64_t numel, void* dst);
  virtual void state_write(uint32_t entry, uint64_t offset, uint64_t numel, const void* src);
};

// The elements of a flat space that a rank updates and whose optimizer state it keeps.
struct OptimPart {
  uint64_t offset, numel;
  Replica replica;                  // among the ranks that keep the same part
  int32_t memory = DDH_MEM_DEVICE;  // DDH_MEM_* of state and values
};

// Everything, on every rank.
[[nodiscard]] inline OptimPart whole_part(const FlatSpace& space, const ddh_attach_args& args) {
  return {0, space.numel, {args.rank, args.world_size}};
}
// The segment of this rank.
[[nodiscard]] inline OptimPart segment_part(const FlatSpace& space, const ddh_attach_args& args) {
  return {space.cut.segment_offset[static_cast<size_t>(args.rank)], space.segment_numel(args.rank), {}};
}

// State in memory, for a part of each space.
class ResidentOptim final : public OptimStore {
 public:
  using PartOf = std::function<OptimPart(const FlatSpace& space)>;

  // Host and layout outlive the store.
  ResidentOptim(const Host& host, const ModelLayout& layout, const PartOf& part_of);

  [[nodiscard]] uint64_t bytes() const override;
  [[nodiscard]] uint64_t pinned_bytes() const override;
  void materialize() override;
  void init(ParamStore& params) override;
  void prepare(const ddh_step_block& block, ParamStore& params, GradStore& grads) override;
  void update(const ddh_step_block& block, ParamStore& params, GradStore& grads) override;
  void refresh(ParamStore& params) override;
  void free_unused() override;
  void append_state(std::vector<ddh_state_entry>& out, ParamStore& params) override;

 private:
  [[nodiscard]] uint64_t bytes_of(size_t space) const;

  const Host& host_;
  const ModelLayout& layout_;
  std::vector<OptimPart> parts_;    // per space
  std::vector<OptimState> states_;  // per space, once materialized
};

// The stores of what each rank updates: everything, or its segments.
[[nodiscard]] inline std::unique_ptr<OptimStore> whole_optim(const Host& host, const ModelLayout& layout,
                                                             const ddh_attach_args& args) {
  return std::make_unique<ResidentOptim>(host, layout, [&](const FlatSpace& s) { return whole_part(s, args); });
}
[[nodiscard]] inline std::unique_ptr<OptimStore> segment_optim(const Host& host, const ModelLayout& layout,
                                                               const ddh_attach_args& args) {
  return std::make_unique<ResidentOptim>(host, layout, [&](const FlatSpace& s) { return segment_part(s, args); });
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
