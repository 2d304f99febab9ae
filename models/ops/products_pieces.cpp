// SPDX-License-Identifier: Apache-2.0
//
// Products in pieces that depend only on the shape. A library that uses several threads may split the sum, or choose
// other kernels, by their number: oneDNN, its gemm and MKL all do so for some shapes. So one thread computes each
// piece. A piece is a range of rows or columns of the result, or a part of the sum; parts of a sum are added in order.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "ddh/sdk/torch/pieces.hpp"
#include "matrix.hpp"
#include "one_thread.hpp"
#include "processor.hpp"
#include "products.hpp"

namespace ops {
namespace {

constexpr int64_t kMostPieces = 64;
constexpr int64_t kMostParts = 16;  // maximum parts of a sum; each has its own result

// Ranges of one dimension of a product.
class Cut {
 public:
  // `numel`: length of the dimension; `multiplications` of the whole product.
  Cut(int64_t numel, int64_t multiplications, bool native_bf16, int64_t most) : numel_(numel) {
    // A piece takes some tenths of a millisecond; its calls take microseconds. Native bf16 takes less time, and
    // oneDNN's fast kernels only take whole matrices.
    constexpr int64_t kPiece = int64_t{1} << 26, kTiny = int64_t{1} << 23, kGrid = 64;
    if (native_bf16) multiplications /= 32;
    int64_t pieces = std::clamp<int64_t>(multiplications / kPiece, multiplications < kTiny ? 1 : 2, most);
    pieces = std::min(pieces, std::max<int64_t>(1, numel / kGrid));
    length_ = (numel + pieces - 1) / pieces;
    if (pieces > 1) length_ = (length_ + kGrid - 1) / kGrid * kGrid;
  }
  [[nodiscard]] int64_t pieces() const { return numel_ == 0 ? 1 : (numel_ + length_ - 1) / length_; }
  [[nodiscard]] int64_t index(int64_t first) const { return first / length_; }
  [[nodiscard]] int64_t first(int64_t piece) const { return piece * length_; }
  [[nodiscard]] int64_t count(int64_t piece) const { return std::min(length_, numel_ - first(piece)); }

 private:
  int64_t numel_, length_;
};

bool has_native_bf16(int32_t dtype) { return dtype == DDH_BF16 && this_processor().bf16; }

// How backward_input cuts its sum; nullopt: it does not, because rows or columns of the result are longer.
std::optional<Cut> parts_of_sum(const LinearShape& s, bool native_bf16) {
  if (s.rows >= s.in || s.in >= s.out) return std::nullopt;
  const Cut parts(s.out, s.rows * s.in * s.out, native_bf16, kMostParts);
  return parts.pieces() > 1 ? std::optional(parts) : std::nullopt;
}

class PiecedProducts final : public Products {
 public:
  PiecedProducts(std::function<std::unique_ptr<Products>()> make, int32_t dtype)
      : make_(std::move(make)), dtype_(dtype), native_bf16_(has_native_bf16(dtype)) {}

