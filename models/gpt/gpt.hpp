// SPDX-License-Identifier: Apache-2.0
//
// gpt/gpt.hpp: GPT-2 and nanoGPT's variants, unit by unit. Sources: Radford et al. 2019; the layouts and defaults of
// nanoGPT, with the parameter names of Hugging Face and linear weights as [out, in].
//
// Units: wte, wpe, h.0 .. h.(L-1), head. A tied head also uses wte. wte is a separate unit, so that the position table
// is not gathered with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../ops/model_products.hpp"
#include "data.hpp"
#include "ddh/sdk/batch_view.hpp"
#include "ddh/sdk/torch/unit_model.hpp"
#include "layers.hpp"
#include "sampler.hpp"

namespace gpt {

// The data that is kept for a micro-batch from forward to backward.
struct Context {
  at::Tensor x;  // output of the last unit; in backward its gradient
  std::vector<BlockSaved> blocks;
  HeadSaved head;
  double loss_count = 0;
  void reset(int64_t n_layer) {
    *this = {};
    blocks.resize(static_cast<size_t>(n_layer));
  }
};

class DDH_HIDDEN Gpt final : public ddh::UnitModel<GptBatch, Context> {
 public:
  explicit Gpt(const ddh_create& create);

  const ddh_model_desc& describe() override { return desc_.get(); }
  void prepare() override;
  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override;
  bool estimate(const ddh_estimate_args& args, ddh_estimate& out) override;
  // The three figures of `out` that a plan needs beside activation_bytes.
  void add_peaks(const ddh_estimate_args& args, ddh_estimate& out);

  [[nodiscard]] bool has_sampler() const override { return true; }
  void sampler_begin(const ddh_sample_args& args) override;
  ddh_batch* sampler_next() override;
  const char* sampler_text() override;

  // The tokens of a sample as text, and the targets: the token after each.
  void view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const;
  [[nodiscard]] const void* interface(std::string_view id) const override {
    return id == DDH_BATCH_VIEW_IFACE ? ddh::batch_view_table<Gpt>() : UnitModel::interface(id);
  }

  // A batch of given ids and targets (-100 = does not count), (B, T) each, T up to the rows of the position table.
  ddh_batch* batch_of_ids(const std::vector<int64_t>& ids, const std::vector<int64_t>& targets, int64_t B);
  // Logits (B T, V) of a micro-batch between its forward and its backward; by operators, their log-softmax.
  [[nodiscard]] const at::Tensor& logits(int32_t micro_batch) const { return contexts_.at(micro_batch).head.logits; }

 protected:
  void run_forward(const ddh_unit_call& c) override;
  void run_backward(const ddh_unit_call& c) override;
  void give_metrics(int32_t program, int32_t micro_batch, double* sums, double* counts) override;

 private:
  [[nodiscard]] int32_t head_unit() const { return static_cast<int32_t>(config_.n_layer) + 2; }
  UnitContext unit_context(const ddh_unit_call& c);
  void copy_sample(const TokenSpan& span, int64_t start, GptBatch& batch, int64_t b) const;
  void build_description();
  void add_layer(std::vector<int32_t>& params, int32_t unit, const std::string& name, const std::vector<int64_t>& shape,
                 ddh::ModelDesc::Init init);

  const Tokens tokens_;
  const Config config_;
  ddh::ModelDesc desc_;
  ops::ModelProducts products_;
  Sampler sampler_;
  std::string text_;
};

extern const char* const kNeeds[];

}  // namespace gpt
