// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/model.hpp: the C++ base of a model; each virtual is the slot of that name in ddh/kind/model.h, which
// documents it. Failures are thrown. ModelDesc collects a description piece by piece. No LibTorch here: ddh/sdk/torch/
// has that.
#pragma once

#include <deque>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct ParamInit {
  int32_t kind = DDH_INIT_ZERO;
  double a = 0, b = 0;
  double low = 0, high = 0;  // bounds of DDH_INIT_TRUNC_NORMAL
};
struct ParamOptions {
  double lr_scale = 0;        // 0 = 1
  int32_t compute_dtype = 0;  // 0 = the run's
  int32_t dtype = DDH_F32;    // in a file of weights
};

// A model's description with the memory behind it. Add params, then units, then programs; then get().
class ModelDesc {
 public:
  explicit ModelDesc(std::string name) : name_(std::move(name)) {}
  ModelDesc(const ModelDesc&) = delete;
  ModelDesc& operator=(const ModelDesc&) = delete;

  using Init = ParamInit;

  // Returns the parameter's index.
  int32_t add_param(int32_t owner_unit, std::string name, std::vector<int64_t> shape, Init init,
                    uint32_t attributes = 0, std::vector<std::string> tied_names = {}, ParamOptions options = {}) {
    Param& p = params_.emplace_back();
    p.name = std::move(name);
    p.shape = std::move(shape);
    p.tied = std::move(tied_names);
    for (const std::string& tied : p.tied) p.tied_pointers.push_back(tied.c_str());
    p.tied_pointers.push_back(nullptr);
    uint64_t numel = 1;
    for (const int64_t n : p.shape) numel *= static_cast<uint64_t>(n);
    p.desc = {sizeof(ddh_param_desc),
              options.dtype,
              p.name.c_str(),
              p.shape.data(),
              numel,
              static_cast<uint32_t>(p.shape.size()),
              owner_unit,
              attributes,
              init.kind,
              init.a,
              init.b,
              p.tied_pointers.data(),
              init.low,
              init.high,
              options.lr_scale,
              options.compute_dtype,
              0};
    return static_cast<int32_t>(params_.size() - 1);
  }
  // State without gradient; `data` has room for the shape and stays where it is. `sync`: DDH_SYNC_*; `fold_decay`: of
  // DDH_SYNC_FOLD. Returns the buffer's index.
  uint32_t add_buffer(std::string name, std::vector<int64_t> shape, int32_t dtype, void* data, int32_t sync,
                      double fold_decay = 0) {
    Buffer& b = buffers_.emplace_back();
    b.name = std::move(name);
    b.shape = std::move(shape);
    uint64_t numel = 1;
    for (const int64_t n : b.shape) numel *= static_cast<uint64_t>(n);
    b.desc = {sizeof(ddh_buffer_desc),
              dtype,
              b.name.c_str(),
              b.shape.data(),
              numel,
              static_cast<uint32_t>(b.shape.size()),
              sync,
              data,
              fold_decay};
    return static_cast<uint32_t>(buffers_.size() - 1);
  }
  // `params`: all that the unit reads, its own first. Returns the unit's index.
  int32_t add_unit(std::string name, std::vector<int32_t> params) {
    Unit& u = units_.emplace_back();
    u.name = std::move(name);
    u.params = std::move(params);
    u.desc = {sizeof(ddh_unit_desc), static_cast<uint32_t>(u.params.size()), u.name.c_str(), u.params.data()};
    return static_cast<int32_t>(units_.size() - 1);
  }
  struct ProgramSpec {
    int32_t kind;
    std::string name;
    std::vector<int32_t> units;  // order of the forward
    std::vector<std::string> metrics;
    uint64_t n_samples;
    std::string sample_unit;
    std::vector<uint8_t> trainable{};  // per parameter; empty = all that are not frozen
    int32_t optimizer = 0;
    std::vector<uint32_t> position_flags{};  // DDH_POSITION_* of each place in units; empty = all 0
    std::string eval_program{};              // of a training program; empty = none
    std::vector<std::string> reported{};     // what derive gives; empty = sum / count of each metric
  };
  int32_t add_program(ProgramSpec spec) {
    Program& p = programs_.emplace_back();
    p.spec = std::move(spec);
    for (const std::string& metric : p.spec.metrics) p.metrics.push_back(metric.c_str());
    for (const std::string& name : p.spec.reported) p.reported.push_back(name.c_str());
    p.desc = {sizeof(ddh_program_desc),
              p.spec.kind,
              p.spec.name.c_str(),
              p.spec.units.data(),
              p.spec.trainable.empty() ? nullptr : p.spec.trainable.data(),
              p.metrics.data(),
              static_cast<uint32_t>(p.spec.units.size()),
              static_cast<uint32_t>(p.metrics.size()),
              p.spec.n_samples,
              p.spec.sample_unit.c_str(),
              p.spec.optimizer,
              static_cast<uint32_t>(p.reported.size()),
              p.spec.position_flags.empty() ? nullptr : p.spec.position_flags.data(),
              p.spec.eval_program.empty() ? nullptr : p.spec.eval_program.c_str(),
              p.reported.data()};
    return static_cast<int32_t>(programs_.size() - 1);
  }

