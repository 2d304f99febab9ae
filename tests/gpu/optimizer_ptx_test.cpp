// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the optimizers as nvcc makes them give the bits that g++ gives with the same source, their arguments
// have the size that the plugin passes, and a kernel with fused products and sums is found.
// These are forms that kernels have; optimizers_test.cpp compares every optimizer, so a new one need not be added here.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "adagrad.hpp"
#include "adam.hpp"
#include "ddh/sdk/kernels/dropout.hpp"
#include "gpu/numbers.hpp"
#include "lamb.hpp"
#include "lion.hpp"
#include "muon.hpp"
#include "newton_schulz.hpp"
#include "newton_schulz_kernels.hpp"
#include "ptx/program.hpp"
#include "sgd.hpp"

using namespace standin::ptx;
using ddhost::test::numbers;
using ddhost::test::small_numbers;

namespace {

constexpr uint64_t kSizes[] = {1, 63, 64, 65, 100003};
constexpr uint32_t kBlocks = 3, kThreads = 32;

const Module& module_of(const std::string& path) {
  static std::map<std::string, Module> parsed;
  const auto found = parsed.find(path);
  if (found != parsed.end()) return found->second;
  std::ifstream in(path);
  INFO(path);
  REQUIRE(in);
  std::ostringstream text;
  text << in.rdbuf();
  return parsed.emplace(path, parse(text.str())).first->second;
}
std::string shipped(const char* name) { return std::string(DDHOST_BUILD_DIR) + "/plugins/optimizers/" + name + ".ptx"; }

template <class Kernel>
void run_ptx(const std::string& image, const char* name, const Kernel& args) {
  const standin::ptx::Kernel& kernel = module_of(image).kernels.at(name);
  INFO(name);
  REQUIRE(kernel.param_bytes == sizeof args);
  execute(kernel, &args, kBlocks, kThreads,
          [](uint64_t address, uint64_t, bool) { return reinterpret_cast<void*>(address); });
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    if (!both_nan && std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  }
  return true;
}

// The memory of a range: parameters, two slots, a copy in bf16, and two sources of gradients.
struct Memory {
  explicit Memory(uint64_t n, bool finite)
      : param(numel(n, 1, finite)),
        first(numel(n, 2, finite)),
        second(numel(n, 3, finite)),
        shown{param, param},
        lowp(n),
        grads{numel(n, 4, finite), numel(n, 5, finite)},
        limit(finite ? 0.25F : 1e30F) {}  // of sums times 0.3: many are beyond
  std::vector<float> param, first, second, shown[2];
  std::vector<uint16_t> lowp;
  std::vector<float> grads[2];
  float limit;

  ddh::ElementRange range() {
    ddh::ElementRange out{};
    out.param = param.data();
    out.first = first.data();
    out.second = second.data();
    out.lowp = lowp.data();
    out.numel = param.size();
    out.lowp_dtype = DDH_BF16;
    out.n_grads = 2;
    out.scale = 0.3F;
    out.limit = limit;
    out.grads[0] = grads[0].data();
    out.grads[1] = grads[1].data();
    return out;
  }
  [[nodiscard]] bool equals(const Memory& other) const {
    return same(halves(), other.halves()) && same(param, other.param) && same(first, other.first) &&
           same(second, other.second) && same(shown[0], other.shown[0]) && same(shown[1], other.shown[1]);
  }

 private:
  [[nodiscard]] std::vector<float> halves() const {
    std::vector<float> out(lowp.size());
    for (size_t i = 0; i < lowp.size(); ++i) out[i] = ddh::Bf16::to_f32(lowp[i]);
    return out;
  }
  static std::vector<float> numel(uint64_t n, uint64_t seed, bool finite) {
    return finite ? small_numbers(n, seed) : numbers(n, seed, true);
  }
};

// Whether PTX and the CPU give the same, with `kernel_of(memory)` as the kernel.
template <class KernelOf>
bool gives_the_same(const std::string& image, const char* name, KernelOf kernel_of, uint64_t n, bool finite) {
  Memory ptx(n, finite), cpu(n, finite);
  run_ptx(image, name, kernel_of(ptx));
  ddh::run_grid(kernel_of(cpu), kBlocks, kThreads);
  return ptx.equals(cpu);
}
template <class KernelOf>
void check_kernel(const char* image, const char* name, KernelOf kernel_of) {
  for (const uint64_t n : kSizes)
    for (const bool finite : {true, false}) {
      if (finite && n > 1000) continue;
      INFO(name << ", " << n << " elements, " << (finite ? "in [-1, 1)" : "of all magnitudes"));
      CHECK(gives_the_same(shipped(image), name, kernel_of, n, finite));
    }
}
template <class Formula>
void check_formula(const char* image, const Formula& formula) {
  check_kernel(image, Formula::kKernel, [&](Memory& m) { return ddh::ElementKernel<Formula>{m.range(), formula}; });
}

adam::Formula<adam::Decay::decoupled> adamw_formula() {
  return adam::formula_of<adam::Decay::decoupled>({{0.9, 0.999}, 1e-8}, {1e-3, 3, 0.01});
}

}  // namespace

