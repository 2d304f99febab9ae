// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on the system's oneDNN. This file must be compiled without LibTorch's include folder, which has another
// dnnl.h.
#include <algorithm>
#include <array>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "products.hpp"
#include "transpose.hpp"

namespace ops {
namespace {

using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;

Type type_of(int32_t dtype) { return dtype == DDH_F32 ? Type::f32 : Type::bf16; }

// One product c = a b (+ bias) (+ c) with its memory objects.
class Matmul {
 public:
  struct Operand {
    Dims dims, strides;
  };
  struct Types {
    Type from, to;
  };
  Matmul(const dnnl::engine& engine, const Operand& a, const Operand& b, const Operand& c, Types types, bool bias,
         bool add) {
    const auto from = [&](const Operand& o) { return dnnl::memory::desc(o.dims, types.from, o.strides); };
    const dnnl::memory::desc to(c.dims, types.to, c.strides);
    dnnl::primitive_attr attr;
    // oneDNN's own scratchpad belongs to the thread that created the primitive, which may have ended when another
    // executes it.
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (add) {
      dnnl::post_ops post;
      post.append_sum(1.0F);
      attr.set_post_ops(post);
    }
    const Operand bias_row{{1, c.dims[1]}, {c.dims[1], 1}};
    const auto d =
        bias ? dnnl::matmul::desc(from(a), from(b), from(bias_row), to) : dnnl::matmul::desc(from(a), from(b), to);
    const dnnl::matmul::primitive_desc pd(d, attr, engine);
    product_ = dnnl::matmul(pd);
    by_gemm_ = std::string_view(pd.impl_info_str()).starts_with("gemm");
    a_ = dnnl::memory(pd.src_desc(), engine, nullptr);
    b_ = dnnl::memory(pd.weights_desc(), engine, nullptr);
    c_ = dnnl::memory(pd.dst_desc(), engine, nullptr);
    if (bias) bias_ = dnnl::memory(pd.bias_desc(), engine, nullptr);
    args_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}};
    if (bias) args_.insert({DNNL_ARG_BIAS, bias_});
    scratchpad_ = dnnl::memory(pd.scratchpad_desc(), engine, nullptr);
    args_.insert({DNNL_ARG_SCRATCHPAD, scratchpad_});
  }
  // By oneDNN's gemm, which may add parts of a long sum to c one by one.
  [[nodiscard]] bool by_gemm() const { return by_gemm_; }
  void run(dnnl::stream& stream, const void* a, const void* b, const void* bias, void* c,
           std::vector<char>& scratchpad) {
    if (scratchpad.size() < scratchpad_.get_desc().get_size()) scratchpad.resize(scratchpad_.get_desc().get_size());
    scratchpad_.set_data_handle(scratchpad.data());
    a_.set_data_handle(const_cast<void*>(a));
    b_.set_data_handle(const_cast<void*>(b));
    c_.set_data_handle(c);
    if (bias != nullptr) bias_.set_data_handle(const_cast<void*>(bias));
    product_.execute(stream, args_);
    stream.wait();
  }

 private:
  dnnl::matmul product_;
  bool by_gemm_ = false;
  dnnl::memory a_, b_, c_, bias_, scratchpad_;
  std::unordered_map<int, dnnl::memory> args_;
};

class OnednnProducts : public Products {
 public:
  explicit OnednnProducts(int32_t dtype) : from_(type_of(dtype)) {}

