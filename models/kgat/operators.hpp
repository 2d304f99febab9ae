// SPDX-License-Identifier: Apache-2.0
//
// kgat/operators.hpp: the parts of the model by operators of LibTorch alone, as a GPU runs them. Numbers of nodes, rows and
// edges are tensors on the device. A sum over edges or rows is one of segments of a sorted list (at::segment_reduce): each
// element of the result is the sum of one thread in the order of the list, so it has the same bits in every run.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "batch.hpp"

namespace kgat {

struct UnitContext;
struct SimplifiedGraph;
struct SimplifiedSaved;
struct KgGradients;

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
// The tensors that a batch uploads, as views of its memory; some are undefined.
std::vector<at::Tensor> tensors_of(const KgatBatch& batch);
BatchOnDevice batch_on_device(const std::vector<at::Tensor>& copies);

// Row i is the sum over the rows begin[i] .. begin[i + 1] - 1 of x (n, width).
at::Tensor segment_sums(const at::Tensor& x, const at::Tensor& begin);
// For each node the sum over its places in a list, of rows of x that follow that list. (nodes, width)
at::Tensor sums_of_places(const RowsOnDevice& rows, const at::Tensor& x);
// Adds row i of `sums` to row nodes[i] of x.
void add_to_nodes(const RowsOnDevice& rows, const at::Tensor& sums, at::Tensor& x);

// multiply and add_transposed of kernels.hpp.
at::Tensor sums_of_neighbours(const UnitContext& u, const at::Tensor& x);
void add_to_neighbours(const UnitContext& u, const at::Tensor& x, at::Tensor& out);

// row_norms and add_normalize_backward of kernels.hpp.
at::Tensor norms_of_rows(const at::Tensor& x);
void add_normalize_backward(const RowsOnDevice& rows, const at::Tensor& x, const at::Tensor& norms,
                            const at::Tensor& dy, at::Tensor& dx);

// As the functions of layers.hpp and simplified.hpp. Losses are fp64 of no dimension, on the device.
at::Tensor cf_loss_by_operators(const Config& config, const at::Tensor& x, double seed, at::Tensor* dx);
at::Tensor kg_loss_by_operators(const UnitContext& u, const at::Tensor& y, double seed, KgGradients* gradients);
// Scores and softmax of the batch's edges, into the weights of the edges.
void renew_attention_by_operators(const UnitContext& u, const at::Tensor& y);
// From the projected rows in `saved`.
at::Tensor simplified_layer_by_operators(const UnitContext& u, SimplifiedSaved& saved);
struct SimplifiedGradients {
  at::Tensor rows;          // (N + P, out)
  at::Tensor weight, bias;  // (out), (1) of the attention
};
SimplifiedGradients simplified_backward_by_operators(const UnitContext& u, const at::Tensor& dy, const at::Tensor& y,
                                                     const SimplifiedSaved& saved);

}  // namespace kgat
