// SPDX-License-Identifier: Apache-2.0
//
// Linear layers on the system's oneDNN. This file must not see LibTorch's include folder, which holds another dnnl.h.
#include <algorithm>
#include <array>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

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

class OnednnProducts final : public Products {
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

 private:
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

}  // namespace

std::unique_ptr<Products> make_onednn_products() { return std::make_unique<OnednnProducts>(); }

}  // namespace ops
