// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on ATen, and the libraries by name.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <vector>

#include "matrix.hpp"
#include "processor.hpp"
#include "products.hpp"
#include "products_torch.hpp"

namespace ops {
namespace {

// `exact`: sums of 16-bit operands are fp32 until they are stored; else ATen rounds every product to 16 bits.
class AtenProducts final : public Products {
 public:
  AtenProducts(int32_t dtype, at::Device device, bool exact) : dtype_(dtype), device_(device), exact_(exact) {}

  void forward(LinearShape s, const void* x, const void* w, const void* bias, Result y) override {
    at::Tensor out = of(y.data, s.rows, s.out, y.dtype, s.y_stride);
    const at::Tensor xm = of(x, s.rows, s.in, dtype_, s.x_stride), wt = of(w, s.out, s.in, dtype_, s.w_stride).t();
    if (exact_ && !device_.is_cuda() && bias != nullptr && y.dtype != DDH_F32) {  // rounded once
      out.copy_(product(xm, wt, at::kFloat).add_(of(bias, 1, s.out, dtype_, 0)));
      return;
    }
    if (device_.is_cuda() && bias != nullptr && y.dtype == dtype_) {  // summed and rounded in one pass
      at::addmm_out(out, of(bias, 1, s.out, dtype_, 0).view({s.out}), xm, wt);
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
    } else if (device_.is_cuda() && out.is_contiguous()) {
      at::mm_out(out, a, b, out.scalar_type());
    } else {
      out.copy_(product(a, b, out.scalar_type()));
    }
  }
  // cuBLAS gives the fp32 sums of 16-bit operands. Processors convert the operands, which gives the same products.
  [[nodiscard]] at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) const {
    if (!exact_ || a.scalar_type() == type) return at::mm(a, b);
    return device_.is_cuda() ? at::mm(a, b, type) : at::mm(a.to(type), b.to(type));
  }

  const int32_t dtype_;
  const at::Device device_;
  const bool exact_;
};

std::unique_ptr<Products> make_native_products(const std::string& name, int32_t dtype) {
#ifdef DDHOST_HAVE_ONEDNN
  if (name == "onednn") return make_onednn_products(dtype);
  if (name == "onednn_gemm" && dtype == DDH_F32) return make_onednn_gemm_products();
#endif
  if (name == "aten") return make_aten_products(dtype);
  return nullptr;
}

}  // namespace

std::unique_ptr<Products> make_aten_products(int32_t dtype) {
  return std::make_unique<AtenProducts>(dtype, at::kCPU, /*exact=*/false);
}

std::unique_ptr<Products> make_torch_products(int32_t dtype, c10::Device device) {
  return std::make_unique<AtenProducts>(dtype, device, /*exact=*/true);
}

std::vector<std::string> product_names() {
#ifdef DDHOST_HAVE_ONEDNN
  return {"onednn_gemm", "onednn", "aten"};
#else
  return {"aten"};
#endif
}

std::unique_ptr<Products> make_products(const std::string& name, int32_t dtype) {
  if (make_native_products(name, DDH_F32) == nullptr) return nullptr;
  return make_pieced_products(
      [name, dtype]() -> std::unique_ptr<Products> {
        if (dtype == DDH_F32 || (dtype == DDH_BF16 && this_processor().bf16)) {
          if (auto native = make_native_products(name, dtype)) return native;
        }
        auto of_fp32 = make_native_products(name, DDH_F32);
        return dtype != DDH_F32 ? make_widened_products(std::move(of_fp32), dtype) : std::move(of_fp32);
      },
      dtype);
}

}  // namespace ops
