// SPDX-License-Identifier: Apache-2.0
//
// Linear layers of 16-bit operands by fp32 products: the operands are converted to fp32, and the sums are rounded once
// at the end. The weight is processed in blocks of rows, so that its fp32 copy stays in the processor's caches.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "matrix.hpp"
#include "products.hpp"

namespace ops {
namespace {

constexpr int64_t kBlockNumel = int64_t{1} << 20;  // 4 MiB of widened weight
constexpr int64_t kLeastRows = 64;

class WidenedProducts final : public Products {
 public:
  WidenedProducts(std::unique_ptr<Products> of_fp32, int32_t dtype) : of_fp32_(std::move(of_fp32)), dtype_(dtype) {}

  void forward(LinearShape s, const void* x, const void* w, const void* bias, Result y) override {
    const at::Tensor wide_x = widened(x, s.rows, s.in, s.x_stride);
    const at::Tensor weight = matrix(w, s.out, s.in, dtype_, s.w_stride),
                     out = matrix(y.data, s.rows, s.out, y.dtype, s.y_stride);
    const at::Tensor wide_bias = bias != nullptr ? widened(bias, 1, s.out, 0) : at::Tensor();
    for_blocks(s, [&](int64_t first, int64_t n) {
      const at::Tensor wide_w = dense(weight.narrow(0, first, n));
      at::Tensor part = at::empty({s.rows, n}, at::kFloat);
      of_fp32_->forward({s.rows, s.in, n}, wide_x.const_data_ptr(), wide_w.const_data_ptr(),
                        bias != nullptr ? wide_bias.const_data_ptr<float>() + first : nullptr,
                        part.mutable_data_ptr<float>());
      out.narrow(1, first, n).copy_(part);
    });
  }
  void backward_input(LinearShape s, const void* dy, const void* w, Result dx) override {
    const at::Tensor weight = matrix(w, s.out, s.in, dtype_, s.w_stride),
                     from = matrix(dy, s.rows, s.out, dtype_, s.y_stride);
    at::Tensor sum, part = at::empty({s.rows, s.in}, at::kFloat);
    for_blocks(s, [&](int64_t first, int64_t n) {
      const at::Tensor wide_w = dense(weight.narrow(0, first, n)), wide_dy = dense(from.narrow(1, first, n));
      of_fp32_->backward_input({s.rows, s.in, n}, wide_dy.const_data_ptr(), wide_w.const_data_ptr(),
                               part.mutable_data_ptr<float>());
      if (first == 0) {
        sum = s.out > n ? part.clone() : part;
      } else {
        sum.add_(part);
      }
    });
    matrix(dx.data, s.rows, s.in, dx.dtype, s.x_stride).copy_(sum);
  }
  void backward_weight(LinearShape s, const void* dy, const void* x, float* dw, bool add) override {
    const at::Tensor wide_x = widened(x, s.rows, s.in, s.x_stride),
                     from = matrix(dy, s.rows, s.out, dtype_, s.y_stride);
    for_blocks(s, [&](int64_t first, int64_t n) {
      const at::Tensor wide_dy = dense(from.narrow(1, first, n));
      of_fp32_->backward_weight({s.rows, s.in, n, 0, s.w_stride}, wide_dy.const_data_ptr(), wide_x.const_data_ptr(),
                                dw + first * s.ldw(), add);
    });
  }
  [[nodiscard]] uint64_t scratch_bytes() const override { return of_fp32_->scratch_bytes(); }

 private:
  template <class Body>
  static void for_blocks(LinearShape s, Body&& body) {
    const int64_t rows = std::max(kLeastRows, kBlockNumel / s.in / kLeastRows * kLeastRows);
    for (int64_t first = 0; first < s.out; first += rows) body(first, std::min(rows, s.out - first));
  }
  [[nodiscard]] at::Tensor widened(const void* data, int64_t rows, int64_t columns, int64_t stride) const {
    return dense(matrix(data, rows, columns, dtype_, stride));
  }
  static at::Tensor dense(const at::Tensor& from) {
    return from.to(at::kFloat, false, false, at::MemoryFormat::Contiguous);
  }

  const std::unique_ptr<Products> of_fp32_;
  const int32_t dtype_;
};

}  // namespace

std::unique_ptr<Products> make_widened_products(std::unique_ptr<Products> of_fp32, int32_t dtype) {
  return std::make_unique<WidenedProducts>(std::move(of_fp32), dtype);
}

}  // namespace ops
