// SPDX-License-Identifier: Apache-2.0
//
// tests/support/bare_run.hpp: training on one rank without host and strategy: a model and an optimizer out of their plugins,
// behind their C tables, and plain buffers. What a host adds (scale, norm, clipping, sums of micro-batches) is written down
// here a second time, from docs/numerics.md and in the simplest way.
#pragma once

#include <dlfcn.h>

#include <cmath>
#include <utility>

#include "support/model_driver.hpp"

namespace ddhost::test {

// A plugin's entry out of its file. The library stays loaded.
inline ddh_plugin_entry_fn entry_of(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) ddh::fail(DDH_NOT_FOUND, "cannot load '", path, "': ", dlerror());
  return reinterpret_cast<ddh_plugin_entry_fn>(dlsym(library, "ddh_plugin_entry_0"));
}

// Doubles summed without rounding (Shewchuk 1997: partial sums that do not overlap), rounded once.
class SumOfDoubles {
 public:
  void add(double x) {
    size_t kept = 0;
    for (double y : partials_) {
      if (std::fabs(x) < std::fabs(y)) std::swap(x, y);
      const double high = x + y, low = y - (high - x);
      if (low != 0) partials_[kept++] = low;
      x = high;
    }
    partials_.resize(kept);
    partials_.push_back(x);
  }
  [[nodiscard]] double total() const {
    double high = 0, low = 0;
    size_t n = partials_.size();
    while (n > 0 && low == 0) {
      const double x = high, y = partials_[--n];
      high = x + y;
      low = y - (high - x);
    }
    // A tie goes where the rest points to.
    if (n > 0 && ((low < 0 && partials_[n - 1] < 0) || (low > 0 && partials_[n - 1] > 0))) {
      const double twice = 2 * low, rounded = high + twice;
      if (twice == rounded - high) high = rounded;
    }
    return high;
  }

 private:
  std::vector<double> partials_;  // from the smallest
};

// Squares in blocks of 64 elements from the parameter's start, in the documented order inside a block.
inline void add_squares(const std::vector<float>& x, SumOfDoubles& sum) {
  for (size_t block = 0; block < x.size(); block += 64) {
    std::array<double, 8> s{};
    for (size_t i = block; i < std::min(x.size(), block + 64); ++i) {
      const double v = x[i];
      s[(i - block) % 8] += v * v;
    }
    sum.add(((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])));
  }
}

class BareOptimizer {
 public:
  BareOptimizer(ddh_plugin_entry_fn entry, FakeHost::Options options, const ddh_model_desc& model)
      : host_(std::move(options)), steps_(model.n_params) {
    ddh::call(entry, host_.get(), &module_);
    host_.add_defaults("optimizer", module_->desc[0]->config_schema);
    const ddh_create create{sizeof(ddh_create), 0, host_.get(), module_->desc[0]->id, "optimizer"};
    ddh::call(module_->create, &create, &inst_);
    table_ = static_cast<const ddh_optimizer_api*>(module_->get_interface(inst_, DDH_OPTIMIZER_IFACE));
    ddh::call(table_->attach, inst_, &model);
    for (uint32_t p = 0; p < model.n_params; ++p)
      slots_.emplace_back(table_->slot_count(inst_), std::vector<float>(model.params[p]->numel));
  }
  BareOptimizer(const BareOptimizer&) = delete;
  BareOptimizer& operator=(const BareOptimizer&) = delete;
  ~BareOptimizer() { module_->destroy(inst_); }

  void count_updates() {
    for (auto& n : steps_) ++n;
  }
  void update(uint32_t param, std::vector<float>& values, const std::vector<float>& grad, const ddh_step_block& block) {
    const ddh_range range{static_cast<int32_t>(param), 0, 0, 0, values.size()};
    std::vector<void*> slots;
    for (auto& slot : slots_[param]) slots.push_back(slot.data());
    const float* grads[] = {grad.data()};
    const ddh_optim_shard shard{sizeof(ddh_optim_shard),
                                1,
                                &range,
                                values.data(),
                                nullptr,
                                0,
                                1,
                                grads,
                                slots.data(),
                                static_cast<uint32_t>(slots.size()),
                                0};
    const ddh_update_args args{sizeof(ddh_update_args), 0, &shard, &block, steps_.data(), nullptr, nullptr};
    ddh::call(table_->update, inst_, &args);
  }

