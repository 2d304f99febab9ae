// SPDX-License-Identifier: Apache-2.0
//
// tests/support/model_driver.hpp: drives a model through its ABI in one process, with plain buffers for parameters and
// gradients: no host, no strategy, no optimizer.
//
//   ModelDriver model(ddh_entry_gpt, {{"model.size", "0.8M"}, {"data.path", text}});
//   model.value("transformer.wte.weight") = ...;
//   double loss = model.train_step({0, 17, 4});   // mean; gradients are then in model.grad(name)
//
// With the option precision.compute=bf16 or fp16 the model sees rounded copies of the values, as strategies make them;
// values change by value() alone then.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ddh/sdk/lowp.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost::test {

// The host's tables that models use. Values are text; numbers and booleans are parsed when they are read.
class FakeHost {
 public:
  using Options = std::map<std::string, std::string>;
  explicit FakeHost(Options options) : options_(std::move(options)) {
    host_ = {sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this, table};
  }
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  [[nodiscard]] const ddh_host* get() const { return &host_; }
  [[nodiscard]] const std::string& log() const { return log_; }
  [[nodiscard]] int64_t bytes(int32_t tag) const { return bytes_.at(static_cast<size_t>(tag)); }
  [[nodiscard]] int64_t peak_bytes(int32_t tag) const { return peak_bytes_.at(static_cast<size_t>(tag)); }

  [[nodiscard]] const std::string& option(const char* key) const {
    const auto at = options_.find(key);
    if (at == options_.end()) ddh::fail(DDH_NOT_FOUND, "the test gives no option '", key, "'");
    return at->second;
  }
  void set_default(const std::string& key, const std::string& value) { options_.emplace(key, value); }
  // Defaults from a plugin's JSON Schema, as "<section>.<key>"; what is given already stays.
  void add_defaults(const std::string& section, const char* schema) {
    if (schema == nullptr) return;
    const nlohmann::json properties = nlohmann::json::parse(schema).at("properties");
    for (const auto& [key, option] : properties.items()) {
      const nlohmann::json& value = option.at("default");
      options_.emplace(section + "." + key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }

 private:
  static FakeHost& self(void* h) { return *static_cast<FakeHost*>(h); }
  static const void* table(void*, const char* id) noexcept {
    const std::string_view name = id;
    if (name == DDH_LOG_IFACE) return &log_table();
    if (name == DDH_CONFIG_IFACE) return &config_table();
    if (name == DDH_ALLOC_IFACE) return &alloc_table();
    if (name == DDH_COMM_IFACE) return &comm_table();
    if (name == DDH_STREAM_IFACE) return &stream_table();
    return nullptr;
  }
  static const ddh_log_api& log_table() {
    static const ddh_log_api t = {sizeof(ddh_log_api), 0, [](void* h, int32_t, const char* text) noexcept {
                                    self(h).log_ += std::string(text) + "\n";
                                  }};
    return t;
  }
  static const ddh_config_api& config_table() {
    static const ddh_config_api t = {
        sizeof(ddh_config_api),
        0,
        [](void* h, const char* key, int64_t* out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] {
            const std::string& value = self(h).option(key);
            *out = value == "true" ? 1 : value == "false" ? 0 : std::stoll(value);
          });
        },
        [](void* h, const char* key, double* out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = std::stod(self(h).option(key)); });
        },
        [](void* h, const char* key, const char** out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = self(h).option(key).c_str(); });
        },
        [](void* h, const char* key, double* out, uint32_t cap, uint32_t* n, ddh_err* err) noexcept {
          return ddh::guard(err, [&] {
            const auto values = nlohmann::json::parse(self(h).option(key)).get<std::vector<double>>();
            *n = static_cast<uint32_t>(values.size());
            std::copy_n(values.begin(), std::min<size_t>(cap, values.size()), out);
          });
        },
        [](void* h, const char* key, const char* mine, const char** out, ddh_err* err) noexcept {
          return ddh::guard(err, [&] { *out = (self(h).options_[key] = mine).c_str(); });
        },
        nullptr,
    };
    return t;
  }
  static const ddh_alloc_api& alloc_table() {
    static const ddh_alloc_api t = {sizeof(ddh_alloc_api),
                                    0,
                                    nullptr,
                                    nullptr,
                                    [](void* h, int32_t tag, int64_t bytes) noexcept {
                                      const std::lock_guard lock(self(h).mutex_);
                                      const auto i = static_cast<size_t>(tag);
                                      self(h).bytes_[i] += bytes;
                                      self(h).peak_bytes_[i] = std::max(self(h).peak_bytes_[i], self(h).bytes_[i]);
                                    },
                                    nullptr};
    return t;
  }
  static const ddh_stream_api& stream_table() {  // at once, as on the CPU
    static const ddh_stream_api t = [] {
      ddh_stream_api s{};
      s.struct_size = sizeof s;
      s.synchronize = [](void*, ddh_stream*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; };
      s.run = [](void*, ddh_stream*, ddh_stream_fn fn, void* arg, const ddh_access*, uint32_t, const char*,
                 ddh_err* err) noexcept -> ddh_rc { return fn(arg, err); };
      return s;
    }();
    return t;
  }
  static const ddh_comm_api& comm_table() {
    static const ddh_comm_api t = [] {
      ddh_comm_api c{};
      c.struct_size = sizeof c;
      c.group_info = [](void*, ddh_group*, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err*) noexcept -> ddh_rc {
        if (rank != nullptr) *rank = 0;
        if (size != nullptr) *size = 1;
        if (caps != nullptr) *caps = 0;
        return DDH_OK;
      };
      return c;
    }();
    return t;
  }

  Options options_;
  std::mutex mutex_;  // of what follows
  ddh_host host_{};
  std::string log_;
  std::array<int64_t, 6> bytes_{}, peak_bytes_{};  // by tag
};