  void forward(LinearShape s, const void* x, const void* w, const void* bias, Result y) override {
    if (s.rows == 0) return;
    const Matmul::Types types{from_, type_of(y.dtype)};
    get({0, s, bias != nullptr, y.dtype}, [&] {
      return Matmul(engine_, {{s.rows, s.in}, {s.ldx(), 1}}, {{s.in, s.out}, {1, s.ldw()}},
                    {{s.rows, s.out}, {s.ldy(), 1}}, types, bias != nullptr, false);
    }).run(stream_, x, w, bias, y.data, scratchpad_);
  }
  void backward_input(LinearShape s, const void* dy, const void* w, Result dx) override {
    if (s.rows == 0) return;
    const Matmul::Types types{from_, type_of(dx.dtype)};
    get({1, s, 0, dx.dtype}, [&] {
      return Matmul(engine_, {{s.rows, s.out}, {s.ldy(), 1}}, {{s.out, s.in}, {s.ldw(), 1}},
                    {{s.rows, s.in}, {s.ldx(), 1}}, types, false, false);
    }).run(stream_, dy, w, nullptr, dx.data, scratchpad_);
  }
  void backward_weight(LinearShape s, const void* dy, const void* x, float* dw, bool add) override {
    if (s.rows == 0) {
      for (int64_t o = 0; !add && o < s.out; ++o) std::fill_n(dw + o * s.ldw(), s.in, 0.0F);
      return;
    }
    // The bits must be the same with and without `add`, so both use the same kernel. Operands that are not dense, and all
    // where the processor has no other kernel, are multiplied by gemm.
    const bool dense_factors = s.ldx() == s.in && s.ldy() == s.out, dense = dense_factors && s.ldw() == s.in;
    const bool direct = add ? dense && !weight_product(s, true).by_gemm() : dense || !dense_factors;
    if (direct) return weight_product(s, add).run(stream_, dy, x, nullptr, dw, scratchpad_);
    float* product = scratch(s.out * s.in);
    weight_product({s.rows, s.in, s.out, s.ldx(), 0, s.ldy()}, false)
        .run(stream_, dy, x, nullptr, product, scratchpad_);
    for (int64_t o = 0; o < s.out; ++o) {
      float* to = dw + o * s.ldw();
      for (int64_t i = 0; i < s.in; ++i) to[i] = add ? to[i] + product[o * s.in + i] : product[o * s.in + i];
    }
  }
  [[nodiscard]] uint64_t scratch_bytes() const override { return scratch_.size() * sizeof(float) + scratchpad_.size(); }

 protected:
  // The key of a product: kind, shape, bias or add, dtype of the result.
  struct Key : std::array<int64_t, 9> {
    Key(int64_t which, const LinearShape& s, int64_t more, int32_t dtype)
        : std::array<int64_t, 9>{which, s.rows, s.in, s.out, s.ldx(), s.ldw(), s.ldy(), more, dtype} {}
  };
  Matmul& weight_product(const LinearShape& s, bool add) {
    return get({2, s, add, DDH_F32}, [&] {
      return Matmul(engine_, {{s.out, s.rows}, {1, s.ldy()}}, {{s.rows, s.in}, {s.ldx(), 1}},
                    {{s.out, s.in}, {s.ldw(), 1}}, {from_, Type::f32}, false, add);
    });
  }
  float* scratch(int64_t numel) {
    if (scratch_.size() < static_cast<size_t>(numel)) scratch_.resize(static_cast<size_t>(numel));
    return scratch_.data();
  }
  template <class Make>
  Matmul& get(const Key& key, Make&& make) {
    const auto it = matmuls_.find(key);
    if (it != matmuls_.end()) return it->second;
    if (matmuls_.size() >= kMostMatmuls)
      matmuls_.clear();  // oneDNN keeps as many as it wants, and makes the rest again
    return matmuls_.emplace(key, make()).first->second;
  }
  // Where the rows of a batch vary, as in KGAT's groups of a relation, shapes have no end.
  static constexpr size_t kMostMatmuls = 512;
  const Type from_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, Matmul> matmuls_;
  std::vector<char> scratchpad_;  // shared by all products

 private:
  std::vector<float> scratch_;
};

// y (columns, rows) = x (rows, columns) transposed, plus bias (columns of x's rows) where given: y[c][r] = x[r][c] + bias[r].
void transpose_add(const float* x, int64_t rows, int64_t columns, const float* bias, float* y, int64_t y_stride) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    FourFloats b[4];
    for (int i = 0; i < 4; ++i) b[i] = FourFloats{} + (bias != nullptr ? bias[r + i] : 0.0F);
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      FourFloats v[4];
      for (int i = 0; i < 4; ++i) v[i] = *reinterpret_cast<const FourFloats*>(x + (r + i) * columns + c) + b[i];
      transpose_4x4(v);
      for (int i = 0; i < 4; ++i) *reinterpret_cast<FourFloats*>(y + (c + i) * y_stride + r) = v[i];
    }
    for (; c < columns; ++c) {
      for (int64_t i = 0; i < 4; ++i) y[c * y_stride + r + i] = x[(r + i) * columns + c] + b[i][0];
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) y[c * y_stride + r] = x[r * columns + c] + (bias != nullptr ? bias[r] : 0.0F);
  }
}

