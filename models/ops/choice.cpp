// SPDX-License-Identifier: Apache-2.0
//
// The table of libraries, and the measurement that produced it.
#include "choice.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "ddh/sdk/plugin.hpp"
#include "matrix.hpp"

namespace ops {
namespace {

enum class Needs { kNothing, kX86, kAvx512, kBf16 };

struct Row {
  const char* vendor;  // "": any
  Needs needs;
  int32_t dtype;        // dtype of the products' operands; fp32 if they are converted
  int64_t least_numel;  // minimum size of the weight
  const char* name;
};

// The first matching row that this build supports is used. benchmarks/matmul_bench measures it: one thread, 64 to 768 rows,
// weights of 64 x 256 to 1024 x 4096 (the widest layers of the GPT sizes).
constexpr std::array<Row, 7> kTable = {{
    // bf16: 2.3 ms at 64 x 768 x 3072 against aten's 3.5, which rounds gradients of weights too.
    {"", Needs::kBf16, DDH_BF16, 0, "onednn"},
    // fp32, weights above 128 x 512: 1.36 ms at 64 x 384 x 1536 against 1.41 (onednn) and 1.47 (aten).
    {"GenuineIntel", Needs::kAvx512, DDH_F32, 65537, "onednn_gemm"},
    // fp32, smaller weights: 1.69 ms at 768 x 128 x 512 and 0.41 at 768 x 64 x 256, against 1.74 and 0.43 (onednn_gemm).
    {"GenuineIntel", Needs::kAvx512, DDH_F32, 0, "onednn"},
    // fp32: the benchmarks of the 0.8M and the 124M GPT used this library; MKL is slow there.
    {"AuthenticAMD", Needs::kAvx512, DDH_F32, 0, "onednn_gemm"},
    // Not measured: oneDNN has kernels of its own for every x86.
    {"", Needs::kX86, DDH_F32, 0, "onednn_gemm"},
    // Not measured: elsewhere oneDNN's gemm is a plain loop.
    {"", Needs::kNothing, DDH_BF16, 0, "aten"},
    {"", Needs::kNothing, DDH_F32, 0, "aten"},
}};

bool has(const Processor& p, Needs needs) {
  switch (needs) {
    case Needs::kX86:
      return p.x86;
    case Needs::kAvx512:
      return p.avx512;
    case Needs::kBf16:
      return p.bf16;
    case Needs::kNothing:
      return true;
  }
  return false;
}

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

}  // namespace

std::string chosen_products(LinearShape shape, int32_t dtype, const Processor& processor) {
  const bool widened = dtype == DDH_F16 || (dtype == DDH_BF16 && !processor.bf16);
  const std::vector<std::string> built = product_names();
  for (const Row& row : kTable) {
    if (*row.vendor != '\0' && row.vendor != processor.vendor) continue;
    if (!has(processor, row.needs) || row.dtype != (widened ? DDH_F32 : dtype)) continue;
    if (shape.in * shape.out < row.least_numel) continue;
    if (std::find(built.begin(), built.end(), row.name) != built.end()) return row.name;
  }
  return "aten";
}

std::vector<Measured> measure_products(LinearShape shape, int32_t dtype) {
  std::vector<Measured> out;
  for (const std::string& name : product_names())
    out.push_back({name, milliseconds_of(*make_products(name, dtype), shape, dtype)});
  return out;
}

}  // namespace ops
