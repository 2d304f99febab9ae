// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/model.hpp: the C++ base class of a model. Each virtual function is the slot of that name in ddh/kind/model.h,
// which documents it. Failures are thrown. ModelDesc builds a description. This header needs no LibTorch;
// ddh/sdk/torch/ does.
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
  int32_t dtype = DDH_F32;    // dtype in a file of weights
  uint64_t grad_block = 0;    // elements of a block of the gradient; 0: it exists only whole
};

// A model's description and its memory. Add params, then units, then programs; then call get().
class ModelDesc {
 public:
  explicit ModelDesc(std::string name) : name_(std::move(name)) {}
  ModelDesc(const ModelDesc&) = delete;
  ModelDesc& operator=(const ModelDesc&) = delete;

  using Init = ParamInit;

  // Returns the parameter's index.
  int32_t add_param(int32_t owner_unit, std::string name, std::vector<int64_t> shape, Init init,
                    uint32_t attributes = 0, std::vector<std::string> tied_names = {}, ParamOptions options = {});
  // Adds state without a gradient. `data` has the size of the shape, and its address never changes. `sync`: DDH_SYNC_*;
  // `fold_decay`: for DDH_SYNC_FOLD. Returns the buffer's index.
  uint32_t add_buffer(std::string name, std::vector<int64_t> shape, int32_t dtype, void* data, int32_t sync,
                      double fold_decay = 0);
  // `params`: all that the unit reads; those it owns come first. Returns the unit's index.
  int32_t add_unit(std::string name, std::vector<int32_t> params);
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
    std::vector<std::string> reported{};     // values of derive; empty = sum / count of each metric
  };
  int32_t add_program(ProgramSpec spec);
  // ddh_model_desc.meaning_of_ids. Bytes other than printable ASCII are escaped, and a long text ends in its checksum.
  void set_meaning_of_ids(const std::string& text);

  // ddh_layout_desc: another program stores these parameters as [in, out]. `refused`: why this model has no export in the
  // layout, or "".
  void add_layout(std::string name, std::vector<int32_t> transposed, std::string refused = "");

  // Valid while this object lives and nothing is added.
  const ddh_model_desc& get();

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
  struct Layout {
    std::string name, refused;
    std::vector<int32_t> transposed;
    ddh_layout_desc desc;
  };
  std::string name_, meaning_of_ids_;  // the latter "": not known
  std::deque<Param> params_;           // deque: descriptions point into elements
  std::deque<Buffer> buffers_;
  std::deque<Unit> units_;
  std::deque<Program> programs_;
  std::deque<Layout> layouts_;
  std::vector<const ddh_param_desc*> param_list_;
  std::vector<const ddh_buffer_desc*> buffer_list_;
  std::vector<const ddh_unit_desc*> unit_list_;
  std::vector<const ddh_program_desc*> program_list_;
  std::vector<const ddh_layout_desc*> layout_list_;
  ddh_model_desc desc_{};
};

// The epoch of the i-th sample of a batch.
inline int64_t epoch_of(const ddh_batch_args& args, uint64_t i) { return args.epochs != nullptr ? args.epochs[i] : 0; }

class Model : public Instance {
 public:
  using Instance::Instance;
  virtual const ddh_model_desc& describe() = 0;
  virtual void prepare() {}
  // Several threads call it at once, beside every other call. Data that it reads must not change after `prepare`. Data
  // that it writes must belong to the batch or be protected by a lock.
  virtual ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) = 0;
  // Any thread may call it.
  virtual void batch_destroy(ddh_batch* batch) noexcept = 0;
  virtual void forward(const ddh_unit_call& unit_call) = 0;
  virtual void backward(const ddh_unit_call& unit_call) = 0;
  virtual void metrics(int32_t program, int32_t micro_batch, double* sums, double* counts) = 0;
  virtual void discard(int32_t micro_batch) noexcept = 0;

  // For programs with `reported`.
  virtual void derive(int32_t /*program*/, const double* /*sums*/, const double* /*counts*/, double* /*values*/);
  // For buffers with DDH_SYNC_FOLD. false: this micro-batch contributes nothing.
  virtual bool contribution(uint32_t /*buffer*/, int32_t /*program*/, int32_t /*micro_batch*/, void* /*out*/);
  // False: this model has no estimates (the table returns DDH_NOT_FOUND).
  virtual bool estimate(const ddh_estimate_args& /*args*/, ddh_estimate& /*out*/) { return false; }
  // For models with a grad_block.
  virtual void gradient_block(const ddh_unit_call& unit_call, const ddh_grad_block& block);

  // The optional sampler. A model that has one returns true and overrides the rest.
  [[nodiscard]] virtual bool has_sampler() const { return false; }
  virtual void sampler_begin(const ddh_sample_args& /*args*/) {}
  virtual ddh_batch* sampler_next() { return nullptr; }
  virtual const char* sampler_text() { return ""; }

  [[nodiscard]] const void* interface(std::string_view id) const override;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
