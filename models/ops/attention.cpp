// SPDX-License-Identifier: Apache-2.0
#include "attention.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "ddh/sdk/torch/device.hpp"
#include "one_thread.hpp"

namespace ops {
namespace {

// q, k and v as (B, H, T, D), views of (B, T, 3, H, D).
struct Qkv {
  at::Tensor q, k, v;
  explicit Qkv(const at::Tensor& qkv) : Qkv(qkv.permute({2, 0, 3, 1, 4}), 0) {}
  // Samples first .. first + n - 1.
  [[nodiscard]] Qkv samples(int64_t first, int64_t n) const { return part(0, first, n); }
  // A range of samples (dim 0) or of heads (dim 1).
  [[nodiscard]] Qkv part(int64_t dim, int64_t first, int64_t n) const {
    return {q.narrow(dim, first, n), k.narrow(dim, first, n), v.narrow(dim, first, n)};
  }

 private:
  Qkv(const at::Tensor& p, int) : q(p.select(0, 0)), k(p.select(0, 1)), v(p.select(0, 2)) {}
  Qkv(at::Tensor q_part, at::Tensor k_part, at::Tensor v_part)
      : q(std::move(q_part)), k(std::move(k_part)), v(std::move(v_part)) {}
};

double scale_of(const Qkv& h) { return 1 / std::sqrt(static_cast<double>(h.q.size(3))); }

// Calls body(first sample, samples) for pieces of a fixed number of samples, or once for all by operators alone.
template <class Body>
void for_samples(const AttentionShape& s, const at::Tensor& some, const Body& body) {
  if (ddh::by_operators(some)) return body(0, s.B);
  constexpr int64_t kScores = int64_t{1} << 16;  // of a piece
  const int64_t n = std::clamp<int64_t>(kScores / (s.H * s.T * s.T), 1, s.B);
  ddh::for_pieces((s.B + n - 1) / n, [&](int64_t i) {
    const OneThread one;
    body(i * n, std::min(n, s.B - i * n));
  });
}

int64_t scores_of(const AttentionShape& s, int64_t samples) { return samples * s.H * s.T * s.T; }

// softmax(q k^T / sqrt(D)) over the tokens that count, with dropout on the probabilities.
at::Tensor explicit_attention(const AttentionShape& s, const DropoutPlace& place, const Qkv& all,
                              AttentionSaved& saved) {
  at::Tensor future;
  if (s.causal) future = at::ones({s.T, s.T}, all.q.options().dtype(at::kBool)).triu_(1);
  at::Tensor out = at::empty({s.B, s.H, s.T, s.D}, all.q.options());
  saved.probabilities = at::empty({s.B, s.H, s.T, s.T}, all.q.options());
  for_samples(s, all.q, [&](int64_t first, int64_t n) {
    const Qkv h = all.samples(first, n);
    at::Tensor scores = at::matmul(h.q, h.k.transpose(2, 3)).mul_(scale_of(h));
    if (s.causal) scores.masked_fill_(future, -std::numeric_limits<float>::infinity());
    const at::Tensor p = at::softmax(scores, 3);
    saved.probabilities.narrow(0, first, n).copy_(p);
    out.narrow(0, first, n).copy_(at::matmul(dropout(place, p, scores_of(s, first)), h.v));
  });
  return out;
}

void explicit_attention_backward(const AttentionShape& s, const DropoutPlace& place, const Qkv& all,
                                 const at::Tensor& all_d_out, const AttentionSaved& saved, Qkv& all_d) {
  for_samples(s, all.q, [&](int64_t first, int64_t n) {
    const Qkv h = all.samples(first, n);
    const Qkv d = all_d.samples(first, n);
    const at::Tensor d_out = all_d_out.narrow(0, first, n), p = saved.probabilities.narrow(0, first, n);
    const int64_t element = scores_of(s, first);
    const at::Tensor dropped = dropout(place, p.clone(), element);
    d.v.copy_(at::matmul(dropped.transpose(2, 3), d_out));
    const at::Tensor d_p = dropout(place, at::matmul(d_out, h.v.transpose(2, 3)).contiguous(), element);
    const at::Tensor d_scores = at::_softmax_backward_data(d_p, p, 3, at::kFloat).mul_(scale_of(h));
    d.q.copy_(at::matmul(d_scores, h.k));
    d.k.copy_(at::matmul(d_scores.transpose(2, 3), h.q));
  });
}

// Calls body(dim, first, n) for a range of samples or heads on each thread. A head's result does not depend on the others. MKL
// plans a product by the number of threads, so each of these tells it that it is alone.
template <class Body>
void for_heads(const AttentionShape& s, const Body& body) {
  const int64_t threads = at::get_num_threads(), dim = s.B >= threads ? 0 : 1, size = dim == 0 ? s.B : s.H;
  const int64_t n = (size + threads - 1) / threads;
  ddh::for_pieces(n == 0 ? 0 : (size + n - 1) / n, [&](int64_t i) {
    const OneThread one;
    body(dim, i * n, std::min(n, size - i * n));
  });
}

c10::string_view name_of(Gelu form) { return form == Gelu::kTanh ? "tanh" : "none"; }

}  // namespace

at::Tensor attention(const AttentionShape& shape, const DropoutPlace& place, const at::Tensor& qkv,
                     AttentionSaved& saved) {
  const Qkv h(qkv);
  at::Tensor out;  // (B, H, T, D)
  if (place.drops() || ddh::by_operators(qkv)) {
    out = explicit_attention(shape, place, h, saved);
  } else {
    out = at::empty({shape.B, shape.T, shape.H, shape.D}, qkv.options()).transpose(1, 2);
    saved.log_sum_exp = at::empty({shape.B, shape.H, shape.T}, qkv.options());
    for_heads(shape, [&](int64_t dim, int64_t first, int64_t n) {
      const Qkv p = h.part(dim, first, n);
      const auto [part, sums] = at::_scaled_dot_product_flash_attention_for_cpu(p.q, p.k, p.v, 0.0, shape.causal);
      out.narrow(dim, first, n).copy_(part);
      saved.log_sum_exp.narrow(dim, first, n).copy_(sums);
    });
  }
  return out.transpose(1, 2).reshape({shape.B * shape.T, shape.width()});
}

at::Tensor attention_backward(const AttentionShape& shape, const DropoutPlace& place, const at::Tensor& qkv,
                              const at::Tensor& attended, const at::Tensor& d_out, const AttentionSaved& saved) {
  const auto heads = [&](const at::Tensor& merged) {
    return merged.view({shape.B, shape.T, shape.H, shape.D}).transpose(1, 2);
  };
  at::Tensor d_qkv = at::empty(qkv.sizes(), qkv.options());
  const Qkv h(qkv);
  Qkv d(d_qkv);
  if (saved.probabilities.defined()) {
    explicit_attention_backward(shape, place, h, heads(d_out), saved, d);
    return d_qkv;
  }
  const at::Tensor d_merged = heads(d_out), merged = heads(attended);
  for_heads(shape, [&](int64_t dim, int64_t first, int64_t n) {
    const auto of = [&](const at::Tensor& all) { return all.narrow(dim, first, n); };
    const Qkv p = h.part(dim, first, n), d_part = d.part(dim, first, n);
    const auto [d_q, d_k, d_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        of(d_merged), p.q, p.k, p.v, of(merged), of(saved.log_sum_exp), 0.0, shape.causal);
    d_part.q.copy_(d_q);
    d_part.k.copy_(d_k);
    d_part.v.copy_(d_v);
  });
  return d_qkv;
}

at::Tensor gelu(Gelu form, const at::Tensor& x) {
  if (ddh::by_operators(x)) return at::gelu(x, name_of(form));
  at::Tensor y = at::empty_like(x);
  const at::Tensor from = x.view(-1), to = y.view(-1);
  ddh::for_ranges(x.numel(), [&](int64_t first, int64_t n) {
    at::Tensor part = to.narrow(0, first, n);
    at::gelu_out(part, from.narrow(0, first, n), name_of(form));
  });
  return y;
}

at::Tensor gelu_backward(Gelu form, const at::Tensor& dy, const at::Tensor& x) {
  if (ddh::by_operators(x)) return at::gelu_backward(dy, x, name_of(form));
  at::Tensor dx = at::empty_like(x);
  const at::Tensor from = x.view(-1), gradient = dy.view(-1), to = dx.view(-1);
  ddh::for_ranges(x.numel(), [&](int64_t first, int64_t n) {
    at::Tensor part = to.narrow(0, first, n);
    at::gelu_backward_out(part, gradient.narrow(0, first, n), from.narrow(0, first, n), name_of(form));
  });
  return dx;
}

}  // namespace ops