  // Valid while this object lives and nothing is added.
  const ddh_model_desc& get() {
    param_list_.clear(), unit_list_.clear(), program_list_.clear(), buffer_list_.clear();
    for (const Buffer& b : buffers_) buffer_list_.push_back(&b.desc);
    for (const Param& p : params_) param_list_.push_back(&p.desc);
    for (const Unit& u : units_) unit_list_.push_back(&u.desc);
    for (const Program& p : programs_) program_list_.push_back(&p.desc);
    desc_ = {sizeof desc_,
             static_cast<uint32_t>(params_.size()),
             param_list_.data(),
             unit_list_.data(),
             buffer_list_.data(),
             program_list_.data(),
             static_cast<uint32_t>(units_.size()),
             static_cast<uint32_t>(buffers_.size()),
             static_cast<uint32_t>(programs_.size()),
             0,
             name_.c_str()};
    return desc_;
  }

 private:
  struct Param {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<std::string> tied;
    std::vector<const char*> tied_pointers;
    ddh_param_desc desc;
  };
  struct Buffer {
    std::string name;
    std::vector<int64_t> shape;
    ddh_buffer_desc desc;
  };
  struct Unit {
    std::string name;
    std::vector<int32_t> params;
    ddh_unit_desc desc;
  };
  struct Program {
    ProgramSpec spec;
    std::vector<const char*> metrics, reported;
    ddh_program_desc desc;
  };
  std::string name_;
  std::deque<Param> params_;  // deque: descriptions point into elements
  std::deque<Buffer> buffers_;
  std::deque<Unit> units_;
  std::deque<Program> programs_;
  std::vector<const ddh_param_desc*> param_list_;
  std::vector<const ddh_buffer_desc*> buffer_list_;
  std::vector<const ddh_unit_desc*> unit_list_;
  std::vector<const ddh_program_desc*> program_list_;
  ddh_model_desc desc_{};
};