TEST_CASE("the kernels of element-wise optimizers have the bits of the CPU as PTX", "[ptx]") {
  check_formula("adam", adamw_formula());
  check_formula("muon", adamw_formula());
  check_formula("adam", adam::formula_of<adam::Decay::l2>({{0.9, 0.999}, 1e-8}, {1e-3, 3, 0.01}));
  check_formula("lion", lion::Formula{0.99F, 0.1F, 0.01F, 1e-3F});
  check_formula("sgd", sgd::Plain{0.1F, 0.01F});
  check_formula("sgd", sgd::Momentum<false, true>{0.1F, 0.01F, 0.9F, 1.0F});
  check_formula("sgd", sgd::Momentum<false, false>{0.1F, 0.01F, 0.9F, 1.0F});
  check_formula("sgd", sgd::Momentum<true, true>{0.1F, 0.01F, 0.9F, 1.0F});
  check_formula("sgd", sgd::Momentum<true, false>{0.1F, 0.01F, 0.9F, 1.0F});
  check_formula("adagrad", adagrad::Formula<true>{0.1F, 0.0F, 1e-10F, 0.01F});
  check_formula("adagrad", adagrad::Formula<false>{0.1F, 0.0F, 1e-10F, 0.01F});
}

TEST_CASE("the two passes of lamb and muon have the bits of the CPU as PTX", "[ptx]") {
  const lamb::Scalars s{0.1F, 0.999F, 0.1F, 0.001F, 1.2F, 0.9F, 1e-8F, 0.01F};
  check_kernel("lamb", "lamb_prepare", [&](Memory& m) {
    return ddh::ShowKernel<lamb::Prepare>{m.range(), {s}, {m.shown[0].data(), m.shown[1].data()}};
  });
  check_kernel("lamb", "lamb_update", [&](Memory& m) { return ddh::MoveKernel<lamb::Update>{m.range(), {s}}; });
  check_kernel("muon", "muon_momentum", [&](Memory& m) {
    return ddh::ShowKernel<muon::Momentum>{m.range(), {0.05F, 0.05F}, {m.shown[0].data(), nullptr}};
  });
  check_kernel("muon", "muon_move", [&](Memory& m) { return ddh::MoveKernel<muon::Move>{m.range(), {0.99F, 0.02F}}; });
}

TEST_CASE("the Newton-Schulz iteration by kernels has the bits of the CPU's, as PTX and as compiled here", "[ptx]") {
  const newton_schulz::Coefficients c{3.4445F, -4.7750F, 2.0315F};
  for (const newton_schulz::Shape shape :
       {newton_schulz::Shape{1, 1}, {3, 5}, {17, 40}, {40, 17}, {4, 300}, {33, 33}, {2, 9000}}) {
    INFO(shape.rows << " x " << shape.columns);
    const uint64_t numel = shape.rows * shape.columns;
    const uint64_t scratch = newton_schulz::scratch_numel(shape.small(), shape.large());
    std::vector<float> expected = small_numbers(numel, 7), here = expected, ptx = expected;
    const auto poison = std::numeric_limits<float>::quiet_NaN();
    struct alignas(64) Line {
      float values[16];
    };
    std::vector<Line> lines(scratch / 16 + 1);
    float* const memory = lines.front().values;
    newton_schulz::orthogonalize(expected.data(), shape, c, 2, 1e-7, memory);
    std::fill_n(memory, scratch, poison);
    newton_schulz::orthogonalize_by_kernels(here.data(), shape, c, 2, 1e-7, memory,
                                            [](const auto& k) { ddh::run_grid(k, kBlocks, kThreads); });
    CHECK(same(here, expected));
    std::fill_n(memory, scratch, poison);
    newton_schulz::orthogonalize_by_kernels(ptx.data(), shape, c, 2, 1e-7, memory,
                                            [](const auto& k) { run_ptx(shipped("muon"), k.kKernel, k); });
    CHECK(same(ptx, expected));
  }
}

TEST_CASE("a kernel that was compiled with fused products and sums is found", "[ptx]") {
  const auto adamw = [](Memory& m) {
    return ddh::ElementKernel<decltype(adamw_formula())>{m.range(), adamw_formula()};
  };
  CHECK(!gives_the_same(FUSED_PTX, "adam_decoupled", adamw, 65, true));
  CHECK(gives_the_same(shipped("adam"), "adam_decoupled", adamw, 65, true));
}

TEST_CASE("the kernel of dropout gives the bits of the CPU, for elements from any place of a tensor", "[ptx]") {
  REQUIRE(ddh::dropout_image() != nullptr);
  const Module module = parse(ddh::dropout_image());
  const standin::ptx::Kernel& kernel = module.kernels.at(ddh::DropElements::kName);
  const ddh::Dropout dropout(0.2, {.seed = 5, .step = 3, .global_micro_batch = 2, .position = 7, .site = 1});
  for (const uint64_t n : kSizes) {
    for (const uint64_t first : {uint64_t{0}, uint64_t{1} << 40}) {
      INFO(n << " elements from " << first);
      std::vector<float> by_kernel = numbers(n, 1, true), by_host = by_kernel;
      const ddh::DropElements args = dropout.kernel(by_kernel.data(), first, n);
      REQUIRE(kernel.param_bytes == sizeof args);
      execute(kernel, &args, kBlocks, kThreads,
              [](uint64_t address, uint64_t, bool) { return reinterpret_cast<void*>(address); });
      dropout.apply(by_host.data(), first, n);
      CHECK(same(by_kernel, by_host));
      if (n > 1000) CHECK(std::count(by_host.begin(), by_host.end(), 0.0F) > static_cast<std::ptrdiff_t>(n / 6));
    }
  }
}
