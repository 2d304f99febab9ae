// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on ATen, and the libraries by name.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>

#include <vector>

#include "matrix.hpp"
#include "processor.hpp"
#include "products.hpp"

namespace ops {
namespace {

class AtenProducts final : public Products {
 public:
  explicit AtenProducts(int32_t dtype) : dtype_(dtype) {}

  void forward(LinearShape s, const void* x, const void* w, const void* bias, Result y) override {
    at::Tensor out = matrix(y.data, s.rows, s.out, y.dtype, s.y_stride);
    put(out, matrix(x, s.rows, s.in, dtype_, s.x_stride), matrix(w, s.out, s.in, dtype_, s.w_stride).t());
    if (bias != nullptr) out.add_(matrix(bias, 1, s.out, dtype_));
  }
  void backward_input(LinearShape s, const void* dy, const void* w, Result dx) override {
    at::Tensor out = matrix(dx.data, s.rows, s.in, dx.dtype, s.x_stride);
    put(out, matrix(dy, s.rows, s.out, dtype_, s.y_stride), matrix(w, s.out, s.in, dtype_, s.w_stride));
  }
  void backward_weight(LinearShape s, const void* dy, const void* x, float* dw, bool add) override {
    at::Tensor out = matrix(dw, s.out, s.in, DDH_F32, s.w_stride);
    const at::Tensor dyt = matrix(dy, s.rows, s.out, dtype_, s.y_stride).t(),
                     xm = matrix(x, s.rows, s.in, dtype_, s.x_stride);
    // MKL's own accumulation (beta = 1) rounds differently from a product followed by an addition.
    if (add) {
      out.add_(at::mm(dyt, xm));
    } else {
      put(out, dyt, xm);
    }
  }

 private:
  // ATen's products have the dtype of their operands.
  static void put(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
    if (out.scalar_type() == a.scalar_type()) {
      at::mm_out(out, a, b);
    } else {
      out.copy_(at::mm(a, b));
    }
  }
  const int32_t dtype_;
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

std::unique_ptr<Products> make_aten_products(int32_t dtype) { return std::make_unique<AtenProducts>(dtype); }

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