class ModelDriver {
 public:
  using Options = FakeHost::Options;

  // `options` hold what differs from the schema's defaults, and the few keys of other sections that the model reads.
  ModelDriver(ddh_plugin_entry_fn entry, Options options) : host_(std::move(options)) {
    ddh::call(entry, host_.get(), &module_);
    for (const char* key : {"data.path", "data.val_path"}) host_.set_default(key, "");
    host_.set_default("data.val_fraction", "0.1");
    host_.set_default("data.micro_batch", "1");
    host_.set_default("run.seed", "1337");
    host_.set_default("precision.compute", "fp32");
    host_.add_defaults("model", module_->desc[0]->config_schema);
    const ddh_create create{sizeof(ddh_create), 0, host_.get(), module_->desc[0]->id, "model"};
    ddh::call(module_->create, &create, &inst_);
    table_ = static_cast<const ddh_model_api*>(module_->get_interface(inst_, DDH_MODEL_IFACE));
    try {
      ddh::call(table_->describe, inst_, &desc_);
      ddh::call(table_->prepare, inst_);
    } catch (...) {
      module_->destroy(inst_);
      throw;
    }
    for (uint32_t i = 0; i < desc_->n_params; ++i) {
      values_.emplace_back(desc_->params[i]->numel, 0.0F);
      grads_.emplace_back(desc_->params[i]->numel, 0.0F);
    }
  }
  ModelDriver(const ModelDriver&) = delete;
  ModelDriver& operator=(const ModelDriver&) = delete;
  ~ModelDriver() { module_->destroy(inst_); }

  [[nodiscard]] const ddh_model_desc& desc() const { return *desc_; }
  [[nodiscard]] ddh_inst* inst() const { return inst_; }
  [[nodiscard]] const ddh_model_api& table() const { return *table_; }
  [[nodiscard]] const FakeHost& host() const { return host_; }
  [[nodiscard]] const ddh_sampler_api* sampler() const {
    return static_cast<const ddh_sampler_api*>(module_->get_interface(inst_, DDH_SAMPLER_IFACE));
  }

  [[nodiscard]] size_t index(const std::string& name) const {
    for (uint32_t i = 0; i < desc_->n_params; ++i) {
      if (name == desc_->params[i]->name) return i;
    }
    ddh::fail(DDH_NOT_FOUND, "the model has no parameter '", name, "'");
  }
  std::vector<float>& value(size_t i) {
    rounded_is_old_ = true;
    return values_[i];
  }
  std::vector<float>& grad(size_t i) { return grads_[i]; }
  std::vector<float>& value(const std::string& name) { return value(index(name)); }
  std::vector<float>& grad(const std::string& name) { return grads_[index(name)]; }
  [[nodiscard]] std::string name(size_t i) const { return desc_->params[i]->name; }
  [[nodiscard]] std::vector<int64_t> shape(size_t i) const {
    return {desc_->params[i]->shape, desc_->params[i]->shape + desc_->params[i]->n_dims};
  }

