// SPDX-License-Identifier: Apache-2.0
//
// cad_mllm/cad_mllm.hpp: CAD-MLLM (Xu et al. 2024), unit by unit on LibTorch's autograd, with the three stages of its
// curriculum as programs. A rank computes on one thread.
//
// Programs: stage1_text, stage2_text_pc, stage3_all, and an evaluation of each. A program has only the units of what its
// stage knows: [image encoder] [point encoder] [projectors] tokens, layers, head. Both encoders stand first and run forward
// only, so they keep nothing. The frozen embedding and head pass a gradient on and have none of their own.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../ops/model_products.hpp"
#include "batch.hpp"
#include "data.hpp"
#include "ddh/sdk/batch_view.hpp"
#include "ddh/sdk/torch/model.hpp"
#include "sampler.hpp"
#include "unit.hpp"

namespace cad {

class DDH_HIDDEN CadMllm final : public ddh::TorchModel {
 public:
  explicit CadMllm(const ddh_create& create);

  const ddh_model_desc& describe() override { return desc_.get(); }
  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override;
  void batch_destroy(ddh_batch* batch) noexcept override;
  bool estimate(const ddh_estimate_args& args, ddh_estimate& out) override;

  void prepare() override;
  [[nodiscard]] bool has_sampler() const override { return true; }
  void sampler_begin(const ddh_sample_args& args) override;
  ddh_batch* sampler_next() override;
  const char* sampler_text() override;

  // Text and targets of a sample, and its views and points where the stage has them; zeros where the sample has none.
  void view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const;
  [[nodiscard]] const void* interface(std::string_view id) const override {
    return id == DDH_BATCH_VIEW_IFACE ? ddh::batch_view_table<CadMllm>() : TorchModel::interface(id);
  }

  // A batch of given ids and labels (B, T), with pixels and points as the stage has them; logits of all rows are kept.
  ddh_batch* batch_of(int32_t stage, int64_t B, const std::vector<int64_t>& ids, const std::vector<int64_t>& labels,
                      const std::vector<float>& pixels, const std::vector<float>& points);

 protected:
  ddh::Tensors run_unit(const UnitRun& run, const std::vector<at::Tensor>& params, const ddh::Tensors& inputs) override;
  at::Tensor product(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b) override {
    return ops::autograd::linear(*products_, x, w, b);
  }

 private:
  class UnitCall;
  // A unit with the places of its weights.
  struct Placed {
    Unit unit;
    std::map<std::string, size_t> places;
  };

  struct TextLengths {
    double longest = 0, mean_targets = 0;  // tokens
  };

  Cost cost_of(const ddh_estimate_args& args);
  bool goes_back(const ddh_estimate_args& args);
  [[nodiscard]] TextLengths lengths_of(const ItemSet& items) const;
  ddh_batch* give_away(CadBatch batch);
  void build_units();
  void build_programs();
  void add_program(int32_t kind, int32_t stage);
  [[nodiscard]] std::vector<int32_t> units_of(int32_t stage) const;
  [[nodiscard]] static Inputs drawn_inputs(int32_t stage, double draw);
  [[nodiscard]] Inputs eval_inputs(int32_t stage) const;
  // `targets`: those of the batch, on the device.
  at::Tensor loss(const UnitRun& run, CadBatch& batch, const at::Tensor& targets, const at::Tensor& logits);
  void count_hits(const UnitRun& run, const CadBatch& batch, const at::Tensor& likeliest);
  void count_hits_by_operators(const UnitRun& run, const CadBatch& batch, const at::Tensor& targets,
                               const at::Tensor& likeliest);

  const Config config_;
  ops::ModelProducts products_;
  const double text_dropout_;
  const std::string eval_inputs_;
  const CadData data_;
  const TextLengths lengths_;
  ddh::ModelDesc desc_;
  std::deque<Placed> units_;
  std::vector<int32_t> image_units_, point_units_, llm_units_;
  Sampler sampler_;
  std::string text_;
  int32_t image_projector_ = -1, point_projector_ = -1, embedding_ = -1;
};

extern const char* const kNeeds[];

}  // namespace cad
