// SPDX-License-Identifier: Apache-2.0
//
// kgat/operators.hpp: GraphOps by operators of LibTorch alone, as a GPU runs them. Numbers of nodes, rows and
// edges are tensors on the device. A sum over edges or rows is one of segments of a sorted list (at::segment_reduce): each
// element of the result is the sum of one thread in the order of the list, so it has the same bits in every run.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "graph_ops.hpp"

namespace kgat {

struct SimplifiedGraph;

// RowPlaces on the device.
struct RowsOnDevice {
  at::Tensor nodes, begin, places;
};

struct GraphOnDevice {
  GraphOnDevice() = default;
  GraphOnDevice(const Graph& graph, at::Device device);
  at::Tensor row_begin, tail;                         // (N + 1), (E)
  at::Tensor column_begin, column_edge, column_head;  // (N + 1), (E), (E)
};

struct SimplifiedOnDevice {
  SimplifiedOnDevice() = default;
  SimplifiedOnDevice(const SimplifiedGraph& graph, at::Device device);
  at::Tensor pair_node;            // (P)
  RowsOnDevice pairs;              // where a node is the tail of pairs
  at::Tensor begin, head, row;     // (N + 1), (E), (E)
  at::Tensor row_begin, row_edge;  // (N + P + 1), (E)
};

struct BatchOnDevice {
  at::Tensor rows;
  RowsOnDevice places;
  at::Tensor order, inverse, relation, relation_begin;                        // as in BatchIndices
  at::Tensor edge_place, node_begin, node_of_edge, run_begin, run, is_later;  // likewise
};

// Row i is the sum over the rows begin[i] .. begin[i + 1] - 1 of x (n, width).
at::Tensor segment_sums(const at::Tensor& x, const at::Tensor& begin);

class DDH_HIDDEN OperatorOps final : public GraphOps {
 public:
  // References outlive the object. `simplified`: nullptr in other variants.
  OperatorOps(const Config& config, const Graph& graph, const SimplifiedGraph* simplified, at::Device device)
      : config_(config), graph_(graph), simplified_graph_(simplified), device_(device) {}

  void prepare() override;
  void complete(KgatBatch& batch) const override;
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
  const Config& config_;
  const Graph& graph_;
  const SimplifiedGraph* simplified_graph_;
  const at::Device device_;
  GraphOnDevice edges_;  // of variant kgat
  SimplifiedOnDevice simplified_;
};

}  // namespace kgat
