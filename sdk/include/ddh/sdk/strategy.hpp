// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/strategy.hpp: the C++ base class of a strategy. Each virtual function is the slot of that name in
// ddh/kind/strategy.h, which documents it. Failures are thrown.
#pragma once

#include <algorithm>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// For state_read and state_write of an entry that has a pointer.
[[noreturn]] void no_such_state_entry(uint32_t entry);

class Strategy : public Instance {
 public:
  using Instance::Instance;
  virtual void attach(const ddh_attach_args& args) = 0;
  virtual void plan(ddh_plan& out) = 0;
  virtual void materialize() = 0;
  virtual void step_begin(const ddh_step_begin_args&) {}
  virtual void acquire(const ddh_unit_use& use, ddh_unit_view& out) = 0;
  virtual void release(const ddh_unit_use& use) = 0;
  virtual void grads_ready(const ddh_unit_use& use) = 0;
  virtual void step() = 0;
  virtual std::vector<ddh_state_entry> state() = 0;
  virtual void state_commit() = 0;
  // For strategies that have entries without a pointer.
  virtual void state_read(uint32_t entry, uint64_t, uint64_t, void*) { no_such_state_entry(entry); }
  virtual void state_write(uint32_t entry, uint64_t, uint64_t, const void*) { no_such_state_entry(entry); }
  virtual void trains_later(const uint8_t*) {}
  virtual void rhythm(ddh_rhythm& out) { out.world_every = 1; }
  virtual void settle() {}
  // For strategies that give DDH_GRAD_LATER.
  virtual void next_block(const ddh_unit_use& /*use*/, ddh_grad_block& out) { out.param = -1; }

  [[nodiscard]] const void* interface(std::string_view id) const override;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
