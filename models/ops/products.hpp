// SPDX-License-Identifier: Apache-2.0
//
// ops/products.hpp: the three matrix products of a linear layer y = x w^T + b, by a library that the run chooses. All
// matrices are row-major: x (rows, in), w (out, in), y (rows, out). Operands are all fp32, all bf16 or all fp16; sums are
// fp32 in any case.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddh/abi.h"

namespace ops {

// Elements from one row to the next; 0: rows lie one after another. y_stride is dy's too, x_stride dx's, w_stride dw's.
struct LinearShape {
  int64_t rows, in, out;
  int64_t x_stride = 0, w_stride = 0, y_stride = 0;
  [[nodiscard]] int64_t ldx() const { return x_stride != 0 ? x_stride : in; }
  [[nodiscard]] int64_t ldw() const { return w_stride != 0 ? w_stride : in; }
  [[nodiscard]] int64_t ldy() const { return y_stride != 0 ? y_stride : out; }
};

// Where a product goes: fp32, or the operands' dtype.
struct Result {
  Result(float* to) : data(to), dtype(DDH_F32) {}
  Result(void* to, int32_t its_dtype) : data(to), dtype(its_dtype) {}
  void* data;
  int32_t dtype;
};

// Not thread-safe: one object per rank. Same bits at every call; those of make_products depend on the number of threads
// neither, those of a library alone do.
class Products {
 public:
  Products() = default;
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  virtual ~Products() = default;

  // y = x w^T + bias; bias (out) or nullptr.
  virtual void forward(LinearShape s, const void* x, const void* w, const void* bias, Result y) = 0;
  // dx = dy w
  virtual void backward_input(LinearShape s, const void* dy, const void* w, Result dx) = 0;
  // dw = dy^T x, or with `add` dw += the complete product, one fp32 addition for each element.
  virtual void backward_weight(LinearShape s, const void* dy, const void* x, float* dw, bool add) = 0;
  // Memory that it keeps between calls.
  [[nodiscard]] virtual uint64_t scratch_bytes() const { return 0; }
};

// oneDNN's matmul primitives, for fp32 or bf16.
std::unique_ptr<Products> make_onednn_products(int32_t dtype);
// fp32: oneDNN with its gemm for the gradients and the weight as the left factor in the forward, which needs no packing of
// weights.
std::unique_ptr<Products> make_onednn_gemm_products();
// ATen's own choice (in the wheels MKL for fp32, a oneDNN of its own for bf16). In bf16 it rounds every product to bf16,
// gradients of weights too, where the others write fp32.
std::unique_ptr<Products> make_aten_products(int32_t dtype);
// 16-bit operands of any format on any processor: widened, block by block of the weight, for products of fp32.
std::unique_ptr<Products> make_widened_products(std::unique_ptr<Products> of_fp32, int32_t dtype);

// The products of a library cut into pieces, by the shape alone; a piece is computed by one thread. `make` gives that
// library's products, for each thread its own.
std::unique_ptr<Products> make_pieced_products(std::function<std::unique_ptr<Products>()> make, int32_t dtype);

// Those of "onednn_gemm", "onednn" and "aten" that this build has.
std::vector<std::string> product_names();
// In bf16 by the processor's own instructions where it has them and the library knows them; what is left is widened. In
// pieces, so that no bit depends on the number of threads. nullptr for a name that this build lacks.
std::unique_ptr<Products> make_products(const std::string& name, int32_t dtype);

}  // namespace ops
