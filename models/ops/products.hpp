// SPDX-License-Identifier: Apache-2.0
//
// ops/products.hpp: the three matrix products of a linear layer y = x w^T + b, over plain fp32 pointers, by a library that
// the run chooses. All matrices are row-major: x (rows, in), w (out, in), y (rows, out).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ops {

struct LinearShape {
  int64_t rows, in, out;
};

// Not thread-safe: one object per rank. Same bits at every call with one thread.
class Products {
 public:
  Products() = default;
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  virtual ~Products() = default;

  // y = x w^T + bias; bias (out) or nullptr.
  virtual void forward(LinearShape s, const float* x, const float* w, const float* bias, float* y) = 0;
  // dx = dy w
  virtual void backward_input(LinearShape s, const float* dy, const float* w, float* dx) = 0;
  // dw = dy^T x, or with `add` dw += the complete product, one fp32 addition for each element.
  virtual void backward_weight(LinearShape s, const float* dy, const float* x, float* dw, bool add) = 0;
  // Memory that it keeps between calls.
  [[nodiscard]] virtual uint64_t scratch_bytes() const { return 0; }
};

// oneDNN's matmul primitives; oneDNN with its gemm for the gradients and the weight as the left factor in the forward, which
// needs no packing of weights; ATen's own choice (MKL in the wheels).
std::unique_ptr<Products> make_onednn_products();
std::unique_ptr<Products> make_onednn_gemm_products();
std::unique_ptr<Products> make_aten_products();

// Those of "onednn_gemm", "onednn" and "aten" that this build has.
std::vector<std::string> product_names();
// nullptr for a name that this build lacks.
std::unique_ptr<Products> make_products(const std::string& name);

// The name of the one to use for a layer of this shape on this machine, by a measurement of some milliseconds: onednn_gemm
// unless another is clearly quicker.
std::string quickest_products(LinearShape shape);

}  // namespace ops
