// SPDX-License-Identifier: Apache-2.0
#include "attention_tiles.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "one_thread.hpp"

namespace ops {
namespace {

constexpr int64_t kTileRows = 64;  // the only size that was tried

// Of the largest tile of a sequence.
int64_t tile_rows(int64_t T) { return std::min(kTileRows, T); }

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
  [[nodiscard]] int64_t n() const { return samples * heads; }
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

// Memory for the parts of all threads. It is allocated at once, so its size does not depend on which threads work at the same
// time.
class Workspace {
 public:
  enum class Use { kForward, kBackward };

  Workspace(const AttentionShape& s, Use use, const at::TensorOptions& options)
      : all_(at::empty({threads(s), numel_of_thread(s, use)}, options)) {}
  static int64_t threads(const AttentionShape& s) { return std::min<int64_t>(at::get_num_threads(), Parts(s).n); }
  static int64_t numel_of_thread(const AttentionShape& s, Use use) {
    const Parts parts(s);
    const bool back = use == Use::kBackward, copies = parts.samples > 1;
    // Forward: q, and copies of k and v; scores and probabilities; a result. Backward: gradients of k and v beside, a copy of
    // that of the result, and gradients of scores.
    const int64_t n_heads = (back ? 3 : 1) + (copies ? (back ? 3 : 2) : 0), n_tiles = back ? 3 : 2;
    const int64_t rows = tile_rows(s.T);
    return parts.samples * parts.heads * (n_heads * s.T * s.D + n_tiles * rows * s.T + rows * s.D);
  }

  // Memory of the calling thread, from its beginning.
  class Mine {
   public:
    explicit Mine(const Workspace& workspace) : mine_(workspace.all_.select(0, at::get_thread_num())) {}
    at::Tensor take(at::IntArrayRef shape) {
      const int64_t first = std::exchange(used_, used_ + c10::multiply_integers(shape));
      return mine_.narrow(0, first, used_ - first).view(shape);
    }

   private:
    const at::Tensor mine_;
    int64_t used_ = 0;
  };

 private:
  const at::Tensor all_;
};

// x (samples, heads, T, D) of a part as (n, T, D): a view if the part is of one sample, else a copy.
at::Tensor heads_of(const at::Tensor& x, Workspace::Mine& memory) {
  return (x.size(0) == 1 ? x : memory.take(x.sizes()).copy_(x)).flatten(0, 1);
}

// The heads of a part, (n, T, D), and memory for one tile.
class Piece {
 public:
  Piece(const AttentionShape& shape, const DropoutPlace& place, const Qkv& heads, const Part& part,
        Workspace::Mine& memory)
      : causal_(shape.causal),
        T_(shape.T),
        n_(part.n()),
        first_head_(part.first_sample * shape.H + part.first_head),
        dropout_(place.probability, place.key),
        scaled_q_(memory.take(heads.q.sizes()).copy_(heads.q).mul_(heads.scale()).flatten(0, 1)),
        k_(heads_of(heads.k, memory)),
        v_(heads_of(heads.v, memory)),
        scores_(take_tile(memory)),
        probabilities_(take_tile(memory)),
        rows_(memory.take({n_ * tile_rows(T_) * shape.D})) {}

  [[nodiscard]] at::Tensor rows_of(const at::Tensor& heads, const Tile& t) const {
    return heads.narrow(1, t.first, t.n);
  }
  [[nodiscard]] at::Tensor keys_of(const at::Tensor& heads, const Tile& t) const { return heads.narrow(1, 0, t.keys); }
  [[nodiscard]] at::Tensor q(const Tile& t) const { return rows_of(scaled_q_, t); }
  [[nodiscard]] at::Tensor k(const Tile& t) const { return keys_of(k_, t); }
  [[nodiscard]] at::Tensor v(const Tile& t) const { return keys_of(v_, t); }

  // Memory for the scores of the largest tile.
  [[nodiscard]] at::Tensor take_tile(Workspace::Mine& memory) const { return memory.take({n_ * tile_rows(T_) * T_}); }
  // (n, rows, keys) in memory of take_tile.
  [[nodiscard]] at::Tensor tile(const at::Tensor& memory, const Tile& t) const { return start_of(memory, t.n, t.keys); }
  [[nodiscard]] at::Tensor scores(const Tile& t) const { return tile(scores_, t); }  // until the next probabilities