  // Between two calls the parameters move elsewhere and NaN stands in the old place, as a scheme that frees them may do.
  bool move_params = false;
  // NaN stands in the gradients before a backward that writes them. Off where time is measured.
  bool poison_grads = true;
  // Each unit is run once more before its backward.
  bool recompute = false;
  // Place of a micro-batch among those of all ranks; -1: as on one rank.
  int64_t global_micro_batch = -1;

  struct Batch {
    ddh_batch* batch = nullptr;
    ddh_batch_info info{sizeof(ddh_batch_info), 0, 0, 0};
  };
  Batch create_batch(const std::vector<int64_t>& samples, int32_t program = 0, int64_t step = 1,
                     int32_t micro_batch = 0) {
    Batch out;
    const ddh_batch_args args{
        sizeof(ddh_batch_args), program, step, micro_batch, static_cast<uint32_t>(samples.size()), samples.data(),
        global_of(micro_batch)};
    ddh::call(table_->batch_create, inst_, &args, &out.batch, &out.info);
    return out;
  }
  void destroy_batch(Batch& batch) { table_->batch_destroy(inst_, std::exchange(batch.batch, nullptr)); }

  // DDH_CALL_* of an operation, as the host makes them.
  [[nodiscard]] uint32_t flags_of(const ddh_program_desc& p, uint32_t position, int32_t phase) const {
    const uint32_t own = p.position_flags != nullptr ? p.position_flags[position] : 0;
    if ((own & DDH_POSITION_FORWARD_ONLY) != 0) return DDH_CALL_FORWARD_ONLY;
    return ((own & DDH_POSITION_INPUT_GRAD_ONLY) != 0 ? DDH_CALL_INPUT_GRAD_ONLY : 0U) |
           (recompute && phase == DDH_PHASE_FORWARD ? DDH_CALL_RECOMPUTED : 0U);
  }

  // Runs the units of a program in order.
  void forward(ddh_batch* batch, int32_t program = 0, int64_t step = 1, int32_t micro_batch = 0) {
    const bool eval = desc_->programs[program]->kind == DDH_PROGRAM_EVAL;
    for (uint32_t i = 0; i < desc_->programs[program]->n_units; ++i)
      run(batch, program, step, micro_batch, i, eval ? DDH_PHASE_EVAL : DDH_PHASE_FORWARD, 1);
  }
  // Gradients start anew with micro-batch 0, or are added to; whatever is not written stays NaN.
  void backward(ddh_batch* batch, double seed_scale, int32_t program = 0, int64_t step = 1, int32_t micro_batch = 0,
                bool add = false) {
    if (micro_batch == 0 && !add) {
      written_.assign(grads_.size(), false);
      for (auto& grad : grads_) {
        if (poison_grads) std::fill(grad.begin(), grad.end(), kNan);
      }
    }
    for (uint32_t i = desc_->programs[program]->n_units; i-- > 0;) {
      if ((flags_of(*desc_->programs[program], i, DDH_PHASE_BACKWARD) & DDH_CALL_FORWARD_ONLY) != 0) continue;
      if (recompute) run(batch, program, step, micro_batch, i, DDH_PHASE_RECOMPUTE, 1);
      run(batch, program, step, micro_batch, i, DDH_PHASE_BACKWARD, seed_scale);
    }
  }
  // Sum and count of metric `m`.
  std::pair<double, double> metric(int32_t program = 0, int32_t micro_batch = 0, size_t m = 0) {
    std::vector<double> sums(desc_->programs[program]->n_metrics), counts(sums.size());
    ddh::call(table_->metrics, inst_, program, micro_batch, sums.data(), counts.data());
    return {sums.at(m), counts.at(m)};
  }
  void discard(int32_t micro_batch = 0) { table_->discard(inst_, micro_batch); }

  // Forward and backward of one batch; returns the mean loss, whose gradient is then in grad().
  double train_step(const std::vector<int64_t>& samples, int64_t step = 1) {
    Batch batch = create_batch(samples, 0, step);
    const double loss = train_step(batch.batch, batch.info.loss_count, step);
    destroy_batch(batch);
    return loss;
  }
  double train_step(ddh_batch* batch, double loss_count, int64_t step = 1) {
    forward(batch, 0, step);
    const auto [sum, count] = metric();
    backward(batch, loss_count > 0 ? 1 / loss_count : 1, 0, step);
    discard();
    return sum / count;
  }

