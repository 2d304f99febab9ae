// SPDX-License-Identifier: Apache-2.0
//
// bad_model: one unit with one parameter whose gradient is constant, and a fault by option in what it describes, in its
// batches and in its calls.
#include <cmath>
#include <limits>

#include "ddh/sdk/model.hpp"
#include "support/misbehave.hpp"

namespace {

using ddhost::test::Fault;
using ddhost::test::misbehave;

class BadModel final : public ddh::Model {
 public:
  explicit BadModel(const ddh_create& create) : Model(create), fault_(host, "model"), desc_("bad") {
    const int32_t param = desc_.add_param(0, "weight", {64}, {DDH_INIT_CONSTANT, 1, 0});
    desc_.add_unit("only", {param});
    desc_.add_program({DDH_PROGRAM_TRAIN, "train", {0}, {"loss"}, 4096, "samples", {}});
  }

  const ddh_model_desc& describe() override {
    described_ = desc_.get();
    if (!hits("describe", 0)) return described_;
    misbehave(fault_.what, nullptr);
    param_ = *described_.params[0];
    unit_ = *described_.units[0];
    program_ = *described_.programs[0];
    described_.params = params_;
    described_.units = units_;
    described_.programs = programs_;
    const std::string& what = fault_.what;
    if (what == "null_params") described_.params = nullptr;
    if (what == "n_params_0") described_.n_params = 0;
    if (what == "null_param") params_[0] = nullptr;
    if (what == "small_struct") param_.struct_size = 8;
    if (what == "null_name") param_.name = nullptr;
    if (what == "null_shape") param_.shape = nullptr;
    if (what == "wrong_owner") param_.owner_unit = 7;
    if (what == "null_unit_list") unit_.params = nullptr;
    if (what == "wrong_unit_param") params_of_unit_[0] = 9, unit_.params = params_of_unit_;
    if (what == "wrong_program_unit") units_of_program_[0] = -1, program_.units = units_of_program_;
    if (what == "null_metrics") program_.metrics = nullptr;
    if (what == "null_metric") program_.metrics = metrics_;
    if (what == "null_model_name") described_.name = nullptr;
    return described_;
  }

  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override {
    info.items = args.n_samples;
    info.loss_count = args.n_samples;
    if (hits("batch_create", args.step)) {
      misbehave(fault_.what, nullptr);
      if (fault_.what == "null_batch") return nullptr;
      if (fault_.what == "nan_count") info.loss_count = std::nan("");
      if (fault_.what == "negative_count") info.loss_count = -1;
    }
    return reinterpret_cast<ddh_batch*>(std::make_unique<uint32_t>(args.n_samples).release());
  }
  void batch_destroy(ddh_batch* batch) noexcept override {
    std::unique_ptr<uint32_t>(reinterpret_cast<uint32_t*>(batch)).reset();
  }
  void forward(const ddh_unit_call& c) override {
    samples_ = *reinterpret_cast<const uint32_t*>(c.batch);
    step_ = c.step;
    if (hits("forward", c.step)) misbehave(fault_.what, nullptr);
  }
  void backward(const ddh_unit_call& c) override {
    if (hits("backward", c.step)) misbehave(fault_.what, nullptr);
    const ddh_param_view& view = *ddh_view_param(c.view, 0);
    auto* grad = static_cast<float*>(view.grad);
    for (uint64_t i = 0; i < view.numel; ++i) grad[i] = static_cast<float>(c.seed_scale * samples_);
  }
  void metrics(int32_t, int32_t, double* sums, double* counts) override {
    sums[0] = samples_;
    counts[0] = samples_;
    if (!hits("metrics", step_)) return;
    if (fault_.what == "nan_count") counts[0] = std::nan("");
    if (fault_.what == "negative_count") counts[0] = -2;
  }
  void discard(int32_t) noexcept override {}

 private:
  [[nodiscard]] bool hits(const char* call, int64_t step) const { return fault_.hits(call, -1, step); }

  const Fault fault_;
  uint32_t samples_ = 0;
  int64_t step_ = 0;
  ddh::ModelDesc desc_;
  // Copies to damage.
  ddh_model_desc described_{};
  ddh_param_desc param_{};
  ddh_unit_desc unit_{};
  ddh_program_desc program_{};
  const ddh_param_desc* params_[1] = {&param_};
  const ddh_unit_desc* units_[1] = {&unit_};
  const ddh_program_desc* programs_[1] = {&program_};
  int32_t params_of_unit_[1] = {0}, units_of_program_[1] = {0};
  const char* metrics_[1] = {nullptr};
};

constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace

DDH_CXX_PLUGIN(BadModel, model, "bad_model", "0.1.0", "mistakes on purpose, for tests",
               R"({"properties": {)" DDH_FAULT_SCHEMA R"(}})", kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED);
