// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on the system's oneDNN. This file must not see LibTorch's include folder, which holds another dnnl.h.
#include <algorithm>
#include <array>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "products.hpp"

namespace ops {
namespace {

using Dims = dnnl::memory::dims;

// One product c = a b (+ bias) (+ c) with the memory that it is called on.
class Matmul {
 public:
  struct Operand {
    Dims dims, strides;
  };
  Matmul(const dnnl::engine& engine, const Operand& a, const Operand& b, const Operand& c, bool bias, bool add) {
    const auto desc = [](const Operand& o) {
      return dnnl::memory::desc(o.dims, dnnl::memory::data_type::f32, o.strides);
    };
    dnnl::primitive_attr attr;
    if (add) {
      dnnl::post_ops post;
      post.append_sum(1.0F);
      attr.set_post_ops(post);
    }
    const Operand bias_row{{1, c.dims[1]}, {c.dims[1], 1}};
    const auto d = bias ? dnnl::matmul::desc(desc(a), desc(b), desc(bias_row), desc(c))
                        : dnnl::matmul::desc(desc(a), desc(b), desc(c));
    const dnnl::matmul::primitive_desc pd(d, attr, engine);
    product_ = dnnl::matmul(pd);
    a_ = dnnl::memory(pd.src_desc(), engine, nullptr);
    b_ = dnnl::memory(pd.weights_desc(), engine, nullptr);
    c_ = dnnl::memory(pd.dst_desc(), engine, nullptr);
    if (bias) bias_ = dnnl::memory(pd.bias_desc(), engine, nullptr);
    args_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}};
    if (bias) args_.insert({DNNL_ARG_BIAS, bias_});
  }
  void run(dnnl::stream& stream, const float* a, const float* b, const float* bias, float* c) {
    a_.set_data_handle(const_cast<float*>(a));
    b_.set_data_handle(const_cast<float*>(b));
    c_.set_data_handle(c);
    if (bias != nullptr) bias_.set_data_handle(const_cast<float*>(bias));
    product_.execute(stream, args_);
    stream.wait();
  }

 private:
  dnnl::matmul product_;
  dnnl::memory a_, b_, c_, bias_;
  std::unordered_map<int, dnnl::memory> args_;
};

class OnednnProducts : public Products {
 public:
  void forward(LinearShape s, const float* x, const float* w, const float* bias, float* y) override {
    if (s.rows == 0) return;
    get({0, s.rows, s.in, s.out, bias != nullptr}, [&] {
      return Matmul(engine_, {{s.rows, s.in}, {s.in, 1}}, {{s.in, s.out}, {1, s.in}}, {{s.rows, s.out}, {s.out, 1}},
                    bias != nullptr, false);
    }).run(stream_, x, w, bias, y);
  }
  void backward_input(LinearShape s, const float* dy, const float* w, float* dx) override {
    if (s.rows == 0) return;
    get({1, s.rows, s.in, s.out, 0}, [&] {
      return Matmul(engine_, {{s.rows, s.out}, {s.out, 1}}, {{s.out, s.in}, {s.in, 1}}, {{s.rows, s.in}, {s.in, 1}},
                    false, false);
    }).run(stream_, dy, w, nullptr, dx);
  }
  void backward_weight(LinearShape s, const float* dy, const float* x, float* dw, bool add) override {
    if (s.rows == 0) {
      if (!add) std::fill(dw, dw + s.in * s.out, 0.0F);
      return;
    }
    get({2, s.rows, s.in, s.out, add}, [&] {
      return Matmul(engine_, {{s.out, s.rows}, {1, s.out}}, {{s.rows, s.in}, {s.in, 1}}, {{s.out, s.in}, {s.in, 1}},
                    false, add);
    }).run(stream_, dy, x, nullptr, dw);
  }

 protected:
  using Key = std::array<int64_t, 5>;  // which product, rows, in, out, bias or add
  template <class Make>
  Matmul& get(const Key& key, Make&& make) {
    const auto it = matmuls_.find(key);
    return it != matmuls_.end() ? it->second : matmuls_.emplace(key, make()).first->second;
  }
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, Matmul> matmuls_;
};