 private:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

  [[nodiscard]] int64_t global_of(int32_t micro_batch) const {
    return global_micro_batch >= 0 ? global_micro_batch : micro_batch;
  }

  void run(ddh_batch* batch, int32_t program, int64_t step, int32_t micro_batch, uint32_t position, int32_t phase,
           double seed_scale) {
    const ddh_program_desc& p = *desc_->programs[program];
    const ddh_unit_desc& unit = *desc_->units[p.units[position]];
    std::vector<ddh_param_view> views(unit.n_params);
    std::vector<std::vector<float>> moved(unit.n_params);
    const std::string& compute = host_.option("precision.compute");
    const bool narrow = compute != "fp32";
    if (narrow && rounded_is_old_) round_values(compute == "bf16");
    for (uint32_t i = 0; i < unit.n_params; ++i) {
      const auto param = static_cast<size_t>(unit.params[i]);
      std::vector<float>& shown = narrow ? rounded_[param] : values_[param];
      if (move_params) moved[i] = shown;
      const bool trained = phase == DDH_PHASE_BACKWARD &&
                           (flags_of(p, position, phase) & DDH_CALL_INPUT_GRAD_ONLY) == 0 &&
                           (p.trainable != nullptr ? p.trainable[param] != 0
                                                   : (desc_->params[param]->attributes & DDH_PARAM_FROZEN) == 0);
      views[i] = {unit.params[i],
                  compute == "bf16" ? DDH_BF16
                  : narrow          ? DDH_F16
                                    : DDH_F32,
                  move_params ? moved[i].data() : shown.data(),
                  trained ? grads_[param].data() : nullptr,
                  DDH_F32,
                  trained && written_[param] ? DDH_GRAD_ADD : DDH_GRAD_WRITE,
                  values_[param].size(),
                  nullptr,
                  nullptr};
    }
    const ddh_unit_view view{sizeof(ddh_unit_view), unit.n_params, views.data(), sizeof(ddh_param_view), 1};
    const ddh_unit_call unit_call{sizeof(ddh_unit_call),
                                  program,
                                  p.units[position],
                                  static_cast<int32_t>(position),
                                  micro_batch,
                                  phase,
                                  step,
                                  batch,
                                  &view,
                                  seed_scale,
                                  nullptr,
                                  flags_of(p, position, phase),
                                  0,
                                  global_of(micro_batch)};
    ddh::call(phase == DDH_PHASE_BACKWARD ? table_->backward : table_->forward, inst_, &unit_call);
    if (phase == DDH_PHASE_BACKWARD) {
      for (uint32_t i = 0; i < unit.n_params; ++i) written_[static_cast<size_t>(unit.params[i])] = true;
    }
    if (!move_params) return;
    for (auto& old : moved) graveyard_.push_back(std::move(old));
    for (auto& old : graveyard_) std::fill(old.begin(), old.end(), kNan);
    if (graveyard_.size() > 256) graveyard_.clear();
  }

  // Two 16-bit values in the place of one of fp32.
  void round_values(bool to_bf16) {
    rounded_.resize(values_.size());
    for (size_t p = 0; p < values_.size(); ++p) {
      rounded_[p].resize((values_[p].size() + 1) / 2);
      auto* to = reinterpret_cast<char*>(rounded_[p].data());
      for (size_t i = 0; i < values_[p].size(); ++i) {
        const uint16_t low = to_bf16 ? ddh::Bf16::from_f32(values_[p][i]) : ddh::F16::from_f32(values_[p][i]);
        std::memcpy(to + 2 * i, &low, sizeof low);
      }
    }
    rounded_is_old_ = false;
  }

  FakeHost host_;
  const ddh_module* module_ = nullptr;
  ddh_inst* inst_ = nullptr;
  const ddh_model_api* table_ = nullptr;
  const ddh_model_desc* desc_ = nullptr;
  std::vector<std::vector<float>> values_, grads_, rounded_;
  bool rounded_is_old_ = true;
  std::vector<bool> written_;
  std::vector<std::vector<float>> graveyard_;  // old places of moved parameters
};

}  // namespace ddhost::test