 private:
  FakeHost host_;
  const ddh_module* module_ = nullptr;
  ddh_inst* inst_ = nullptr;
  const ddh_optimizer_api* table_ = nullptr;
  std::vector<std::vector<std::vector<float>>> slots_;  // per parameter and slot
  std::vector<int64_t> steps_;
};

struct BareSettings {
  double lr = 0.01, clip_norm = 1;
  size_t micro_batch = 12, accum = 1;
  bool micro_first = false;
  size_t reduce_block = 1;  // micro-batches that are added up first, then to the sum of the step
};

// Training on one rank, or what any number of ranks computes together: `accum` micro-batches of all ranks, one after the
// other. Values are in model.value(i).
class BareRun {
 public:
  struct StepResult {
    double loss, grad_norm;
  };

  BareRun(ddh_plugin_entry_fn model_entry, FakeHost::Options model_options, ddh_plugin_entry_fn optimizer,
          FakeHost::Options optimizer_options, BareSettings settings)
      : model(model_entry, std::move(model_options)),
        optimizer_(optimizer, std::move(optimizer_options), model.desc()),
        settings_(settings) {}

  ModelDriver model;

  // `samples` of all micro-batches, one after the other.
  StepResult step(const std::vector<int64_t>& samples) {
    ++step_;
    const double per_step = static_cast<double>(settings_.micro_batch * settings_.accum);
    const double seed_scale = std::exp2(-std::round(std::log2(per_step)));
    double loss_sum = 0, count = 0;
    std::vector<std::vector<float>> sums, block_sums;
    for (size_t m = 0; m < settings_.accum; ++m) {
      const auto first = samples.begin() + static_cast<std::ptrdiff_t>(m * settings_.micro_batch);
      ModelDriver::Batch batch =
          model.create_batch({first, first + static_cast<std::ptrdiff_t>(settings_.micro_batch)}, 0, step_);
      model.forward(batch.batch, 0, step_);
      const auto [sum, n] = model.metric();
      model.backward(batch.batch, seed_scale, 0, step_, 0, /*add=*/settings_.micro_first && m > 0);
      model.discard();
      model.destroy_batch(batch);
      loss_sum += sum;
      count += n;
      const bool last = m + 1 == settings_.accum;
      if (settings_.micro_first && !last) continue;
      add(block_sums, gradients());
      if (settings_.micro_first || last || (m + 1) % settings_.reduce_block == 0)
        add(sums, std::exchange(block_sums, {}));
    }
    ddh_step_block block{
        sizeof(ddh_step_block), 0, step_, settings_.lr, 1, seed_scale, 1 / (seed_scale * count), 1, 0, 0};
    SumOfDoubles squares;
    for (uint32_t p = 0; p < sums.size(); ++p) {
      if (is_trained(p)) add_squares(sums[p], squares);
    }
    block.grad_norm = std::sqrt(squares.total()) * block.inv_scale;
    if (settings_.clip_norm > 0) block.clip_factor = std::min(1.0, settings_.clip_norm / (block.grad_norm + 1e-6));
    optimizer_.count_updates();
    for (uint32_t p = 0; p < sums.size(); ++p) {
      if (is_trained(p)) optimizer_.update(p, model.value(p), sums[p], block);
    }
    return {loss_sum / count, block.grad_norm};
  }

 private:
  [[nodiscard]] bool is_trained(uint32_t p) const {
    return (model.desc().params[p]->attributes & DDH_PARAM_FROZEN) == 0;
  }
  [[nodiscard]] std::vector<std::vector<float>> gradients() {
    std::vector<std::vector<float>> out;
    for (uint32_t p = 0; p < model.desc().n_params; ++p) out.push_back(model.grad(p));
    return out;
  }
  // The first is taken as it is: 0 + -0 would be 0.
  static void add(std::vector<std::vector<float>>& sums, const std::vector<std::vector<float>>& more) {
    if (sums.empty()) {
      sums = more;
      return;
    }
    for (size_t p = 0; p < sums.size(); ++p)
      for (size_t i = 0; i < sums[p].size(); ++i) sums[p][i] += more[p][i];
  }

  BareOptimizer optimizer_;
  BareSettings settings_;
  int64_t step_ = 0;
};

}  // namespace ddhost::test
