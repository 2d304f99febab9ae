// SPDX-License-Identifier: Apache-2.0
//
// kgat/graph_ops.hpp: what the model computes in two ways: by kernels for processors (kernel_ops.hpp), or by operators of
// LibTorch alone, as a GPU runs it (operators.hpp). All but the tensors of gather_* are fp32. "Rows of the batch" follow
// KgatBatch::rows: a node may occur several times.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <variant>
#include <vector>

#include "batch.hpp"
#include "ddh/sdk/torch/transfers.hpp"

namespace kgat {

struct UnitContext;
struct BatchOnDevice;
struct KgGradients;
struct SimplifiedSaved;
struct SimplifiedGradients;

// The sum of a batch's losses: a number, or, where the host can't read it yet, fp64 of no dimension on the device.
using LossSum = std::variant<double, at::Tensor>;

// What the final representation is made of: outputs (N, width) of embedding and layers, and the norms (N) of the rows that
// each layer gave; none in variant simplified, which has normalized rows.
struct LayerOutputs {
  const std::vector<at::Tensor>&e, &norms;
};

class DDH_HIDDEN GraphOps {
 public:
  GraphOps() = default;
  GraphOps(const GraphOps&) = delete;
  GraphOps& operator=(const GraphOps&) = delete;
  virtual ~GraphOps() = default;

  // Copies the graph to the device, before the first unit runs.
  virtual void prepare() {}
  // Adds to a batch the lists that these functions read. Several threads call it at once.
  virtual void complete(KgatBatch&) const {}
  // The batch's lists on the device, for UnitContext::indices.
  virtual BatchOnDevice upload(const KgatBatch& batch, ddh::Transfers& transfers, ddh_stream* stream) const = 0;

  // ---- Aggregators -------------------------------------------------------------------------------------------
  // s (N, in): the sums of x's rows over each node's edges, times the edges' weights.
  [[nodiscard]] virtual at::Tensor sums_of_neighbours(const UnitContext& u, const at::Tensor& x) const = 0;
  // Its backward: adds to `out` the gradient of x from that of s.
  virtual void add_to_neighbours(const UnitContext& u, const at::Tensor& ds, at::Tensor& out) const = 0;
  // e + s and e * s; the product only if it is wanted. The backward gives the gradients of e and s.
  [[nodiscard]] virtual std::pair<at::Tensor, at::Tensor> sum_and_product(const at::Tensor& e, const at::Tensor& s,
                                                                          bool has_product) const = 0;
  [[nodiscard]] virtual std::pair<at::Tensor, at::Tensor> sum_and_product_backward(
      const at::Tensor& e, const at::Tensor& s, const at::Tensor& d_sum, const at::Tensor& d_product) const = 0;
  // LeakyReLU(z), plus LeakyReLU(z_2) where that is defined.
  [[nodiscard]] virtual at::Tensor leaky(const at::Tensor& z, const at::Tensor& z_2, double slope) const = 0;
  [[nodiscard]] virtual at::Tensor leaky_backward(const at::Tensor& dy, const at::Tensor& z, double slope) const = 0;
  // (rows of x), at least 1e-12.
  [[nodiscard]] virtual at::Tensor norms_of_rows(const at::Tensor& x) const = 0;

  // ---- Rows of the batch -------------------------------------------------------------------------------------
  // (rows of the batch, width) out of x (N, width) of any dtype.
  [[nodiscard]] virtual at::Tensor gather_rows(const UnitContext& u, const at::Tensor& x) const = 0;
  // Its backward: adds each row of dy, which may be some columns of a matrix, to its node's row of `out`.
  virtual void add_rows(const UnitContext& u, const at::Tensor& dy, at::Tensor& out) const = 0;
  // The same of the rows of x / |x|.
  virtual void add_normalized_rows(const UnitContext& u, const at::Tensor& dy, const at::Tensor& x,
                                   const at::Tensor& norms, at::Tensor& out) const = 0;
  // The final representation (rows, F) of the batch's rows, or of the nodes 0 .. n - 1.
  [[nodiscard]] virtual at::Tensor final_rows(const UnitContext& u, const LayerOutputs& outputs) const = 0;
  [[nodiscard]] virtual at::Tensor first_final_rows(int64_t n, const LayerOutputs& outputs) const = 0;

  // ---- Losses and attention ----------------------------------------------------------------------------------
  // As the functions of layers.hpp.
  virtual LossSum cf_loss(const Config& config, const at::Tensor& x, double seed, at::Tensor* dx) const = 0;
  virtual LossSum kg_loss(const UnitContext& u, const at::Tensor& y, double seed, KgGradients* gradients) const = 0;
  // New weights of the edges of the batch's nodes, from projected rows y (2 edges, k). `attention` (E) has them all when
  // the last node's are there.
  virtual void renew_attention(const UnitContext& u, const at::Tensor& y, std::vector<float>& attention) const = 0;

  // ---- Variant simplified ------------------------------------------------------------------------------------
  // Rows of the pairs' tails (P, width) out of x (N, width) of any dtype, and the backward.
  [[nodiscard]] virtual at::Tensor gather_tails(const at::Tensor& x) const = 0;
  virtual void add_tails(const at::Tensor& dy, at::Tensor& out) const = 0;
  // From the projected rows in `saved`, which gets the scores and norms, to y (N, out).
  virtual at::Tensor simplified_edges(const UnitContext& u, SimplifiedSaved& saved) const = 0;
  [[nodiscard]] virtual SimplifiedGradients simplified_edges_backward(const UnitContext& u, const at::Tensor& dy,
                                                                      const at::Tensor& y,
                                                                      const SimplifiedSaved& saved) const = 0;
};

}  // namespace kgat
