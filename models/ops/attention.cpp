// SPDX-License-Identifier: Apache-2.0
#include "attention.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <limits>

#include "attention_kernels.hpp"
#include "attention_tiles.hpp"
#include "ddh/sdk/torch/determinism.hpp"
#include "qkv.hpp"

namespace ops {
namespace {

// By operators alone: softmax(q k^T / sqrt(D)) over the tokens that count, with dropout on the probabilities.
at::Tensor explicit_attention(const AttentionShape& s, const DropoutPlace& place, const Qkv& h, AttentionSaved& saved) {
  at::Tensor scores = at::matmul(h.q, h.k.transpose(2, 3)).mul_(h.scale());
  if (s.causal) {
    const at::Tensor future = at::ones({s.T, s.T}, h.q.options().dtype(at::kBool)).triu_(1);
    scores.masked_fill_(future, -std::numeric_limits<float>::infinity());
  }
  saved.probabilities = at::softmax(scores, 3);
  return at::matmul(place.drops() ? dropout(place, saved.probabilities.clone()) : saved.probabilities, h.v);
}

void explicit_attention_backward(const DropoutPlace& place, const Qkv& h, const at::Tensor& d_out,
                                 const AttentionSaved& saved, const Qkv& d) {
  const at::Tensor& p = saved.probabilities;
  d.v.copy_(at::matmul((place.drops() ? dropout(place, p.clone()) : p).transpose(2, 3), d_out));
  const at::Tensor d_p = dropout(place, at::matmul(d_out, h.v.transpose(2, 3)).contiguous());
  const at::Tensor d_scores = at::_softmax_backward_data(d_p, p, 3, at::kFloat).mul_(h.scale());
  d.q.copy_(at::matmul(d_scores, h.k));
  d.k.copy_(at::matmul(d_scores.transpose(2, 3), h.q));
}

// Rows of sample b and head h of x (B, H, T, D).
HeadRows rows_of(const at::Tensor& x, int64_t b, int64_t h) {
  return {x.const_data_ptr<float>() + b * x.stride(0) + h * x.stride(1), x.stride(2)};
}
HeadResult result_of(const at::Tensor& x, int64_t b, int64_t h) {
  return {x.mutable_data_ptr<float>() + b * x.stride(0) + h * x.stride(1), x.stride(2)};
}

// Calls body(b, h, memory of the thread) for each head of each sample.
template <class Body>
void for_heads(const AttentionShape& s, int64_t numel_of_thread, const Body& body) {
  const int64_t heads = s.B * s.H, threads = std::min<int64_t>(at::get_num_threads(), heads);
  const at::Tensor memory = at::empty({threads, numel_of_thread}, at::kFloat);
  auto* const first = memory.mutable_data_ptr<float>();
  ddh::for_pieces(heads, [&](int64_t i) { body(i / s.H, i % s.H, first + at::get_thread_num() * numel_of_thread); });
}

void fused_attention(const AttentionShape& s, const Qkv& all, AttentionSaved& saved, const at::Tensor& out) {
  const HeadShape head{s.T, s.D, s.causal};
  saved.log_sum_exp = at::empty({s.B, s.H, s.T}, out.options());
  auto* const sums = saved.log_sum_exp.mutable_data_ptr<float>();
  for_heads(s, attend_numel(head), [&, run = head_kernels().forward](int64_t b, int64_t h, float* memory) {
    run(head, rows_of(all.q, b, h), rows_of(all.k, b, h), rows_of(all.v, b, h), result_of(out, b, h),
        sums + (b * s.H + h) * s.T, memory);
  });
}

void fused_attention_backward(const AttentionShape& s, const Qkv& all, const at::Tensor& attended,
                              const at::Tensor& d_out, const AttentionSaved& saved, const Qkv& d) {
  const HeadShape head{s.T, s.D, s.causal};
  const auto* const sums = saved.log_sum_exp.const_data_ptr<float>();
  for_heads(s, attend_backward_numel(head), [&, run = head_kernels().backward](int64_t b, int64_t h, float* memory) {
    run(head, rows_of(all.q, b, h), rows_of(all.k, b, h), rows_of(all.v, b, h), rows_of(attended, b, h),
        rows_of(d_out, b, h), sums + (b * s.H + h) * s.T,
        {result_of(d.q, b, h), result_of(d.k, b, h), result_of(d.v, b, h)}, memory);
  });
}

void flash_attention(const AttentionShape& s, const Qkv& h, AttentionSaved& saved, at::Tensor& out) {
  std::tie(out, saved.log_sum_exp, std::ignore, std::ignore, std::ignore, std::ignore, saved.random_state,
           saved.random_rest, std::ignore) = at::_scaled_dot_product_flash_attention(h.q, h.k, h.v, 0.0, s.causal);
}

void flash_attention_backward(const AttentionShape& s, const Qkv& h, const at::Tensor& attended,
                              const at::Tensor& d_out, const AttentionSaved& saved, const Qkv& d) {
  const ddh::StrictDeterminism strict;
  const auto [d_q, d_k, d_v] =
      at::_scaled_dot_product_flash_attention_backward(d_out, h.q, h.k, h.v, attended, saved.log_sum_exp, {}, {}, s.T,
                                                       s.T, 0.0, s.causal, saved.random_state, saved.random_rest);
  d.q.copy_(d_q);
  d.k.copy_(d_k);
  d.v.copy_(d_v);
}

AttentionWay way_of(const AttentionShape& s, const DropoutPlace& place, const at::Tensor& qkv) {
  return attention_way(s, place.drops(), qkv.scalar_type(), qkv.is_cuda(), ddh::by_operators(qkv));
}

}  // namespace

// Wider heads are not possible on every GPU that has 16 bits (192 to 224 on 8.6 and 8.9, more than 256 nowhere).
AttentionWay attention_way(const AttentionShape& shape, bool drops, at::ScalarType type, bool is_cuda,
                           bool by_operators) {
  constexpr int64_t kMostWidth = 192;
  if (!by_operators) return drops ? AttentionWay::kTiled : AttentionWay::kFused;
  const bool fits = shape.D % 8 == 0 && shape.D <= kMostWidth;
  return is_cuda && type != at::kFloat && !drops && fits ? AttentionWay::kFlash : AttentionWay::kExplicit;
}

AttentionWay attention_way(const AttentionShape& shape, bool drops, at::ScalarType type,
                           const ddh::TorchDevice& device) {
  return attention_way(shape, drops, type, device.is_cuda(), device.by_operators());
}

at::Tensor attention(const AttentionShape& shape, const DropoutPlace& place, const at::Tensor& qkv,
                     AttentionSaved& saved) {
  const AttentionWay way = way_of(shape, place, qkv);
  at::Tensor out;  // (B, H, T, D)
  if (way == AttentionWay::kFlash) {
    flash_attention(shape, Qkv(qkv), saved, out);
  } else {
    const Qkv h(qkv.to(at::kFloat));
    if (way == AttentionWay::kExplicit) {
      out = explicit_attention(shape, place, h, saved);
    } else {
      out = at::empty({shape.B, shape.T, shape.H, shape.D}, h.q.options()).transpose(1, 2);
      way == AttentionWay::kTiled ? tiled_attention(shape, place, h, out) : fused_attention(shape, h, saved, out);
    }
  }
  return out.transpose(1, 2).reshape({shape.B * shape.T, shape.width()});
}

at::Tensor attention_backward(const AttentionShape& shape, const DropoutPlace& place, const at::Tensor& qkv,
                              const at::Tensor& attended, const at::Tensor& d_out, const AttentionSaved& saved) {
  const AttentionWay way = way_of(shape, place, qkv);
  const at::ScalarType type = way == AttentionWay::kFlash ? qkv.scalar_type() : at::kFloat;
  const auto heads = [&](const at::Tensor& merged) {
    return merged.to(type).view({shape.B, shape.T, shape.H, shape.D}).transpose(1, 2);
  };
  const Qkv h(qkv.to(type));
  at::Tensor d_qkv = at::empty(qkv.sizes(), qkv.options().dtype(type));
  const Qkv d(d_qkv);
  if (way == AttentionWay::kExplicit)
    explicit_attention_backward(place, h, heads(d_out), saved, d);
  else if (way == AttentionWay::kTiled)
    tiled_attention_backward(shape, place, h, heads(d_out), d);
  else if (way == AttentionWay::kFlash)
    flash_attention_backward(shape, h, heads(attended), heads(d_out), saved, d);
  else
    fused_attention_backward(shape, h, heads(attended), heads(d_out), saved, d);
  return d_qkv;
}

AttentionCost attention_cost(const AttentionShape& s, AttentionWay way) {
  const auto heads = static_cast<double>(s.B * s.H), T = static_cast<double>(s.T), D = static_cast<double>(s.D);
  const bool keeps = way == AttentionWay::kExplicit;
  const double product = 2 * heads * D * T * T;
  // q k^T and p v; the backward has four products, and q k^T again where p is not kept
  return {2 * product, (keeps ? 4 : 5) * product, keeps ? heads * T * T : way == AttentionWay::kTiled ? 0 : heads * T};
}

}  // namespace ops