// y (columns, rows) = x (rows, columns) transposed, plus bias (columns of x's rows) where given: y[c][r] = x[r][c] + bias[r].
void transpose_add(const float* x, int64_t rows, int64_t columns, const float* bias, float* y, int64_t y_stride) {
  using Four = float __attribute__((vector_size(16), aligned(4), may_alias));
  using Pick = int32_t __attribute__((vector_size(16)));
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    Four b[4];
    for (int i = 0; i < 4; ++i) b[i] = Four{} + (bias != nullptr ? bias[r + i] : 0.0F);
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      Four v[4];
      for (int i = 0; i < 4; ++i) v[i] = *reinterpret_cast<const Four*>(x + (r + i) * columns + c) + b[i];
      const Four a0 = __builtin_shuffle(v[0], v[1], Pick{0, 4, 1, 5}),
                 a1 = __builtin_shuffle(v[0], v[1], Pick{2, 6, 3, 7});
      const Four a2 = __builtin_shuffle(v[2], v[3], Pick{0, 4, 1, 5}),
                 a3 = __builtin_shuffle(v[2], v[3], Pick{2, 6, 3, 7});
      float* to = y + c * y_stride + r;
      *reinterpret_cast<Four*>(to) = __builtin_shuffle(a0, a2, Pick{0, 1, 4, 5});
      *reinterpret_cast<Four*>(to + y_stride) = __builtin_shuffle(a0, a2, Pick{2, 3, 6, 7});
      *reinterpret_cast<Four*>(to + 2 * y_stride) = __builtin_shuffle(a1, a3, Pick{0, 1, 4, 5});
      *reinterpret_cast<Four*>(to + 3 * y_stride) = __builtin_shuffle(a1, a3, Pick{2, 3, 6, 7});
    }
    for (; c < columns; ++c) {
      for (int64_t i = 0; i < 4; ++i) y[c * y_stride + r + i] = x[(r + i) * columns + c] + b[i][0];
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) y[c * y_stride + r] = x[r * columns + c] + (bias != nullptr ? bias[r] : 0.0F);
  }
}

// The weight is the left factor, read as it lies: y^T = w x^T, chunk by chunk of w's rows, each turned while it is in
// cache. Gradients by oneDNN's gemm. Faster than the primitives on some processors.
class OnednnGemmProducts final : public OnednnProducts {
 public:
  void forward(LinearShape s, const float* x, const float* w, const float* bias, float* y) override {
    // Turning costs rows x out, packing the weight in x out.
    if (s.rows >= s.in || s.rows == 0) return OnednnProducts::forward(s, x, w, bias, y);
    const int64_t chunk = chunk_of(kTurnedNumel, s.rows);
    float* turned = scratch(std::min(chunk, s.out) * s.rows);  // (rows of w, s.rows)
    for (int64_t o = 0; o < s.out; o += chunk) {
      const int64_t n = std::min(chunk, s.out - o);
      get({3, s.rows, s.in, n, 0}, [&] {
        return Matmul(engine_, {{n, s.in}, {s.in, 1}}, {{s.in, s.rows}, {1, s.in}}, {{n, s.rows}, {s.rows, 1}}, false,
                      false);
      }).run(stream_, w + o * s.in, x, nullptr, turned);
      transpose_add(turned, n, s.rows, bias != nullptr ? bias + o : nullptr, y + o, s.out);
    }
  }
  void backward_input(LinearShape s, const float* dy, const float* w, float* dx) override {
    if (s.rows == 0) return;
    gemm('N', 'N', s.rows, s.in, s.out, dy, s.out, w, s.in, dx, s.in);
  }
  // The same chunks with and without `add`, so that the product has the same bits.
  void backward_weight(LinearShape s, const float* dy, const float* x, float* dw, bool add) override {
    if (s.rows == 0) return OnednnProducts::backward_weight(s, dy, x, dw, add);
    const int64_t chunk = chunk_of(kAddedNumel, s.in);
    float* product = add ? scratch(std::min(chunk, s.out) * s.in) : nullptr;
    for (int64_t o = 0; o < s.out; o += chunk) {
      const int64_t n = std::min(chunk, s.out - o);
      float* to = dw + o * s.in;
      gemm('T', 'N', n, s.in, s.rows, dy + o, s.out, x, s.in, add ? product : to, s.in);
      for (int64_t i = 0; add && i < n * s.in; ++i) to[i] += product[i];
    }
  }
  [[nodiscard]] uint64_t scratch_bytes() const override { return scratch_.size() * sizeof(float); }

 private:
  static constexpr int64_t kTurnedNumel = int64_t{1} << 18;  // 1 MiB: stays in the second-level cache
  static constexpr int64_t kAddedNumel = int64_t{1} << 22;   // 16 MiB
  static constexpr int64_t kLeastRows = 256;

  static int64_t chunk_of(int64_t numel, int64_t columns) { return std::max(kLeastRows, numel / columns / 64 * 64); }
  float* scratch(int64_t numel) {
    if (scratch_.size() < static_cast<size_t>(numel)) scratch_.resize(static_cast<size_t>(numel));
    return scratch_.data();
  }
  static void gemm(char ta, char tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                   int64_t ldb, float* c, int64_t ldc) {
    if (dnnl_sgemm(ta, tb, m, n, k, 1.0F, a, lda, b, ldb, 0.0F, c, ldc) != dnnl_success)
      throw std::runtime_error("oneDNN's gemm failed; set model.matmul=aten");
  }
  std::vector<float> scratch_;
};

}  // namespace

std::unique_ptr<Products> make_onednn_products() { return std::make_unique<OnednnProducts>(); }
std::unique_ptr<Products> make_onednn_gemm_products() { return std::make_unique<OnednnGemmProducts>(); }

}  // namespace ops
