// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on ATen, and the measurement that chooses among the libraries.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "matrix.hpp"
#include "products.hpp"

namespace ops {
namespace {

class AtenProducts final : public Products {
 public:
  explicit AtenProducts(int32_t dtype) : dtype_(dtype) {}

  void forward(LinearShape s, const void* x, const void* w, const void* bias, Result y) override {
    at::Tensor out = matrix(y.data, s.rows, s.out, y.dtype);
    put(out, matrix(x, s.rows, s.in, dtype_), matrix(w, s.out, s.in, dtype_).t());
    if (bias != nullptr) out.add_(matrix(bias, 1, s.out, dtype_));
  }
  void backward_input(LinearShape s, const void* dy, const void* w, Result dx) override {
    at::Tensor out = matrix(dx.data, s.rows, s.in, dx.dtype);
    put(out, matrix(dy, s.rows, s.out, dtype_), matrix(w, s.out, s.in, dtype_));
  }
  void backward_weight(LinearShape s, const void* dy, const void* x, float* dw, bool add) override {
    at::Tensor out = matrix(dw, s.out, s.in, DDH_F32);
    const at::Tensor dyt = matrix(dy, s.rows, s.out, dtype_).t(), xm = matrix(x, s.rows, s.in, dtype_);
    // MKL's own accumulation (beta = 1) rounds otherwise than product-then-add.
    if (add) {
      out.add_(at::mm(dyt, xm));
    } else {
      put(out, dyt, xm);
    }
  }

 private:
  // ATen's products have the type of their operands.
  static void put(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
    if (out.scalar_type() == a.scalar_type()) {
      at::mm_out(out, a, b);
    } else {
      out.copy_(at::mm(a, b));
    }
  }
  const int32_t dtype_;
};

double milliseconds_of(Products& products, LinearShape s, int32_t dtype) {
  const at::ScalarType type = scalar_type(dtype);
  const at::Tensor x = at::full({s.rows, s.in}, 0.5, type), w = at::full({s.out, s.in}, 0.25, type);
  at::Tensor y = at::empty({s.rows, s.out}, type), dx = at::empty({s.rows, s.in}, type);
  std::vector<float> dw(static_cast<size_t>(s.in * s.out));
  double best = 1e30;
  for (int i = 0; i < 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    products.forward(s, x.const_data_ptr(), w.const_data_ptr(), nullptr, {y.mutable_data_ptr(), dtype});
    products.backward_input(s, y.const_data_ptr(), w.const_data_ptr(), {dx.mutable_data_ptr(), dtype});
    products.backward_weight(s, y.const_data_ptr(), x.const_data_ptr(), dw.data(), false);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (i > 0) best = std::min(best, took.count());  // the first call builds kernels
  }
  return best;
}

bool processor_has_bf16() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

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
  if (dtype == DDH_F32 || (dtype == DDH_BF16 && processor_has_bf16())) {
    if (auto native = make_native_products(name, dtype)) return native;
  }
  auto of_fp32 = make_native_products(name, DDH_F32);
  return of_fp32 != nullptr && dtype != DDH_F32 ? make_widened_products(std::move(of_fp32), dtype) : std::move(of_fp32);
}

// The first of the list, unless another is clearly quicker: near ties would fall this way in one run and that way in the
// next, and their bits differ. The best of many tries, since other programs may disturb some.
std::string quickest_products(LinearShape shape, int32_t dtype) {
  const bool native_bf16 = dtype == DDH_BF16 && processor_has_bf16();
  if (native_bf16 && make_native_products("onednn", dtype) != nullptr) return "onednn";
  constexpr double kClearly = 0.6;
  std::string quickest;
  double least = 0;
  for (const std::string& name : product_names()) {
    const double took = milliseconds_of(*make_products(name, dtype), shape, dtype);
    if (quickest.empty() || took < kClearly * least) {
      least = took;
      quickest = name;
    }
  }
  return quickest;
}

}  // namespace ops