  // Rows if there are many, else columns: then weights are read once.
  void forward(LinearShape s, const void* x, const void* w, const void* bias, Result y) override {
    const bool rows = s.rows >= s.out;
    const Cut cut(rows ? s.rows : s.out, s.rows * s.in * s.out, native_bf16_, kMostPieces);
    for_each(cut, [&](Products& products, int64_t at, int64_t n) {
      if (rows) {
        products.forward({n, s.in, s.out, s.x_stride, s.w_stride, s.y_stride}, operand(x, at * s.ldx()), w, bias,
                         place(y, at * s.ldy()));
      } else {
        products.forward({s.rows, s.in, n, s.x_stride, s.w_stride, s.ldy()}, x, operand(w, at * s.ldw()),
                         bias != nullptr ? operand(bias, at) : nullptr, place(y, at));
      }
    });
  }
  // Ranges of rows if there are many, else of columns, or of the sum if it is longer: the weight is read once.
  void backward_input(LinearShape s, const void* dy, const void* w, Result dx) override {
    if (const std::optional<Cut> parts = parts_of_sum(s, native_bf16_)) return add_parts(s, *parts, dy, w, dx);
    const bool rows = s.rows >= s.in;
    const Cut cut(rows ? s.rows : s.in, s.rows * s.in * s.out, native_bf16_, kMostPieces);
    for_each(cut, [&](Products& products, int64_t at, int64_t n) {
      if (rows) {
        products.backward_input({n, s.in, s.out, s.x_stride, s.w_stride, s.y_stride}, operand(dy, at * s.ldy()), w,
                                place(dx, at * s.ldx()));
      } else {
        products.backward_input({s.rows, n, s.out, s.ldx(), s.ldw(), s.y_stride}, dy, operand(w, at), place(dx, at));
      }
    });
  }
  // The longer side of the gradient. oneDNN's 16-bit kernels need a dense factor, so columns of dy are copied.
  void backward_weight(LinearShape s, const void* dy, const void* x, float* dw, bool add) override {
    const bool rows = s.out >= s.in;
    const Cut cut(rows ? s.out : s.in, s.rows * s.in * s.out, native_bf16_, kMostPieces);
    for_each(cut, [&](Products& products, int64_t at, int64_t n) {
      if (!rows) {
        products.backward_weight({s.rows, n, s.out, s.ldx(), s.ldw(), s.y_stride}, dy, operand(x, at), dw + at, add);
      } else if (dtype_ != DDH_F32 && n < s.ldy()) {
        const at::Tensor part = matrix(operand(dy, at), s.rows, n, dtype_, s.ldy()).contiguous();
        products.backward_weight({s.rows, s.in, n, s.x_stride, s.w_stride, 0}, part.const_data_ptr(), x,
                                 dw + at * s.ldw(), add);
      } else {
        products.backward_weight({s.rows, s.in, n, s.x_stride, s.w_stride, s.ldy()}, operand(dy, at), x,
                                 dw + at * s.ldw(), add);
      }
    });
  }
  [[nodiscard]] uint64_t scratch_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& products : of_thread_) bytes += products->scratch_bytes();
    return bytes;
  }

 private:
  template <class Body>
  void for_each(const Cut& cut, const Body& body) {
    while (of_thread_.size() < static_cast<size_t>(at::get_num_threads())) of_thread_.push_back(make_());
    ddh::for_pieces(cut.pieces(), [&](int64_t i) {
      const OneThread one;
      body(*of_thread_[static_cast<size_t>(at::get_thread_num())], cut.first(i), cut.count(i));
    });
  }
  // dx = sum over the parts of dy's columns and w's rows.
  void add_parts(LinearShape s, const Cut& cut, const void* dy, const void* w, Result dx) {
    const int64_t numel = s.rows * s.in;
    at::Tensor parts = at::empty({cut.pieces(), numel}, at::kFloat);
    auto* sums = parts.mutable_data_ptr<float>();
    for_each(cut, [&](Products& products, int64_t at, int64_t n) {
      products.backward_input({s.rows, s.in, n, 0, s.w_stride, s.ldy()}, operand(dy, at), operand(w, at * s.ldw()),
                              sums + cut.index(at) * numel);
    });
    ddh::for_ranges(numel, [&](int64_t first, int64_t n) {
      for (int64_t p = 1; p < cut.pieces(); ++p) {
        for (int64_t i = first; i < first + n; ++i) sums[i] += sums[p * numel + i];
      }
    });
    matrix(dx.data, s.rows, s.in, dx.dtype, s.x_stride).copy_(parts.select(0, 0).view({s.rows, s.in}));
  }

  [[nodiscard]] const void* operand(const void* data, int64_t elements) const {
    return static_cast<const char*>(data) + elements * (dtype_ == DDH_F32 ? 4 : 2);
  }
  static Result place(Result result, int64_t elements) {
    return {static_cast<char*>(result.data) + elements * (result.dtype == DDH_F32 ? 4 : 2), result.dtype};
  }

  const std::function<std::unique_ptr<Products>()> make_;
  const int32_t dtype_;
  const bool native_bf16_;
  std::vector<std::unique_ptr<Products>> of_thread_;
};

}  // namespace

int64_t bytes_of_parts(const LinearShape& s, int32_t dtype) {
  const std::optional<Cut> parts = parts_of_sum(s, has_native_bf16(dtype));
  return parts ? parts->pieces() * s.rows * s.in * static_cast<int64_t>(sizeof(float)) : 0;
}

std::unique_ptr<Products> make_pieced_products(std::function<std::unique_ptr<Products>()> make, int32_t dtype) {
  return std::make_unique<PiecedProducts>(std::move(make), dtype);
}

}  // namespace ops