  // (n, rows, keys)
  [[nodiscard]] at::Tensor probabilities(const Tile& t) const {
    at::Tensor s = scores(t), p = tile(probabilities_, t);
    at::bmm_out(s, q(t), k(t).transpose(1, 2));
    if (causal_) {
      for_rows(s, t, [&](float* row, int64_t, int64_t r) {
        std::fill(row + r + 1, row + t.keys, -std::numeric_limits<float>::infinity());
      });
    }
    return at::_softmax_out(p, s, 2, /*half_to_float*/ false);
  }
  // In place. The mask of an element is that of its place in the (B, H, T, T) of all samples.
  [[nodiscard]] at::Tensor dropped(at::Tensor x, const Tile& t) const {
    for_rows(x, t, [&](float* row, int64_t head, int64_t r) {
      const int64_t element = ((first_head_ + head) * T_ + r) * T_;
      dropout_.apply(row, static_cast<uint64_t>(element), static_cast<uint64_t>(t.keys));
    });
    return x;
  }
  // of_keys (n, rows, keys) times heads (n, keys, D); valid until the next call.
  [[nodiscard]] at::Tensor product(const at::Tensor& of_keys, const at::Tensor& heads, const Tile& t) const {
    at::Tensor out = start_of(rows_, t.n, heads.size(2));
    return at::bmm_out(out, of_keys, heads);
  }

 private:
  [[nodiscard]] at::Tensor start_of(const at::Tensor& memory, int64_t rows, int64_t columns) const {
    return memory.narrow(0, 0, n_ * rows * columns).view({n_, rows, columns});
  }
  // Calls body(its elements, head of the piece, row of the sequence) for each row of x (n, rows, keys).
  template <class Body>
  static void for_rows(at::Tensor& x, const Tile& t, const Body& body) {
    auto* row = x.mutable_data_ptr<float>();
    for (int64_t head = 0; head < x.size(0); ++head) {
      for (int64_t r = t.first; r < t.first + t.n; ++r, row += t.keys) body(row, head, r);
    }
  }

  const bool causal_;
  const int64_t T_, n_, first_head_;
  const ddh::Dropout dropout_;
  const at::Tensor scaled_q_, k_, v_;
  const at::Tensor scores_, probabilities_, rows_;  // memory that each tile uses again
};

}  // namespace

int64_t tiled_backward_numel(const AttentionShape& s) {
  return Workspace::threads(s) * Workspace::numel_of_thread(s, Workspace::Use::kBackward);
}

void tiled_attention(const AttentionShape& s, const DropoutPlace& place, const Qkv& all, const at::Tensor& out) {
  const Workspace workspace(s, Workspace::Use::kForward, out.options());
  for_parts(s, [&](const Part& part) {
    Workspace::Mine memory(workspace);
    const Piece piece(s, place, part.of(all), part, memory);
    const at::Tensor rows = part.of(out);
    for_tiles(s.T, s.causal, [&](const Tile& t) {
      const at::Tensor attended = piece.product(piece.dropped(piece.probabilities(t), t), piece.v(t), t);
      rows.narrow(2, t.first, t.n).copy_(attended.view({part.samples, part.heads, t.n, s.D}));
    });
  });
}

void tiled_attention_backward(const AttentionShape& s, const DropoutPlace& place, const Qkv& all,
                              const at::Tensor& all_d_out, const Qkv& all_d) {
  const Workspace workspace(s, Workspace::Use::kBackward, all_d_out.options());
  for_parts(s, [&](const Part& part) {
    Workspace::Mine memory(workspace);
    const Piece piece(s, place, part.of(all), part, memory);
    const Qkv d = part.of(all_d);
    const at::Tensor d_out = heads_of(part.of(all_d_out), memory);
    const at::Tensor d_k = memory.take({part.n(), s.T, s.D}).zero_(), d_v = memory.take({part.n(), s.T, s.D}).zero_();
    const at::Tensor scores_gradient = piece.take_tile(memory);
    for_tiles(s.T, s.causal, [&](const Tile& t) {
      const at::Tensor p = piece.probabilities(t), d_rows = piece.rows_of(d_out, t);
      at::Tensor d_p = piece.scores(t), d_scores = piece.tile(scores_gradient, t);
      piece.keys_of(d_v, t).baddbmm_(piece.dropped(d_p.copy_(p), t).transpose(1, 2), d_rows);
      at::bmm_out(d_p, d_rows, piece.v(t).transpose(1, 2));
      at::_softmax_backward_data_out(d_scores, piece.dropped(d_p, t), p, 2, at::kFloat);
      piece.keys_of(d_k, t).baddbmm_(d_scores.transpose(1, 2), piece.q(t));
      const at::Tensor d_q = piece.product(d_scores, piece.k(t), t).mul_(all.scale());
      d.q.narrow(2, t.first, t.n).copy_(d_q.view({part.samples, part.heads, t.n, s.D}));
    });
    d.k.copy_(d_k.view({part.samples, part.heads, s.T, s.D}));
    d.v.copy_(d_v.view({part.samples, part.heads, s.T, s.D}));
  });
}

}  // namespace ops
