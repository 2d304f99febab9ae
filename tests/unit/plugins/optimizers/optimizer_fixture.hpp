// SPDX-License-Identifier: Apache-2.0
//
// tests/unit/plugins/optimizers/optimizer_fixture.hpp: a linked-in optimizer plugin behind its C tables, with a host
// that has only a configuration and a model that has only parameter sizes and attributes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ddh/sdk/plugin.hpp"
#include "engine/numerics/exact_norm.hpp"

namespace ddhost::test {

using Numbers = std::map<std::string, std::vector<double>>;
using Texts = std::map<std::string, std::string>;

class OptimizerFixture {
 public:
  // `options` hold every key that the plugin reads, without "optimizer.".
  OptimizerFixture(ddh_plugin_entry_fn entry, Numbers options, const std::vector<uint64_t>& numels,
                   const std::vector<uint32_t>& attributes = {}, std::vector<std::vector<int64_t>> shapes = {},
                   Texts texts = {})
      : options_(std::move(options)), texts_(std::move(texts)), shapes_(std::move(shapes)) {
    host_ = {sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this, [](void*, const char* id) noexcept -> const void* {
               const std::string_view name = id;
               if (name == DDH_ALLOC_IFACE) return &alloc_table();
               return name == DDH_CONFIG_IFACE ? &config_table() : nullptr;
             }};
    ddh::call(entry, &host_, &module_);
    const ddh_create create{sizeof(ddh_create), 0, &host_, module_->desc[0]->id, "optimizer"};
    ddh::call(module_->create, &create, &inst_);
    table_ = static_cast<const ddh_optimizer_api*>(module_->get_interface(inst_, DDH_OPTIMIZER_IFACE));
    describe(numels, attributes);
    ddh::call(table_->attach, inst_, &model_);
  }
  OptimizerFixture(const OptimizerFixture&) = delete;
  OptimizerFixture& operator=(const OptimizerFixture&) = delete;
  ~OptimizerFixture() {
    if (inst_ != nullptr) module_->destroy(inst_);
  }

  [[nodiscard]] ddh_inst* inst() const { return inst_; }
  [[nodiscard]] const ddh_optimizer_api& table() const { return *table_; }
  [[nodiscard]] uint32_t slot_count() const { return table_->slot_count(inst_); }
  [[nodiscard]] int32_t needs(int32_t param) const { return table_->needs(inst_, param); }
  [[nodiscard]] bool slot_used(uint32_t index, int32_t param) const {
    return table_->slot_used(inst_, index, param) != 0;
  }
  [[nodiscard]] ddh_slot_desc slot(uint32_t index) const {
    ddh_slot_desc out{};
    out.struct_size = sizeof out;
    ddh::call(table_->slot, inst_, index, &out);
    return out;
  }
  void update(const ddh_optim_shard& shard, const ddh_step_block& block,
              const std::vector<int64_t>& param_steps) const {
    ddh_update_args args{sizeof(ddh_update_args), 0, &shard, &block, param_steps.data(), nullptr, nullptr};
    const std::vector<double> sums = block.skip != 0 ? std::vector<double>() : param_sums(args);
    if (!sums.empty()) args.param_sums = sums.data();
    ddh::call(table_->update, inst_, &args);
  }

 private:
  // prepare on every range, and the sums over the ranges of each parameter.
  [[nodiscard]] std::vector<double> param_sums(const ddh_update_args& args) const {
    const uint32_t count = table_->sum_count(inst_);
    std::vector<ExactSum> sums(count * params_.size());
    for (uint32_t r = 0; count > 0 && r < args.shard->n_ranges; ++r) {
      const ddh_range& range = args.shard->ranges[r];
      ddh_optim_shard piece = *args.shard;
      piece.ranges = &range;
      piece.n_ranges = 1;
      ddh_update_args piece_args = args;
      piece_args.shard = &piece;
      std::vector<std::vector<float>> values(count, std::vector<float>(range.numel));
      std::vector<float*> pointers;
      for (auto& v : values) pointers.push_back(v.data());
      const ddh_prepare_args call{sizeof(ddh_prepare_args), count, &piece_args, pointers.data()};
      ddh::call(table_->prepare, inst_, &call);
      for (uint32_t k = 0; k < count; ++k)
        sums[static_cast<size_t>(range.param) * count + k].add_range(values[k].data(), range.numel);
    }
    std::vector<double> totals;
    for (const ExactSum& sum : sums) totals.push_back(sum.total());
    return totals;
  }

