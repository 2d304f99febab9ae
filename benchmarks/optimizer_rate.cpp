// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/optimizer_rate.cpp: the time that optimizers of the form of adamw take for an element, on one core, with
// slots of any dtype and extent but DDH_SLOT_SIZED. The optimizers take turns. It is the processor's time of the thread, so
// that other processes disturb it less.
// Usage: optimizer_rate <elements> <library>... Prints the median of 9 runs of each, and its ratio to the first one's.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "../tests/unit/plugins/optimizers/optimizer_fixture.hpp"

namespace {

constexpr const char* kEntry = "ddh_plugin_entry_0";

const ddhost::test::Numbers kOptions = {{"lr", {3e-4}},           {"betas", {0.9, 0.999}}, {"eps", {1e-8}},
                                        {"weight_decay", {0.01}}, {"decay_groups", {1}},   {"bias_correction", {1}},
                                        {"min_numel", {4096}}};

ddh_plugin_entry_fn entry_of(const char* library) {
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) ddh::fail(DDH_NOT_FOUND, dlerror());
  return reinterpret_cast<ddh_plugin_entry_fn>(dlsym(opened, kEntry));
}

double thread_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

class Timed {
 public:
  Timed(const char* library, uint64_t numel)
      : optimizer_(entry_of(library), kOptions, {numel}),
        range_{0, 0, 0, 0, numel},
        master_(numel, 0.5F),
        grad_(numel) {
    for (uint64_t i = 0; i < numel; ++i)
      grad_[i] = static_cast<float>(static_cast<int>(i * 2654435761U >> 16 & 1023) - 512);
    for (uint32_t s = 0; s < optimizer_.slot_count(); ++s) {
      const ddh_slot_desc slot = optimizer_.slot(s);
      const uint64_t elements = slot.extent == DDH_SLOT_PER_BLOCK ? numel / DDH_GRID : numel;
      slots_.emplace_back(optimizer_.slot_used(s, 0) ? elements * ddh_dtype_bytes(slot.dtype) : 0);
      pointers_.push_back(slots_.back().empty() ? nullptr : slots_.back().data());
    }
  }

  // Nanoseconds for an element.
  double run() {
    const float* grads[] = {grad_.data()};
    ddh_optim_shard shard{};
    shard.struct_size = sizeof shard;
    shard.n_ranges = 1;
    shard.ranges = &range_;
    shard.master = master_.data();
    shard.n_grads = 1;
    shard.grads = grads;
    shard.slots = pointers_.data();
    shard.n_slots = static_cast<uint32_t>(pointers_.size());
    ddh_step_block block{};
    block.struct_size = sizeof block;
    block.step = ++step_;
    block.lr = 3e-4;
    block.inv_scale = 1e-3;
    block.clip_factor = 1;
    const double begin = thread_nanoseconds();
    optimizer_.update(shard, block, {step_});
    return (thread_nanoseconds() - begin) / static_cast<double>(range_.numel);
  }

 private:
  const ddhost::test::OptimizerFixture optimizer_;
  const ddh_range range_;
  std::vector<float> master_, grad_;
  std::vector<std::vector<char>> slots_;
  std::vector<void*> pointers_;
  int64_t step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: optimizer_rate <elements> <library>...\n");
    return 2;
  }
  try {
    std::vector<std::unique_ptr<Timed>> all;
    for (int i = 2; i < argc; ++i) all.push_back(std::make_unique<Timed>(argv[i], std::strtoull(argv[1], nullptr, 10)));
    std::vector<std::vector<double>> ns(all.size());
    for (int run = 0; run < 10; ++run)
      for (size_t i = 0; i < all.size(); ++i)
        if (const double time = all[i]->run(); run > 0) ns[i].push_back(time);
    for (std::vector<double>& times : ns) std::sort(times.begin(), times.end());
    for (size_t i = 0; i < all.size(); ++i)
      std::printf("%-40s %.3f ns/element (%.3f .. %.3f), %.2f of the first\n", argv[i + 2], ns[i][4], ns[i].front(),
                  ns[i].back(), ns[i][4] / ns[0][4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
