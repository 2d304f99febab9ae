// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on ATen, and the measurement that chooses among the libraries.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "products.hpp"

namespace ops {
namespace {

at::Tensor matrix(const float* data, int64_t rows, int64_t columns) {
  return at::from_blob(const_cast<float*>(data), {rows, columns}, at::kFloat);
}

class AtenProducts final : public Products {
 public:
  void forward(LinearShape s, const float* x, const float* w, const float* bias, float* y) override {
    at::Tensor out = matrix(y, s.rows, s.out);
    at::mm_out(out, matrix(x, s.rows, s.in), matrix(w, s.out, s.in).t());
    if (bias != nullptr) out.add_(matrix(bias, 1, s.out));
  }
  void backward_input(LinearShape s, const float* dy, const float* w, float* dx) override {
    at::Tensor out = matrix(dx, s.rows, s.in);
    at::mm_out(out, matrix(dy, s.rows, s.out), matrix(w, s.out, s.in));
  }
  void backward_weight(LinearShape s, const float* dy, const float* x, float* dw, bool add) override {
    at::Tensor out = matrix(dw, s.out, s.in);
    const at::Tensor dyt = matrix(dy, s.rows, s.out).t(), xm = matrix(x, s.rows, s.in);
    // MKL's own accumulation (beta = 1) rounds otherwise than product-then-add.
    if (add) {
      out.add_(at::mm(dyt, xm));
    } else {
      at::mm_out(out, dyt, xm);
    }
  }
};

double milliseconds_of(Products& products, LinearShape s) {
  const std::vector<float> x(static_cast<size_t>(s.rows * s.in), 0.5F), w(static_cast<size_t>(s.in * s.out), 0.25F);
  std::vector<float> y(static_cast<size_t>(s.rows * s.out)), dx(x.size()), dw(w.size());
  double best = 1e30;
  for (int i = 0; i < 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    products.forward(s, x.data(), w.data(), nullptr, y.data());
    products.backward_input(s, y.data(), w.data(), dx.data());
    products.backward_weight(s, y.data(), x.data(), dw.data(), false);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (i > 0) best = std::min(best, took.count());  // the first call builds kernels
  }
  return best;
}

}  // namespace

std::unique_ptr<Products> make_aten_products() { return std::make_unique<AtenProducts>(); }

std::vector<std::string> product_names() {
#ifdef DDHOST_HAVE_ONEDNN
  return {"onednn_gemm", "onednn", "aten"};
#else
  return {"aten"};
#endif
}

std::unique_ptr<Products> make_products(const std::string& name) {
#ifdef DDHOST_HAVE_ONEDNN
  if (name == "onednn") return make_onednn_products();
  if (name == "onednn_gemm") return make_onednn_gemm_products();
#endif
  if (name == "aten") return make_aten_products();
  return nullptr;
}

// The first of the list, unless another is clearly quicker: near ties would fall this way in one run and that way in the
// next, and their bits differ.
std::string quickest_products(LinearShape shape) {
  constexpr double kClearly = 0.75;
  std::string quickest;
  double least = 0;
  for (const std::string& name : product_names()) {
    const double took = milliseconds_of(*make_products(name), shape);
    if (quickest.empty() || took < kClearly * least) {
      least = took;
      quickest = name;
    }
  }
  return quickest;
}

}  // namespace ops
