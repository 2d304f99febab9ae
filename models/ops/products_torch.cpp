// SPDX-License-Identifier: Apache-2.0
#include "products_torch.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>

#include "matrix.hpp"

namespace ops {
namespace {

class TorchProducts final : public Products {
 public:
  TorchProducts(int32_t dtype, at::Device device) : dtype_(dtype), device_(device) {}

  void forward(LinearShape s, const void* x, const void* w, const void* bias, Result y) override {
    at::Tensor out = of(y.data, s.rows, s.out, y.dtype, s.y_stride);
    const at::Tensor xm = of(x, s.rows, s.in, dtype_, s.x_stride), wt = of(w, s.out, s.in, dtype_, s.w_stride).t();
    if (bias != nullptr && y.dtype != DDH_F32) {  // rounded once
      out.copy_(product(xm, wt, at::kFloat).add_(of(bias, 1, s.out, dtype_, 0)));
      return;
    }
    put(out, xm, wt);
    if (bias != nullptr) out.add_(of(bias, 1, s.out, dtype_, 0));
  }
  void backward_input(LinearShape s, const void* dy, const void* w, Result dx) override {
    at::Tensor out = of(dx.data, s.rows, s.in, dx.dtype, s.x_stride);
    put(out, of(dy, s.rows, s.out, dtype_, s.y_stride), of(w, s.out, s.in, dtype_, s.w_stride));
  }
  void backward_weight(LinearShape s, const void* dy, const void* x, float* dw, bool add) override {
    at::Tensor out = of(dw, s.out, s.in, DDH_F32, s.w_stride);
    const at::Tensor dyt = of(dy, s.rows, s.out, dtype_, s.y_stride).t(), xm = of(x, s.rows, s.in, dtype_, s.x_stride);
    if (add) {
      out.add_(product(dyt, xm, at::kFloat));  // in one addition per element: beta = 1 of a library rounds otherwise
    } else {
      put(out, dyt, xm);
    }
  }

 private:
  [[nodiscard]] at::Tensor of(const void* data, int64_t rows, int64_t columns, int32_t dtype, int64_t stride) const {
    return matrix(data, rows, columns, dtype, stride, device_);
  }
  void put(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) const {
    if (out.scalar_type() == a.scalar_type()) {
      at::mm_out(out, a, b);
    } else {
      out.copy_(product(a, b, out.scalar_type()));
    }
  }
  // cuBLAS gives the fp32 sums of 16-bit operands. Processors convert the operands, which gives the same products.
  [[nodiscard]] at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) const {
    if (a.scalar_type() == type) return at::mm(a, b);
    return device_.is_cuda() ? at::mm(a, b, type) : at::mm(a.to(type), b.to(type));
  }

  const int32_t dtype_;
  const at::Device device_;
};

}  // namespace

std::unique_ptr<Products> make_torch_products(int32_t dtype, c10::Device device) {
  return std::make_unique<TorchProducts>(dtype, device);
}

}  // namespace ops
