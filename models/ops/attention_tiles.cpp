// SPDX-License-Identifier: Apache-2.0
#include "attention_tiles.hpp"

#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>

#include "one_thread.hpp"

namespace ops {
namespace {

constexpr int64_t kTileRows = 64;  // the only size that was tried

// Rows first .. first + n - 1 of a sequence, which see the keys 0 .. keys - 1.
struct Tile {
  int64_t first, n, keys;
};

template <class Body>
void for_tiles(int64_t T, bool causal, const Body& body) {
  for (int64_t first = 0; first < T; first += kTileRows) {
    const int64_t n = std::min(kTileRows, T - first);
    body(Tile{first, n, causal ? first + n : T});
  }
}

// What one thread computes at once: all heads of some samples, or some heads of one sample.
struct Part {
  int64_t first_sample, samples, first_head, heads;

  // Of (B, H, T, D).
  [[nodiscard]] at::Tensor of(const at::Tensor& x) const {
    return x.narrow(0, first_sample, samples).narrow(1, first_head, heads);
  }
  [[nodiscard]] Qkv of(const Qkv& all) const { return all.part(0, first_sample, samples).part(1, first_head, heads); }
};

// Parts of sizes that depend on the shape alone, so that the bits do not depend on the threads.
struct Parts {
  explicit Parts(const AttentionShape& s)
      : samples(std::clamp<int64_t>(kScores / (s.H * s.T * s.T), 1, std::max<int64_t>(1, s.B))),
        heads(samples > 1 ? s.H : std::clamp<int64_t>(4 * kScores / (s.T * s.T), 1, s.H)),
        per_sample((s.H + heads - 1) / heads),
        n((s.B + samples - 1) / samples * per_sample) {}
  // Of samples together; a sample is only divided above 4 of these.
  static constexpr int64_t kScores = int64_t{1} << 16;
  const int64_t samples, heads, per_sample, n;
};

// Calls body(part) for each.
template <class Body>
void for_parts(const AttentionShape& s, const Body& body) {
  const Parts parts(s);
  ddh::for_pieces(parts.n, [&](int64_t i) {
    const OneThread one;
    const int64_t sample = i / parts.per_sample * parts.samples, head = i % parts.per_sample * parts.heads;
    body(Part{sample, std::min(parts.samples, s.B - sample), head, std::min(parts.heads, s.H - head)});
  });
}

// The heads of a part, (n, T, D).
class Piece {
 public:
  Piece(const AttentionShape& shape, const DropoutPlace& place, const Qkv& heads, const Part& part)
      : causal_(shape.causal),
        T_(shape.T),
        first_head_(part.first_sample * shape.H + part.first_head),
        dropout_(place.probability, place.key),
        heads_(heads),
        scaled_q_(heads.q.mul(heads.scale())) {}

  [[nodiscard]] at::Tensor rows_of(const at::Tensor& heads, const Tile& t) const {
    return heads.narrow(1, t.first, t.n);
  }
  [[nodiscard]] at::Tensor keys_of(const at::Tensor& heads, const Tile& t) const { return heads.narrow(1, 0, t.keys); }
  [[nodiscard]] at::Tensor q(const Tile& t) const { return rows_of(scaled_q_, t); }
  [[nodiscard]] at::Tensor k(const Tile& t) const { return keys_of(heads_.k, t); }
  [[nodiscard]] at::Tensor v(const Tile& t) const { return keys_of(heads_.v, t); }

  // (n, rows, keys)
  [[nodiscard]] at::Tensor probabilities(const Tile& t) const {
    at::Tensor scores = at::bmm(q(t), k(t).transpose(1, 2));
    if (causal_) {
      for_rows(scores, t, [&](float* row, int64_t, int64_t r) {
        std::fill(row + r + 1, row + t.keys, -std::numeric_limits<float>::infinity());
      });
    }
    return at::softmax(scores, 2);
  }
  // In place. The mask of an element is that of its place in the (B, H, T, T) of all samples.
  [[nodiscard]] at::Tensor dropped(at::Tensor x, const Tile& t) const {
    for_rows(x, t, [&](float* row, int64_t head, int64_t r) {
      const int64_t element = ((first_head_ + head) * T_ + r) * T_;
      dropout_.apply(row, static_cast<uint64_t>(element), static_cast<uint64_t>(t.keys));
    });
    return x;
  }

 private:
  // Calls body(its elements, head of the piece, row of the sequence) for each row of x (n, rows, keys).
  template <class Body>
  static void for_rows(at::Tensor& x, const Tile& t, const Body& body) {
    auto* row = x.mutable_data_ptr<float>();
    for (int64_t head = 0; head < x.size(0); ++head) {
      for (int64_t r = t.first; r < t.first + t.n; ++r, row += t.keys) body(row, head, r);
    }
  }

  const bool causal_;
  const int64_t T_, first_head_;
  const ddh::Dropout dropout_;
  const Qkv heads_;
  const at::Tensor scaled_q_;
};

}  // namespace

TiledPart tiled_part(const AttentionShape& s) {
  const Parts parts(s);
  const int64_t heads = parts.samples * parts.heads;
  return {parts.n, heads, heads * std::min(kTileRows, s.T) * s.T, parts.samples > 1};
}

void tiled_attention(const AttentionShape& s, const DropoutPlace& place, const Qkv& all, const at::Tensor& out) {
  for_parts(s, [&](const Part& part) {
    const Piece piece(s, place, part.of(all).heads(), part);
    const at::Tensor rows = part.of(out);
    for_tiles(s.T, s.causal, [&](const Tile& t) {
      const at::Tensor attended = at::bmm(piece.dropped(piece.probabilities(t), t), piece.v(t));
      rows.narrow(2, t.first, t.n).copy_(attended.view({part.samples, part.heads, t.n, s.D}));
    });
  });
}

void tiled_attention_backward(const AttentionShape& s, const DropoutPlace& place, const Qkv& all,
                              const at::Tensor& all_d_out, const Qkv& all_d) {
  for_parts(s, [&](const Part& part) {
    const Piece piece(s, place, part.of(all).heads(), part);
    const Qkv d = part.of(all_d);
    const at::Tensor d_out = part.of(all_d_out).flatten(0, 1);
    const at::Tensor d_k = at::zeros({part.samples * part.heads, s.T, s.D}, d_out.options()), d_v = at::zeros_like(d_k);
    for_tiles(s.T, s.causal, [&](const Tile& t) {
      const at::Tensor p = piece.probabilities(t), d_rows = piece.rows_of(d_out, t);
      piece.keys_of(d_v, t).baddbmm_(piece.dropped(p.clone(), t).transpose(1, 2), d_rows);
      const at::Tensor d_p = piece.dropped(at::bmm(d_rows, piece.v(t).transpose(1, 2)), t);
      const at::Tensor d_scores = at::_softmax_backward_data(d_p, p, 2, at::kFloat);
      piece.keys_of(d_k, t).baddbmm_(d_scores.transpose(1, 2), piece.q(t));
      const at::Tensor d_q = at::bmm(d_scores, piece.k(t)).mul_(all.scale());
      d.q.narrow(2, t.first, t.n).copy_(d_q.view({part.samples, part.heads, t.n, s.D}));
    });
    d.k.copy_(d_k.view({part.samples, part.heads, s.T, s.D}));
    d.v.copy_(d_v.view({part.samples, part.heads, s.T, s.D}));
  });
}

}  // namespace ops
