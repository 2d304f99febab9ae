// SPDX-License-Identifier: Apache-2.0
//
// vit/vit.hpp: the Vision Transformer as a classifier, unit by unit: embedding, layer.0 .. layer.(L-1), head.
#pragma once

#include <vector>

#include "../ops/model_products.hpp"
#include "ddh/sdk/torch/unit_model.hpp"
#include "layers.hpp"

namespace vit {

inline constexpr int32_t kEmbeddingUnit = 0;

// The data that is kept for a micro-batch from forward to backward.
struct Context {
  at::Tensor x;  // output of the last unit; in backward its gradient
  std::vector<BlockSaved> blocks;
  HeadSaved head;
  double count = 0, weight = 0;
  void reset(int64_t n_layer) {
    *this = {};
    blocks.resize(static_cast<size_t>(n_layer));
  }
};

class DDH_HIDDEN Vit final : public ddh::UnitModel<VitBatch, Context> {
 public:
  explicit Vit(const ddh_create& create);

  const ddh_model_desc& describe() override { return desc_.get(); }
  void prepare() override;
  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override;
  bool estimate(const ddh_estimate_args& args, ddh_estimate& out) override;
  // The three figures of `out` that a plan needs beside activation_bytes.
  void add_peaks(const ddh_estimate_args& args, ddh_estimate& out);

  // The image of a sample, put together from its patches, and its class.
  void view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const;
  [[nodiscard]] const void* interface(std::string_view id) const override {
    return id == DDH_BATCH_VIEW_IFACE ? ddh::batch_view_table<Vit>() : UnitModel::interface(id);
  }

  // A batch of given pixels (B, channels, side, side).
  ddh_batch* batch_of_pixels(const std::vector<float>& pixels, const std::vector<int64_t>& labels);
  // Logits (B, K) of a micro-batch between its forward and its backward.
  [[nodiscard]] const at::Tensor& logits(int32_t micro_batch) const { return contexts_.at(micro_batch).head.logits; }

 protected:
  void run_forward(const ddh_unit_call& c) override;
  void run_backward(const ddh_unit_call& c) override;
  void give_metrics(int32_t program, int32_t micro_batch, double* sums, double* counts) override;

 private:
  [[nodiscard]] int32_t head_unit() const { return static_cast<int32_t>(config_.n_layer) + 1; }
  UnitContext unit_context(const ddh_unit_call& c);
  VitBatch batch_on_device(const ddh_unit_call& c);
  // Loss, and how many samples are right: (3) fp64.
  [[nodiscard]] static at::Tensor results(const at::Tensor& loss, const at::Tensor& logits, const VitBatch& batch);
  ddh_batch* make_batch(images::ImageBatch images, ddh_batch_info* info);
  void build_description();

  const images::ImageLoader loader_;
  const Config config_;
  ddh::ModelDesc desc_;
  ops::ModelProducts products_;
};

extern const char* const kNeeds[];

}  // namespace vit