  static const ddh_config_api& config_table() {
    static const ddh_config_api table = {
        sizeof(ddh_config_api),
        0,
        [](void* h, const char* key, int64_t* out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = static_cast<int64_t>(find(h, key).at(0)); });
        },
        [](void* h, const char* key, double* out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = find(h, key).at(0); });
        },
        [](void* h, const char* key, const char** out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] {
            const auto& texts = static_cast<OptimizerFixture*>(h)->texts_;
            const auto at = texts.find(std::string(key).substr(std::string_view("optimizer.").size()));
            if (at == texts.end()) ddh::fail(DDH_NOT_FOUND, "no text ", key);
            *out = at->second.c_str();
          });
        },
        [](void* h, const char* key, double* out, uint32_t cap, uint32_t* n, ddh_err* err) noexcept {
          return ddh::guard(err, [&] {
            const auto& numbers = find(h, key);
            *n = static_cast<uint32_t>(numbers.size());
            std::copy_n(numbers.begin(), std::min<size_t>(cap, numbers.size()), out);
          });
        },
        nullptr,
        nullptr,
    };
    return table;
  }
  static const ddh_alloc_api& alloc_table() {
    static const ddh_alloc_api table = {
        sizeof(ddh_alloc_api),
        0,
        [](void*, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = ::operator new (args->bytes, std::align_val_t{64}); });
        },
        [](void*, void* p) noexcept { ::operator delete (p, std::align_val_t{64}); },
        nullptr,
    };
    return table;
  }
  static const std::vector<double>& find(void* h, const std::string& key) {
    const auto& options = static_cast<OptimizerFixture*>(h)->options_;
    const auto at = options.find(key.substr(std::string_view("optimizer.").size()));
    if (at == options.end()) ddh::fail(DDH_NOT_FOUND, "no key ", key);
    return at->second;
  }
  void describe(const std::vector<uint64_t>& numels, const std::vector<uint32_t>& attributes) {
    params_.resize(numels.size());
    for (size_t i = 0; i < numels.size(); ++i) {
      params_[i].struct_size = sizeof(ddh_param_desc);
      params_[i].name = "w";
      params_[i].numel = numels[i];
      params_[i].attributes = attributes.empty() ? 0 : attributes[i];
      if (!shapes_.empty()) {
        params_[i].shape = shapes_[i].data();
        params_[i].n_dims = static_cast<uint32_t>(shapes_[i].size());
      }
      param_pointers_.push_back(&params_[i]);
    }
    model_.struct_size = sizeof model_;
    model_.n_params = static_cast<uint32_t>(numels.size());
    model_.params = param_pointers_.data();
  }

  const Numbers options_;
  const Texts texts_;
  const std::vector<std::vector<int64_t>> shapes_;
  ddh_host host_{};
  const ddh_module* module_ = nullptr;
  ddh_inst* inst_ = nullptr;
  const ddh_optimizer_api* table_ = nullptr;
  std::vector<ddh_param_desc> params_;
  std::vector<const ddh_param_desc*> param_pointers_;
  ddh_model_desc model_{};
};

// Buffers of one shard that holds whole parameters, each on a 64-element boundary.
struct Shard {
  explicit Shard(const std::vector<uint64_t>& numels, uint32_t n_slots, uint32_t n_grads) {
    uint64_t at = 0;
    for (size_t i = 0; i < numels.size(); ++i) {
      ranges.push_back({static_cast<int32_t>(i), 0, 0, at, numels[i]});
      at += (numels[i] + 63) / 64 * 64;
    }
    master.assign(at, 0.0f);
    lowp.assign(at, 0);
    slots.assign(n_slots, std::vector<float>(at, 0.0f));
    grads.assign(n_grads, std::vector<float>(at, 0.0f));
  }

  // The shard as the ABI sees it; valid while this object stays as it is.
  ddh_optim_shard view(int32_t lowp_dtype = 0) {
    slot_pointers.clear();
    grad_pointers.clear();
    for (auto& slot : slots) slot_pointers.push_back(slot.data());
    for (auto& grad : grads) grad_pointers.push_back(grad.data());
    ddh_optim_shard shard{};
    shard.struct_size = sizeof shard;
    shard.n_ranges = static_cast<uint32_t>(ranges.size());
    shard.ranges = ranges.data();
    shard.master = master.data();
    shard.lowp = lowp_dtype == 0 ? nullptr : lowp.data();
    shard.lowp_dtype = lowp_dtype;
    shard.n_grads = static_cast<uint32_t>(grads.size());
    shard.grads = grad_pointers.data();
    shard.slots = slot_pointers.data();
    shard.n_slots = static_cast<uint32_t>(slots.size());
    return shard;
  }

  std::vector<ddh_range> ranges;
  std::vector<float> master;
  std::vector<uint16_t> lowp;
  std::vector<std::vector<float>> slots, grads;
  std::vector<void*> slot_pointers;
  std::vector<const float*> grad_pointers;
};

inline ddh_step_block step_block(int64_t step, double lr) {
  ddh_step_block block{};
  block.struct_size = sizeof block;
  block.step = step;
  block.lr = lr;
  block.loss_scale = block.seed_scale = block.inv_scale = block.clip_factor = 1;
  return block;
}

}  // namespace ddhost::test
