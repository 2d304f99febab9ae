// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/own_optim.hpp: an optimizer that a strategy makes for tensors of its own (ddh/service/own_optim.h), and the state
// of one flat range of them. A strategy lists DDH_OWN_OPTIM_IFACE among its needs.
#pragma once

#include <string>
#include <vector>

#include "ddh/sdk/strategy.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class OwnOptim {
 public:
  // In the constructor of the strategy.
  explicit OwnOptim(const ddh_create& create)
      : h_(create.host->h),
        api_(static_cast<const ddh_own_optim_api*>(create.host->get_interface(h_, DDH_OWN_OPTIM_IFACE))) {}

  // In attach. `section`: of its options, in messages. `options`: JSON of an object.
  void make(const char* id, const std::string& section, const std::string& options) {
    call(api_->create, h_, id, section.c_str(), options.c_str(), &optim_);
  }
  [[nodiscard]] uint32_t slot_count() const { return api_->slot_count(h_, optim_); }
  [[nodiscard]] ddh_slot_desc slot(uint32_t index) const {
    ddh_slot_desc out{};
    out.struct_size = sizeof out;
    call(api_->slot, h_, optim_, index, &out);
    return out;
  }
  // block: step, lr, inv_scale and clip_factor of this update.
  void update(const ddh_optim_shard& shard, const ddh_step_block& block) const {
    call(api_->update, h_, optim_, &shard, &block);
  }

 private:
  void* const h_;
  const ddh_own_optim_api* const api_;
  ddh_own_optim* optim_ = nullptr;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
