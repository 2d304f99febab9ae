// SPDX-License-Identifier: Apache-2.0
//
// Kernels over rows of transformers on processors: layer norms, GELU, softmax, sums of columns, against formulas in fp64; and
// that these and the kernels of kernels_test.cpp have the same bits with AVX2 and AVX-512. attention_test.cpp has attention's.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../../models/ops/batch_norm.hpp"
#include "../../models/ops/depthwise.hpp"
#include "../../models/ops/gelu.hpp"
#include "../../models/ops/language_layers.hpp"
#include "../../models/ops/linear.hpp"
#include "../../models/ops/softmax_kernels.hpp"
#include "check.hpp"
#include "fixtures/harness/golden_fill.hpp"

using namespace ddhost::test;

namespace {

at::Tensor drawn(const std::string& name, at::IntArrayRef sizes, double shift = 0) {
  at::Tensor out = at::empty(sizes, at::kFloat);
  const std::vector<float> values = golden_uni(name, static_cast<size_t>(out.numel()), 1.0);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<float>());
  return out.add_(shift);
}

// The largest distance of an element.
double farthest(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return a.sizes() == b.sizes() ? 0 : HUGE_VAL;
  return a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item<double>();
}

at::Tensor trained(const at::Tensor& x) { return x.to(at::kDouble).set_requires_grad(true); }

// A layer norm with memory for its gradients.
struct Norm {
  at::Tensor weight, bias, d_weight, d_bias;
  ddh_param_view of_weight{}, of_bias{};
  Norm(int64_t width, bool has_bias)
      : weight(drawn("weight", {width}, 1.5)),
        bias(drawn("bias", {width})),
        d_weight(at::zeros({width})),
        d_bias(at::zeros({width})),
        has_bias_(has_bias) {
    fill(of_weight, weight, d_weight);
    fill(of_bias, bias, d_bias);
  }
  Norm(const Norm&) = delete;
  Norm& operator=(const Norm&) = delete;
  [[nodiscard]] ops::Affine layer() const { return {of_weight, has_bias_ ? &of_bias : nullptr}; }

 private:
  static void fill(ddh_param_view& view, const at::Tensor& values, const at::Tensor& gradient) {
    view.data = values.mutable_data_ptr();
    view.dtype = DDH_F32;
    view.numel = static_cast<uint64_t>(values.numel());
    view.grad = gradient.mutable_data_ptr();
    view.grad_mode = DDH_GRAD_WRITE;
  }
  bool has_bias_;
};

}  // namespace

TEST_CASE("a layer norm has the values and gradients of LibTorch's in fp64") {
  const int64_t rows = GENERATE(0, 1, 5, 130), width = GENERATE(1, 63, 64, 65, 768);
  const bool has_bias = GENERATE(true, false), adds = GENERATE(true, false);
  const double shift = GENERATE(0.0, 20.0);
  CAPTURE(rows, width, has_bias, adds, shift);
  const at::Tensor x = drawn("x", {rows, width}, shift), dy = drawn("dy", {rows, width}),
                   past = drawn("past", {rows, width});
  const Norm norm(width, has_bias);
  const auto [y, mean, rstd] = ops::layer_norm(norm.layer(), x, 1e-5, at::kFloat);
  const at::Tensor dx = ops::layer_norm_backward(norm.layer(), dy, x, mean, rstd, adds ? past : at::Tensor());

  const at::Tensor x_64 = trained(x), w_64 = trained(norm.weight), b_64 = trained(norm.bias);
  const at::Tensor expected = at::layer_norm(x_64, {width}, w_64, has_bias ? std::optional(b_64) : std::nullopt, 1e-5);
  expected.backward(dy.to(at::kDouble));
  const double near = shift != 0 ? 2e-5 : 2e-6;  // a mean of many deviations takes digits
  CHECK(farthest(y, expected) < near);
  CHECK(farthest(dx, adds ? x_64.grad().add(past) : x_64.grad()) < 5 * near);
  CHECK(farthest(norm.d_weight, w_64.grad()) < static_cast<double>(rows + 1) * near);
  if (has_bias) CHECK(farthest(norm.d_bias, b_64.grad()) < 1e-5);
  const auto [narrow, mean_again, rstd_again] = ops::layer_norm(norm.layer(), x, 1e-5, at::kBFloat16);
  CHECK(narrow.equal(y.to(at::kBFloat16)));  // rounded as it is stored
  CHECK(mean_again.equal(mean));
  const auto [half, mean_of_half, rstd_of_half] = ops::layer_norm(norm.layer(), x, 1e-5, at::kHalf);
  CHECK(half.equal(y.to(at::kHalf)));
}