// The weight is the left factor, without packing: y^T = w x^T, in chunks of w's rows. Each chunk is transposed while it
// is in cache. Gradients use oneDNN's gemm. Faster than the primitives on some processors.
class OnednnGemmProducts final : public OnednnProducts {
 public:
  OnednnGemmProducts() : OnednnProducts(DDH_F32) {}

  void forward(LinearShape s, const void* x, const void* weight, const void* bias_row, Result result) override {
    // The transpose costs rows x out; packing the weight costs in x out, at about half the price per element.
    if (2 * s.rows >= s.in || s.rows == 0) return OnednnProducts::forward(s, x, weight, bias_row, result);
    const auto *w = static_cast<const float*>(weight), *bias = static_cast<const float*>(bias_row);
    auto* y = static_cast<float*>(result.data);
    const int64_t chunk = chunk_of(kTurnedNumel, s.rows);
    float* turned = scratch(std::min(chunk, s.out) * s.rows);  // (rows of w, s.rows)
    for (int64_t o = 0; o < s.out; o += chunk) {
      const int64_t n = std::min(chunk, s.out - o);
      get({3, {s.rows, s.in, n, s.x_stride, s.w_stride}, 0, DDH_F32}, [&] {
        return Matmul(engine_, {{n, s.in}, {s.ldw(), 1}}, {{s.in, s.rows}, {1, s.ldx()}}, {{n, s.rows}, {s.rows, 1}},
                      {from_, Type::f32}, false, false);
      }).run(stream_, w + o * s.ldw(), x, nullptr, turned, scratchpad_);
      transpose_add(turned, n, s.rows, bias != nullptr ? bias + o : nullptr, y + o, s.ldy());
    }
  }
  void backward_input(LinearShape s, const void* dy, const void* w, Result dx) override {
    if (s.rows == 0) return;
    gemm('N', 'N', s.rows, s.in, s.out, static_cast<const float*>(dy), s.ldy(), static_cast<const float*>(w), s.ldw(),
         static_cast<float*>(dx.data), s.ldx());
  }
  // The same chunks with and without `add`, so that the product has the same bits.
  void backward_weight(LinearShape s, const void* dy, const void* x, float* dw, bool add) override {
    if (s.rows == 0) return OnednnProducts::backward_weight(s, dy, x, dw, add);
    const int64_t chunk = chunk_of(kAddedNumel, s.in);
    float* product = add ? scratch(std::min(chunk, s.out) * s.in) : nullptr;
    for (int64_t o = 0; o < s.out; o += chunk) {
      const int64_t n = std::min(chunk, s.out - o);
      float* to = dw + o * s.ldw();
      gemm('T', 'N', n, s.in, s.rows, static_cast<const float*>(dy) + o, s.ldy(), static_cast<const float*>(x), s.ldx(),
           add ? product : to, add ? s.in : s.ldw());
      for (int64_t i = 0; add && i < n; ++i) {
        for (int64_t k = 0; k < s.in; ++k) to[i * s.ldw() + k] += product[i * s.in + k];
      }
    }
  }

 private:
  static constexpr int64_t kTurnedNumel = int64_t{1} << 18;  // 1 MiB: stays in the second-level cache
  static constexpr int64_t kAddedNumel = int64_t{1} << 22;   // 16 MiB
  static constexpr int64_t kLeastRows = 256;

  static int64_t chunk_of(int64_t numel, int64_t columns) { return std::max(kLeastRows, numel / columns / 64 * 64); }
  static void gemm(char ta, char tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                   int64_t ldb, float* c, int64_t ldc) {
    if (dnnl_sgemm(ta, tb, m, n, k, 1.0F, a, lda, b, ldb, 0.0F, c, ldc) != dnnl_success)
      throw std::runtime_error("oneDNN's gemm failed; set model.matmul=aten");
  }
};

}  // namespace

std::unique_ptr<Products> make_onednn_products(int32_t dtype) { return std::make_unique<OnednnProducts>(dtype); }
std::unique_ptr<Products> make_onednn_gemm_products() { return std::make_unique<OnednnGemmProducts>(); }

}  // namespace ops
