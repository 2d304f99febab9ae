// SPDX-License-Identifier: Apache-2.0
//
// kgat/layers.hpp: forward and backward of the units, written out by hand over ops::Products and the kernels. Gradients of
// weights go straight into the strategy's buffers. What an aggregator passes on, sums and losses are fp32; weights, and
// whatever a product takes, are of the compute dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "../ops/blocks.hpp"
#include "../ops/dropout.hpp"
#include "../ops/linear.hpp"
#include "batch.hpp"
#include "operators.hpp"

namespace kgat {

struct DDH_HIDDEN UnitContext {
  const Config& config;
  const Graph& graph;
  ops::Products& products;
  const KgatBatch& batch;
  const ddh_unit_view& view;
  const at::Tensor& weights;  // (E) of the edges, on the device
  ddh::DropoutKey call;       // the call's place in the run
  bool training;              // dropout acts
  at::Device device;
  const GraphOps& graph_ops;
  const BatchOnDevice& indices;  // what graph_ops.upload gave
  ddh::LaterGradients& later;    // of this unit's backward

  [[nodiscard]] ops::DropoutPlace dropout() const { return {training ? config.message_dropout : 0, call}; }
  [[nodiscard]] at::Tensor narrowed(const at::Tensor& x) const { return x.to(config.compute); }
};

// ---- The table of embeddings (N, d) ---------------------------------------------------------------------

at::Tensor all_embeddings(const UnitContext& u);      // (N, d) fp32
at::Tensor embeddings_of_rows(const UnitContext& u);  // (rows of the batch, d) in the compute dtype
void give_embedding_gradient(const UnitContext& u, const at::Tensor& gradient);  // (N, d) fp32

// ---- An aggregator: s = A e; e' = dropout(act(...)) -----------------------------------------------------------

struct AggregatorSaved {
  at::Tensor s;         // (N, in) weighted sums of neighbours
  at::Tensor z_1, z_2;  // (N, out) before the activation; z_2 of a bi-interaction alone
};
// e (N, in) -> (N, out)
at::Tensor aggregate(const UnitContext& u, int64_t out, const at::Tensor& e, AggregatorSaved& saved);
at::Tensor aggregate_backward(const UnitContext& u, at::Tensor dy, const at::Tensor& e, const AggregatorSaved& saved);

// ---- Ranking loss: softplus(score of the wrong item - score of the right one) ---------------------------

// `x` (3 B, F) users, right items, wrong items. Returns the sum of the losses; where `dx` (3 B, F) is given, it gets the
// gradient of seed times that sum.
double cf_loss(const Config& config, const at::Tensor& x, double seed, at::Tensor* dx);

// ---- TransR -------------------------------------------------------------------------------------------------

// Relations without rows get no product: their elements first .. first + n - 1 of the gradient of `w` are zero.
void give_nothing(const ddh_param_view& w, int64_t first, int64_t n, at::Device device);
at::Tensor relation_vectors(const UnitContext& u);  // (R, k) fp32
// Every row times the matrix of its relation: x (rows, d) in the compute dtype -> (rows, k) fp32
at::Tensor project(const UnitContext& u, const at::Tensor& x);
// Writes the gradient of the matrices; returns that of x (rows, d) in fp32.
at::Tensor project_backward(const UnitContext& u, const at::Tensor& dy, const at::Tensor& x);
struct KgGradients {
  at::Tensor y;          // (3 B, k)
  at::Tensor relations;  // (R, k)
};
// As cf_loss, of projected rows y (3 B, k).
double kg_loss(const UnitContext& u, const at::Tensor& y, double seed, KgGradients* gradients);
// The scores of the batch's edges from projected rows y (2 edges, k), into `scores` (E).
void score_edges(const UnitContext& u, const at::Tensor& y, std::vector<float>& scores);
// Scores become weights: a softmax over the edges of each of `n` nodes from `first`.
void softmax_of_nodes(const Graph& graph, bool joins_parallel_edges, int64_t first, int64_t n,
                      std::vector<float>& scores);

}  // namespace kgat
