// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/gpu_rates.cpp: rates of the device cuda. AdamW (28 bytes per element: it reads and writes parameter and two
// moments, and reads a gradient) beside a copy in memory of the GPU, and the exact sum of squares beside the time in which
// a copy reads as much.
// Usage: gpu_rates FOLDER [DRIVER] [NUMEL]. FOLDER holds plugins/cuda.so. Prints the median of 9 runs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "../plugins/optimizers/adam.hpp"
#include "gpu/cuda_fixture.hpp"

extern "C" const char adam_ptx[];

namespace {

using ddhost::test::CudaPlugin;

// An open GPU.
struct Gpu {
  explicit Gpu(const CudaPlugin& plugin) : inst(plugin.inst()), table(*plugin.table) {
    ddh::call(table.open, inst, 0, &context);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() { table.close(inst, context); }

  template <class T = float>
  T* allocate(uint64_t numel) const {  // zeros; freed with the process
    const ddh_alloc_args args{sizeof args,    DDH_TAG_COMM,   numel * sizeof(T),
                              DDH_MEM_DEVICE, DDH_ALLOC_ZERO, "gpu_rates"};
    void* out = nullptr;
    ddh::call(table.allocate, context, &args, &out);
    return static_cast<T*>(out);
  }
  // Normal numbers: zeros take shorter ways, and so does memory that the GPU's cache can compress.
  void fill(float* out, uint64_t numel) const {
    std::vector<float> some(std::min(numel, uint64_t{1} << 22));
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& value : some) value = normal(random);
    for (uint64_t begin = 0; begin < numel; begin += some.size())
      ddh::call(table.copy->copy, context, out + begin, DDH_MEM_DEVICE, some.data(), DDH_MEM_HOST,
                std::min<uint64_t>(some.size(), numel - begin) * sizeof(float), nullptr);
    ddh::call(table.stream->synchronize, context, nullptr);
  }
  // ms of body(), which queues work on the default stream.
  template <class Body>
  double median_ms(Body&& body) const {
    const auto wait = [&] { ddh::call(table.stream->synchronize, context, nullptr); };
    std::vector<double> ms;
    for (int run = 0; run < 10; ++run) {
      wait();
      const auto begin = std::chrono::steady_clock::now();
      body();
      wait();
      ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(ms.begin() + 1, ms.end());  // the first one loads the kernel
    return ms[5];
  }

  ddh_inst* const inst;
  const ddh_device_api& table;
  void* context = nullptr;
};

void measure(const Gpu& gpu, uint64_t numel) {
  const auto n = static_cast<double>(numel);
  float *const param = gpu.allocate(numel), *const first = gpu.allocate(numel), *const second = gpu.allocate(numel),
               *const grad = gpu.allocate(numel);
  for (float* values : {param, first, grad}) gpu.fill(values, numel);
  const double copy_ms = gpu.median_ms([&] {
    ddh::call(gpu.table.copy->copy, gpu.context, param, DDH_MEM_DEVICE, grad, DDH_MEM_DEVICE, numel * sizeof(float),
              nullptr);
  });
  const double copy_rate = 8 * n / copy_ms;  // bytes per ms: each element is read and written
  std::printf("copy in memory of the GPU: %.1f GB/s\n", copy_rate / 1e6);

  using Formula = adam::Formula<adam::Decay::decoupled>;
  ddh::ElementKernel<Formula> adamw{{},
                                    adam::formula_of<adam::Decay::decoupled>({{0.9, 0.999}, 1e-8}, {1e-3, 3, 0.01})};
  adamw.range.param = param;
  adamw.range.first = first;
  adamw.range.second = second;
  adamw.range.numel = numel;
  adamw.range.n_grads = 1;
  adamw.range.scale = 1;
  adamw.range.grads[0] = grad;
  ddh_kernel* kernel = nullptr;
  ddh::call(gpu.table.kernels->find, gpu.context, adam_ptx, Formula::kKernel, sizeof adamw, &kernel);
  const ddh::Grid grid(numel);
  const double adamw_ms = gpu.median_ms([&] {
    ddh::call(gpu.table.kernels->launch, gpu.context, kernel, grid.blocks, grid.threads, &adamw, nullptr, 0U, nullptr);
  });
  const double of_copy = 28 * n / adamw_ms / copy_rate;
  std::printf("AdamW: %.1f GB/s, %.2f of the copy%s\n", 28 * n / adamw_ms / 1e6, of_copy,
              of_copy < 0.88 ? " (below 0.88)" : "");

  auto* const words = gpu.allocate<uint64_t>(DDH_SQUARES_WORDS);
  const double norm_ms =
      gpu.median_ms([&] { ddh::call(gpu.table.flatops->exact_squares, gpu.context, grad, numel, words, nullptr); });
  const double reads = norm_ms / (4 * n / copy_rate);
  std::printf("exact sum of squares: %.2f times one read%s\n", reads, reads > 1.1 ? " (above 1.1)" : "");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) ddh::fail(DDH_INVALID_ARGUMENT, "usage: gpu_rates FOLDER [DRIVER] [NUMEL]");
    const CudaPlugin plugin(argc > 2 ? argv[2] : "libcuda.so.1", false, argv[1]);
    const Gpu gpu(plugin);
    measure(gpu, argc > 3 ? std::strtoull(argv[3], nullptr, 10) : uint64_t{1} << 26);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_rates: %s\n", e.what());
    return 1;
  }
}
