// SPDX-License-Identifier: Apache-2.0
//
// cnn/cnn.hpp: convolutional networks as classifiers of images, on LibTorch's autograd. A rank computes on one thread, since
// kernels of convolutions cut their sums by the number of threads.
#pragma once

#include <deque>

#include "../images/loader.hpp"
#include "../ops/model_products.hpp"
#include "config.hpp"
#include "ddh/sdk/torch/model.hpp"

namespace cnn {

struct CnnBatch {
  images::ImageBatch images;
  bool keeps_logits = false;
  std::vector<float> logits;  // (B, classes), of the last forward of a batch that keeps them
};

class DDH_HIDDEN Cnn final : public ddh::TorchModel {
 public:
  explicit Cnn(const ddh_create& create);

  const ddh_model_desc& describe() override { return desc_.get(); }
  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override;
  void batch_destroy(ddh_batch* batch) noexcept override;
  void prepare() override;
  void derive(int32_t program, const double* sums, const double* counts, double* values) override;
  bool estimate(const ddh_estimate_args& args, ddh_estimate& out) override;
  // The three figures of `out` that a plan needs beside activation_bytes.
  void add_peaks(const ddh_estimate_args& args, ddh_estimate& out);

  // The image or the frames of a sample, and its class.
  void view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const;
  [[nodiscard]] const void* interface(std::string_view id) const override {
    return id == DDH_BATCH_VIEW_IFACE ? ddh::batch_view_table<Cnn>() : TorchModel::interface(id);
  }

  // A batch of given pixels (B, [frames,] channels, side, side), which keeps its logits.
  ddh_batch* batch_of_pixels(const std::vector<float>& pixels, const std::vector<int64_t>& labels);

 protected:
  ddh::Tensors run_unit(const UnitRun& run, const std::vector<at::Tensor>& params, const ddh::Tensors& inputs) override;
  at::Tensor product(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b) override;

 private:
  class UnitCall;
  [[nodiscard]] Shape image_shape() const;
  [[nodiscard]] Ways ways() const;
  ddh_batch* give_away(images::ImageBatch images);
  void build_description();
  [[nodiscard]] const Unit* unit_before(int32_t unit) const;  // whose result it takes; nullptr: none
  void add_norm(Norm& norm, bool frozen);
  struct BatchTensors {
    at::Tensor pixels, targets;
    at::Tensor labels;  // (B) int64, by operators alone
  };
  BatchTensors tensors_of(const UnitRun& run, CnnBatch& batch);
  [[nodiscard]] at::Tensor pixels_of(const at::Tensor& pixels) const;
  at::Tensor loss(const UnitRun& run, CnnBatch& batch, const at::Tensor& logits);
  // labels: undefined unless by operators alone; logits (B, classes).
  void report_classes(const UnitRun& run, CnnBatch& batch, const at::Tensor& labels, const at::Tensor& logits);

  const images::ImageLoader loader_;
  const at::ScalarType compute_;
  ops::ModelProducts products_;
  const at::MemoryFormat layout_;
  const Ways ways_;
  const Net net_;
  ddh::ModelDesc desc_;
};

extern const char* const kNeeds[];

}  // namespace cnn