class Model : public Instance {
 public:
  using Instance::Instance;
  virtual const ddh_model_desc& describe() = 0;
  virtual void prepare() {}
  // By several threads at once, beside every other call: what it reads doesn't change after `prepare`, what it writes is the
  // batch's own, or is under a lock.
  virtual ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) = 0;
  // By any thread too.
  virtual void batch_destroy(ddh_batch* batch) noexcept = 0;
  virtual void forward(const ddh_unit_call& unit_call) = 0;
  virtual void backward(const ddh_unit_call& unit_call) = 0;
  virtual void metrics(int32_t program, int32_t micro_batch, double* sums, double* counts) = 0;
  virtual void discard(int32_t micro_batch) noexcept = 0;

  // Of programs with `reported`.
  virtual void derive(int32_t /*program*/, const double* /*sums*/, const double* /*counts*/, double* /*values*/) {
    fail(DDH_INTERNAL, "the model reports derived metrics and does not override derive");
  }
  // Of buffers with DDH_SYNC_FOLD; false: nothing from this micro-batch.
  virtual bool contribution(uint32_t /*buffer*/, int32_t /*program*/, int32_t /*micro_batch*/, void* /*out*/) {
    fail(DDH_INTERNAL, "the model has folded buffers and does not override contribution");
  }
  // False: this model makes no estimates (the table answers DDH_NOT_FOUND).
  virtual bool estimate(const ddh_estimate_args& /*args*/, ddh_estimate& /*out*/) { return false; }

  // The optional sampler; a model that has one answers true and overrides the rest.
  [[nodiscard]] virtual bool has_sampler() const { return false; }
  virtual void sampler_begin(const ddh_sample_args& /*args*/) {}
  virtual ddh_batch* sampler_next() { return nullptr; }
  virtual const char* sampler_text() { return ""; }

  [[nodiscard]] const void* interface(std::string_view id) const override;
};

inline const void* Model::interface(std::string_view id) const {
  static const ddh_model_api model_table = {
      sizeof(ddh_model_api),
      0,
      [](ddh_inst* i, const ddh_model_desc** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = &self_as<Model>(i).describe(); });
      },
      [](ddh_inst* i, ddh_err* err) noexcept { return guard(err, [&] { self_as<Model>(i).prepare(); }); },
      [](ddh_inst* i, const ddh_batch_args* args, ddh_batch** out, ddh_batch_info* info, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_batch_info mine{};
          *out = self_as<Model>(i).batch_create(copy_of(*args), mine);
          copy_out(mine, *info);
        });
      },
      [](ddh_inst* i, ddh_batch* batch) noexcept { self_as<Model>(i).batch_destroy(batch); },
      [](ddh_inst* i, const ddh_unit_call* unit_call, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).forward(copy_of(*unit_call)); });
      },
      [](ddh_inst* i, const ddh_unit_call* unit_call, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).backward(copy_of(*unit_call)); });
      },
      [](ddh_inst* i, int32_t program, int32_t micro_batch, double* sums, double* counts, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).metrics(program, micro_batch, sums, counts); });
      },
      [](ddh_inst* i, int32_t micro_batch) noexcept { self_as<Model>(i).discard(micro_batch); },
      [](ddh_inst* i, int32_t program, const double* sums, const double* counts, double* values,
         ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).derive(program, sums, counts, values); });
      },
      [](ddh_inst* i, uint32_t buffer, int32_t program, int32_t micro_batch, void* out, int32_t* given,
         ddh_err* err) noexcept {
        return guard(err, [&] { *given = self_as<Model>(i).contribution(buffer, program, micro_batch, out) ? 1 : 0; });
      },
      [](ddh_inst* i, const ddh_estimate_args* args, ddh_estimate* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          ddh_estimate mine{};
          if (!self_as<Model>(i).estimate(copy_of(*args), mine)) fail(DDH_NOT_FOUND, "this model makes no estimates");
          copy_out(mine, *out);
        });
      },
  };
  static const ddh_sampler_api sampler_table = {
      sizeof(ddh_sampler_api),
      0,
      [](ddh_inst* i, const ddh_sample_args* args, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Model>(i).sampler_begin(copy_of(*args)); });
      },
      [](ddh_inst* i, ddh_batch** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = self_as<Model>(i).sampler_next(); });
      },
      [](ddh_inst* i) noexcept { return self_as<Model>(i).sampler_text(); },
  };
  if (id == DDH_MODEL_IFACE) return &model_table;
  if (id == DDH_SAMPLER_IFACE && has_sampler()) return &sampler_table;
  return nullptr;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
