// SPDX-License-Identifier: Apache-2.0
//
// bad_optimizer: plain gradient descent with one slot that it does not use, and a fault by option.
#include <cmath>

#include "ddh/sdk/optimizer.hpp"
#include "support/misbehave.hpp"

namespace {

using ddhost::test::Fault;
using ddhost::test::misbehave;

class BadOptimizer final : public ddh::Optimizer {
 public:
  explicit BadOptimizer(const ddh_create& create) : Optimizer(create), fault_(host, "optimizer") {
    if (!fault_.hits("slot", -1, 0)) return;
    if (fault_.what == "null_name") slot_.name = nullptr;
    if (fault_.what == "wrong_dtype") slot_.dtype = 99;
    if (fault_.what == "wrong_extent") slot_.extent = 77;
  }
  void attach(const ddh_model_desc&) override {}
  [[nodiscard]] std::span<const ddh_slot_desc> slots() const noexcept override { return {&slot_, 1}; }
  void update(const ddh_update_args& args) override {
    const bool bad = fault_.hits("update", -1, args.block->step);
    if (bad) misbehave(fault_.what, nullptr);
    const float rate = static_cast<float>(args.block->lr) * ddh::unbounded_scale(*args.block);
    for (uint32_t r = 0; r < args.shard->n_ranges; ++r) {
      const ddh_range& range = args.shard->ranges[r];
      float* const master = args.shard->master + range.flat_offset;
      const float* const grad = args.shard->grads[0] + range.flat_offset;
      for (uint64_t i = 0; i < range.numel; ++i) master[i] -= rate * grad[i];
      if (bad && fault_.what == "nan" && range.numel > 0) master[range.numel - 1] = std::nanf("");
    }
  }

  [[nodiscard]] const void* interface(std::string_view id) const override {
    if (id != DDH_OPTIMIZER_IFACE) return nullptr;
    static ddh_optimizer_api table = *static_cast<const ddh_optimizer_api*>(Optimizer::interface(id));
    static const auto proper = table.update;
    table.update = [](ddh_inst* i, const ddh_update_args* args, ddh_err* err) noexcept {
      const Fault& fault = ddh::self_as<BadOptimizer>(i).fault_;
      const bool silent = fault.what == "silent" && fault.hits("update", -1, args->block->step);
      return silent ? misbehave("silent", err) : proper(i, args, err);
    };
    return &table;
  }

 private:
  const Fault fault_;
  ddh_slot_desc slot_{sizeof(ddh_slot_desc), DDH_F32, "unused", DDH_SLOT_PER_ELEMENT, 0};
};

constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(
    BadOptimizer, optimizer, "bad_optimizer", "0.1.0", "mistakes on purpose, for tests",
    R"({"properties": {"lr": {"type": "number", "default": 0.01, "minimum": 0, "description": "rate"},)" DDH_FAULT_SCHEMA
    R"(}})",
    kNeeds, DDH_CAP_IN_PROCESS);