TEST_CASE("a layer norm of equal values is its bias, and a NaN stays in its row") {
  const Norm norm(65, true);
  at::Tensor x = at::zeros({3, 65}).add(7);
  const auto [y, mean, rstd] = ops::layer_norm(norm.layer(), x, 1e-12, at::kFloat);
  CHECK(y.equal(norm.bias.expand({3, 65})));
  const at::Tensor g = norm.weight.to(at::kDouble).mul(7);  // of the normed values; x minus its mean is 0
  const at::Tensor expected = g.sub(g.mean()).mul(rstd.to(at::kDouble)).expand({3, 65});
  CHECK(farthest(ops::layer_norm_backward(norm.layer(), x, x, mean, rstd), expected) < 1e-6 * 1e7);  // rstd is 1e6
  x.mutable_data_ptr<float>()[65 + 64] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor odd = std::get<0>(ops::layer_norm(norm.layer(), x, 1e-5, at::kFloat));
  CHECK(odd[0].isnan().sum().item<int64_t>() == 0);
  CHECK(odd[1].isnan().all().item<bool>());
  CHECK(odd[2].isnan().sum().item<int64_t>() == 0);
}

TEST_CASE("GELU and its gradient are those of LibTorch in fp64, over the whole range") {
  const ops::Gelu form = GENERATE(ops::Gelu::kErf, ops::Gelu::kTanh);
  const std::string name = form == ops::Gelu::kTanh ? "tanh" : "none";
  CAPTURE(name);
  const at::Tensor x = at::linspace(-14, 14, 100'003, at::kFloat), x_64 = trained(x),
                   dy = at::zeros({100'003}).add(1.5);
  const at::Tensor expected = at::gelu(x_64, name);
  expected.backward(dy.to(at::kDouble));
  const auto near = [&](const at::Tensor& ours, const at::Tensor& theirs, double part) {
    const at::Tensor most = theirs.abs().add(0.2).mul(part);  // relative, and near 0 absolute
    return ours.to(at::kDouble).sub(theirs).abs().le(most).all().item<bool>();
  };
  CHECK(near(ops::gelu(form, x), expected.detach(), 5e-7));
  CHECK(near(ops::gelu_backward(form, dy, x), x_64.grad(), 1e-6));
  // Also in relation to small values, for which LibTorch's 1 + erf and 1 + tanh lose digits in fp64 too.
  const at::Tensor below = at::linspace(form == ops::Gelu::kTanh ? -5 : -12, -0.5, 10'001, at::kFloat);
  const at::Tensor z = below.to(at::kDouble), u = z.pow(3).mul(0.044715).add(z).mul(1.5957691216057308);
  const at::Tensor exact = z.mul(form == ops::Gelu::kTanh ? u.sigmoid() : z.mul(-std::sqrt(0.5)).erfc().mul(0.5));
  CHECK(ops::gelu(form, below).to(at::kDouble).sub(exact).div(exact).abs().max().item<double>() < 6e-6);
  // 16 bits: computed in fp32, rounded once.
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor low = x.to(type);
    CHECK(ops::gelu(form, low).equal(ops::gelu(form, low.to(at::kFloat)).to(type)));
    const at::Tensor d_low = dy.to(type);
    CHECK(ops::gelu_backward(form, d_low, low)
              .equal(ops::gelu_backward(form, d_low.to(at::kFloat), low.to(at::kFloat)).to(type)));
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  at::Tensor odd = at::zeros({4});
  auto* const at = odd.mutable_data_ptr<float>();
  at[0] = kInfinity, at[1] = std::numeric_limits<float>::quiet_NaN(), at[2] = 1e30F, at[3] = -1e30F;
  const at::Tensor y = ops::gelu(form, odd);
  CHECK(y[0].item<float>() == kInfinity);
  CHECK(std::isnan(y[1].item<float>()));
  CHECK(y[2].item<float>() == 1e30F);
  CHECK(y[3].item<float>() == 0);
  const at::Tensor slopes = ops::gelu_backward(form, at::zeros({4}).add(1), odd);
  CHECK(std::isnan(slopes[1].item<float>()));
  CHECK(slopes[2].item<float>() == 1);
  CHECK(slopes[3].item<float>() == 0);
}

TEST_CASE("rows of a softmax and their logarithms are those in fp64") {
  const int64_t width = GENERATE(1, 64, 65, 5000, 50'304);
  const double shift = GENERATE(0.0, -90.0, 1000.0);
  CAPTURE(width, shift);
  const at::Tensor x = drawn("x", {3, width}).mul(8).add(shift);
  at::Tensor sums = at::empty({3}, at::kFloat), y = at::empty({3, width}, at::kFloat);
  ops::log_sum_exp_rows(x.const_data_ptr<float>(), 3, width, sums.mutable_data_ptr<float>());
  ops::softmax_rows(x.const_data_ptr<float>(), sums.const_data_ptr<float>(), 3, width, 0.5F,
                    y.mutable_data_ptr<float>());
  const at::Tensor expected = at::logsumexp(x.to(at::kDouble), 1);
  CHECK(farthest(sums, expected) < 3e-6 * (1 + std::abs(shift)));
  const at::Tensor rounded = x.to(at::kDouble).sub(sums.to(at::kDouble).unsqueeze(1)).exp().mul(0.5);
  CHECK(farthest(y, rounded) < 1e-6 * (1 + std::abs(shift)));
  for (const int64_t place : {int64_t{0}, width / 2, width - 1}) {
    at::Tensor odd = x.clone();
    odd.mutable_data_ptr<float>()[place] = std::numeric_limits<float>::quiet_NaN();
    ops::log_sum_exp_rows(odd.const_data_ptr<float>(), 3, width, sums.mutable_data_ptr<float>());
    CHECK(sums.isnan().sum().item<int64_t>() == 1);
  }
  at::Tensor masked = x.clone();
  masked.mutable_data_ptr<float>()[0] = -std::numeric_limits<float>::infinity();
  ops::log_sum_exp_rows(masked.const_data_ptr<float>(), 3, width, sums.mutable_data_ptr<float>());
  CHECK(sums.isnan().sum().item<int64_t>() == (width == 1 ? 1 : 0));  // a row of nothing else has no value
}

TEST_CASE("sums of columns are those in fp64, and of no row zero") {
  const int64_t rows = GENERATE(0, 1, 64, 65, 1000), columns = GENERATE(1, 127, 128, 300);
  CAPTURE(rows, columns);
  const at::Tensor x = drawn("x", {rows, columns});
  CHECK(farthest(ops::column_sums(x), x.to(at::kDouble).sum(0)) < 1e-6 * static_cast<double>(1 + rows));
}

namespace {

// A hash (FNV-1a) of all bytes.
class Digest {
 public:
  void add(const at::Tensor& x) {
    const at::Tensor whole = x.detach().contiguous();
    const auto* const bytes = static_cast<const unsigned char*>(whole.const_data_ptr());
    for (size_t i = 0; i < whole.nbytes(); ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001b3u;
  }
  [[nodiscard]] uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

void add_layer_norm(Digest& digest) {
  for (const int64_t width : {37, 128, 200}) {
    const at::Tensor x = drawn("x", {70, width}, 0.3), dy = drawn("dy", {70, width});
    const Norm norm(width, true);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const auto [y, mean, rstd] = ops::layer_norm(norm.layer(), x, 1e-5, type);
      digest.add(y), digest.add(mean), digest.add(rstd);
      digest.add(ops::layer_norm_backward(norm.layer(), dy, x, mean, rstd, dy));
      digest.add(norm.d_weight), digest.add(norm.d_bias);
    }
  }
}

void add_elements_and_softmax(Digest& digest) {
  const at::Tensor x = drawn("x", {9, 333}).mul(6), dy = drawn("dy", {9, 333});
  for (const ops::Gelu form : {ops::Gelu::kErf, ops::Gelu::kTanh}) {
    digest.add(ops::gelu(form, x)), digest.add(ops::gelu_backward(form, dy, x));
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const at::Tensor low = x.to(type);
      digest.add(ops::gelu(form, low)), digest.add(ops::gelu_backward(form, dy.to(type), low));
    }
  }
  const at::Tensor logits = drawn("logits", {3, 9001}).mul(50);  // longer than a run; exponents below those of fp32
  at::Tensor sums = at::empty({3}, at::kFloat), y = at::empty_like(logits);
  ops::log_sum_exp_rows(logits.const_data_ptr<float>(), 3, 9001, sums.mutable_data_ptr<float>());
  ops::softmax_rows(logits.const_data_ptr<float>(), sums.const_data_ptr<float>(), 3, 9001, 0.7F,
                    y.mutable_data_ptr<float>());
  digest.add(sums), digest.add(y);
}

// With its gradients.
void add_result(Digest& digest, const at::Tensor& y, const std::vector<at::Tensor>& leaves) {
  digest.add(y);
  y.backward(drawn("dy", y.sizes()).to(y.scalar_type()));
  for (const at::Tensor& leaf : leaves) digest.add(leaf.grad());
}

void add_images(Digest& digest) {
  const auto leaf = [](const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor in = drawn("x", {3, 37, 9, 9}).to(type).contiguous(at::MemoryFormat::ChannelsLast);
    for (const auto kind : {ops::Activation::kNone, ops::Activation::kRelu, ops::Activation::kRelu6,
                            ops::Activation::kHardSwish, ops::Activation::kSilu}) {
      const at::Tensor x = leaf(in), w = leaf(drawn("w", {37}, 1.5)), b = leaf(drawn("b", {37}));
      add_result(digest, ops::batch_norm(x, w, b, 1e-5, kind).y, {x, w, b});
    }
    for (const int64_t stride : {1, 2}) {
      const at::Tensor x = leaf(in), w = leaf(drawn("w", {37, 1, 3, 3}).to(type));
      add_result(digest, ops::depthwise(x, w, stride, 1), {x, w});
    }
  }
}

void add_language(Digest& digest) {
  const at::Tensor x = drawn("x", {2, 5, 3, 22}).set_requires_grad(true), w = drawn("w", {22}, 1.5);
  add_result(digest, ops::autograd::rms_norm(x, w, 1e-6), {x});
  const at::Tensor z = drawn("z", {2, 5, 3, 22}).set_requires_grad(true), angles = drawn("angle", {5, 22});
  add_result(digest, ops::autograd::rotated(z, angles.cos(), angles.sin()), {z});
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer{};
  std::string text;
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;) text.append(buffer.data(), n);
  return text;
}

}  // namespace

// The case below runs it in processes of its own, because a process chooses its kernels once.
TEST_CASE("prints a hash of what kernels of models give", "[.][digest]") {
  Digest digest;
  add_layer_norm(digest);
  add_elements_and_softmax(digest);
  add_images(digest);
  add_language(digest);
  std::printf("digest %016lx\n", static_cast<unsigned long>(digest.value()));
}

TEST_CASE("kernels of models have the same bits with AVX2 and AVX-512") {
  if (ddh::simd_level() != ddh::SimdLevel::avx512) {
    WARN("skipped: this processor has no AVX-512");
    return;
  }
  const auto digest_with = [](const std::string& variables) {
    const std::string text = output_of(variables + " /proc/$PPID/exe '[digest]' 2>&1");
    const size_t at = text.find("digest ");
    INFO(text);
    REQUIRE(at != std::string::npos);
    return text.substr(at, 23);
  };
  const std::string widest = digest_with("env -u DDHOST_CPU");
  CHECK(digest_with("DDHOST_CPU=avx2") == widest);
}
