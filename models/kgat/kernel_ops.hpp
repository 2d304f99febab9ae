// SPDX-License-Identifier: Apache-2.0
//
// kgat/kernel_ops.hpp: GraphOps by the kernels, on tensors in host memory.
#pragma once

#include "graph_ops.hpp"
#include "simplified.hpp"

namespace kgat {

class DDH_HIDDEN KernelOps final : public GraphOps {
 public:
  // `simplified`: nullptr in other variants; else it outlives the object.
  explicit KernelOps(const SimplifiedGraph* simplified) : simplified_(simplified) {}

  BatchOnDevice upload(const KgatBatch& batch, ddh::Transfers& transfers, ddh_stream* stream) const override;
  at::Tensor sums_of_neighbours(const UnitContext& u, const at::Tensor& x) const override;
  void add_to_neighbours(const UnitContext& u, const at::Tensor& ds, at::Tensor& out) const override;
  std::pair<at::Tensor, at::Tensor> sum_and_product(const at::Tensor& e, const at::Tensor& s,
                                                    bool has_product) const override;
  std::pair<at::Tensor, at::Tensor> sum_and_product_backward(const at::Tensor& e, const at::Tensor& s,
                                                             const at::Tensor& d_sum,
                                                             const at::Tensor& d_product) const override;
  at::Tensor leaky(const at::Tensor& z, const at::Tensor& z_2, double slope) const override;
  at::Tensor leaky_backward(const at::Tensor& dy, const at::Tensor& z, double slope) const override;
  at::Tensor norms_of_rows(const at::Tensor& x) const override;
  at::Tensor gather_rows(const UnitContext& u, const at::Tensor& x) const override;
  void add_rows(const UnitContext& u, const at::Tensor& dy, at::Tensor& out) const override;
  void add_normalized_rows(const UnitContext& u, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& norms,
                           at::Tensor& out) const override;
  at::Tensor final_rows(const UnitContext& u, const LayerOutputs& outputs) const override;
  at::Tensor first_final_rows(int64_t n, const LayerOutputs& outputs) const override;
  LossSum cf_loss(const Config& config, const at::Tensor& x, double seed, at::Tensor* dx) const override;
  LossSum kg_loss(const UnitContext& u, const at::Tensor& y, double seed, KgGradients* gradients) const override;
  void renew_attention(const UnitContext& u, const at::Tensor& y, std::vector<float>& attention) const override;
  at::Tensor gather_tails(const at::Tensor& x) const override;
  void add_tails(const at::Tensor& dy, at::Tensor& out) const override;
  at::Tensor simplified_edges(const UnitContext& u, SimplifiedSaved& saved) const override;
  SimplifiedGradients simplified_edges_backward(const UnitContext& u, const at::Tensor& dy, const at::Tensor& y,
                                                const SimplifiedSaved& saved) const override;

 private:
  const SimplifiedGraph* simplified_;
};

}  // namespace kgat
