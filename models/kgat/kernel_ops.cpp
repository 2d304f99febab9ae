// SPDX-License-Identifier: Apache-2.0
#include "kernel_ops.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstring>
#include <numeric>

#include "kernels.hpp"

namespace kgat {
namespace {

float* data(at::Tensor& t) { return t.mutable_data_ptr<float>(); }
const float* data(const at::Tensor& t) { return t.const_data_ptr<float>(); }

Columns columns_of(const at::Tensor& x) { return {data(x), x.stride(0), 0, x.size(1)}; }

// Rows `nodes` of x (N, width).
at::Tensor gathered(const at::Tensor& x, const std::vector<int32_t>& nodes) {
  at::Tensor out = at::empty({static_cast<int64_t>(nodes.size()), x.size(1)}, x.scalar_type());
  const size_t row_bytes = static_cast<size_t>(x.size(1)) * x.element_size();
  const auto* from = static_cast<const char*>(x.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (const int32_t node : nodes) {
    std::memcpy(to, from + static_cast<size_t>(node) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return out;
}

// The embedding, and the normalized output of each layer.
at::Tensor final_rows_of(const std::vector<int32_t>& nodes, const LayerOutputs& outputs) {
  int64_t F = 0;
  for (const at::Tensor& e : outputs.e) F += e.size(1);
  at::Tensor out = at::empty({static_cast<int64_t>(nodes.size()), F}, at::kFloat);
  float* to = data(out);
  for (const int32_t node : nodes) {
    for (size_t l = 0; l < outputs.e.size(); ++l) {
      const int64_t width = outputs.e[l].size(1);
      const float* from = data(outputs.e[l]) + node * width;
      const float factor = l == 0 || outputs.norms.empty() ? 1 : 1 / data(outputs.norms[l - 1])[node];
      for (int64_t c = 0; c < width; ++c) *to++ = from[c] * factor;
    }
  }
  return out;
}

}  // namespace

BatchOnDevice KernelOps::upload(const KgatBatch&, ddh::Transfers&, ddh_stream*) const { return {}; }

at::Tensor KernelOps::sums_of_neighbours(const UnitContext& u, const at::Tensor& x) const {
  at::Tensor s = at::empty_like(x);
  multiply(u.graph, data(u.weights), data(x), x.size(1), data(s));
  return s;
}

void KernelOps::add_to_neighbours(const UnitContext& u, const at::Tensor& ds, at::Tensor& out) const {
  add_transposed(u.graph, data(u.weights), data(ds), ds.size(1), data(out));
}

std::pair<at::Tensor, at::Tensor> KernelOps::sum_and_product(const at::Tensor& e, const at::Tensor& s,
                                                             bool has_product) const {
  at::Tensor sum = at::empty_like(e), product;
  if (has_product) product = at::empty_like(e);
  kgat::sum_and_product(data(e), data(s), e.numel(), data(sum), has_product ? data(product) : nullptr);
  return {sum, product};
}

std::pair<at::Tensor, at::Tensor> KernelOps::sum_and_product_backward(const at::Tensor& e, const at::Tensor& s,
                                                                      const at::Tensor& d_sum,
                                                                      const at::Tensor& d_product) const {
  at::Tensor de = at::empty_like(e), ds = at::empty_like(e);
  kgat::sum_and_product_backward(data(e), data(s), data(d_sum), data(d_product), e.numel(), data(de), data(ds));
  return {de, ds};
}

at::Tensor KernelOps::leaky(const at::Tensor& z, const at::Tensor& z_2, double slope) const {
  at::Tensor y = at::empty_like(z);
  kgat::leaky(data(z), z_2.defined() ? data(z_2) : nullptr, static_cast<float>(slope), y.numel(), data(y));
  return y;
}

at::Tensor KernelOps::leaky_backward(const at::Tensor& dy, const at::Tensor& z, double slope) const {
  at::Tensor dz = at::empty_like(dy);
  kgat::leaky_backward(data(z), static_cast<float>(slope), data(dy), dy.numel(), data(dz));
  return dz;
}

at::Tensor KernelOps::norms_of_rows(const at::Tensor& x) const {
  at::Tensor norms = at::empty({x.size(0)}, at::kFloat);
  row_norms(data(x), x.size(0), x.size(1), data(norms));
  return norms;
}

at::Tensor KernelOps::gather_rows(const UnitContext& u, const at::Tensor& x) const { return gathered(x, u.batch.rows); }

void KernelOps::add_rows(const UnitContext& u, const at::Tensor& dy, at::Tensor& out) const {
  kgat::add_rows(*u.batch.places, columns_of(dy), data(out));
}

void KernelOps::add_normalized_rows(const UnitContext& u, const at::Tensor& dy, const at::Tensor& x,
                                    const at::Tensor& norms, at::Tensor& out) const {
  const RowPlaces& places = *u.batch.places;
  std::vector<float> sums(places.nodes.size() * static_cast<size_t>(dy.size(1)));
  sum_rows(places, columns_of(dy), sums.data());
  add_normalize_backward(places.nodes, data(x), data(norms), sums.data(), dy.size(1), data(out));
}

at::Tensor KernelOps::final_rows(const UnitContext& u, const LayerOutputs& outputs) const {
  return final_rows_of(u.batch.rows, outputs);
}

at::Tensor KernelOps::first_final_rows(int64_t n, const LayerOutputs& outputs) const {
  std::vector<int32_t> nodes(static_cast<size_t>(n));
  std::iota(nodes.begin(), nodes.end(), 0);
  return final_rows_of(nodes, outputs);
}

LossSum KernelOps::cf_loss(const Config& config, const at::Tensor& x, double seed, at::Tensor* dx) const {
  return kgat::cf_loss(config, x, seed, dx);
}

LossSum KernelOps::kg_loss(const UnitContext& u, const at::Tensor& y, double seed, KgGradients* gradients) const {
  return kgat::kg_loss(u, y, seed, gradients);
}

void KernelOps::renew_attention(const UnitContext& u, const at::Tensor& y, std::vector<float>& attention) const {
  score_edges(u, y, attention);
  softmax_of_nodes(u.graph, u.config.joins_parallel_edges, u.batch.first_node, u.batch.B, attention);
}

at::Tensor KernelOps::gather_tails(const at::Tensor& x) const { return gathered(x, simplified_->pair_node); }

void KernelOps::add_tails(const at::Tensor& dy, at::Tensor& out) const {
  kgat::add_rows(simplified_->pair_places, columns_of(dy), data(out));
}

at::Tensor KernelOps::simplified_edges(const UnitContext& u, SimplifiedSaved& saved) const {
  return kgat::simplified_edges(u, *simplified_, saved);
}

SimplifiedGradients KernelOps::simplified_edges_backward(const UnitContext& u, const at::Tensor& dy,
                                                         const at::Tensor& y, const SimplifiedSaved& saved) const {
  return kgat::simplified_edges_backward(u, *simplified_, dy, y, saved);
}

}  // namespace kgat
