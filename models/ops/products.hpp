// SPDX-License-Identifier: Apache-2.0
//
// ops/products.hpp: the three matrix products of a linear layer y = x w^T + b, with a library that the run chooses. All
// matrices are row-major: x (rows, in), w (out, in), y (rows, out). Operands are all fp32, all bf16 or all fp16; sums
// are fp32 in any case.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddh/abi.h"

namespace ops {

// Elements from one row to the next; 0: contiguous rows. y_stride also applies to dy, x_stride to dx, w_stride to dw.
struct LinearShape {
  int64_t rows, in, out;
  int64_t x_stride = 0, w_stride = 0, y_stride = 0;
  [[nodiscard]] int64_t ldx() const { return x_stride != 0 ? x_stride : in; }
  [[nodiscard]] int64_t ldw() const { return w_stride != 0 ? w_stride : in; }
  [[nodiscard]] int64_t ldy() const { return y_stride != 0 ? y_stride : out; }
};

// The destination of a product: fp32, or the operands' dtype.
struct Result {
  Result(float* to) : data(to), dtype(DDH_F32) {}
  Result(void* to, int32_t its_dtype) : data(to), dtype(its_dtype) {}
  void* data;
  int32_t dtype;
};

// Not thread-safe: one object per rank. Every call gives the same bits. With make_products they do not depend on the
// number of threads; with a library alone they do.
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
  // dw = dy^T x; with `add`, dw += the complete product, in one fp32 addition per element.
  virtual void backward_weight(LinearShape s, const void* dy, const void* x, float* dw, bool add) = 0;
  // Memory that it keeps between calls.
  [[nodiscard]] virtual uint64_t scratch_bytes() const { return 0; }
};

// oneDNN's matmul primitives, for fp32 or bf16.
std::unique_ptr<Products> make_onednn_products(int32_t dtype);
// fp32: oneDNN, with its gemm for the gradients, and the weight as the left factor in the forward to avoid packing
// weights.
std::unique_ptr<Products> make_onednn_gemm_products();
// ATen's own choice (in the wheels MKL for fp32, a bundled oneDNN for bf16). In bf16 it rounds every product to bf16,
// even gradients of weights, for which the other libraries write fp32.
std::unique_ptr<Products> make_aten_products(int32_t dtype);
// 16-bit operands of any format on any processor: converted to fp32, the weight block by block, and multiplied in fp32.
std::unique_ptr<Products> make_widened_products(std::unique_ptr<Products> of_fp32, int32_t dtype);

// The products of a library, divided into pieces by the shape only. One thread computes a piece. `make` creates that
// library's products, one object for each thread.
std::unique_ptr<Products> make_pieced_products(std::function<std::unique_ptr<Products>()> make, int32_t dtype);
// Bytes of the tensor that their backward_input takes for the parts of a long sum. 0: the sum has one part.
int64_t bytes_of_parts(const LinearShape& s, int32_t dtype);

// Those of "onednn_gemm", "onednn" and "aten" that this build has.
std::vector<std::string> product_names();
// In bf16 uses the processor's own instructions if processor and library support them, else converts to fp32. Work is
// divided into pieces, so the result does not depend on the number of threads. nullptr: this build lacks the library.
std::unique_ptr<Products> make_products(const std::string& name, int32_t dtype);

}  // namespace ops
