// SPDX-License-Identifier: Apache-2.0
//
// zero3: parameters, gradients and optimizer state are sharded (ZeRO stage 3).
//
//                      bytes on each of N ranks (terms: ddh/sdk/data_parallel.hpp)
// Parameters           4 P/N; in flight the units in use and those that are prefetched or kept
// Gradients            4 P/N; in flight two buffers of the largest unit or of blocks of it, or less
//                      (ddh/sdk/grads/grad_ring.hpp), and all gradients of tied parameters; with accumulation in
//                      micro_first order 4 P
// Optimizer state      8 P/N; on a tier with offload_optimizer.device, where only the frames are in memory
// Sent in a step       (2 A + R) (N-1)/N 4 P: A micro-batches gather every unit twice; shared pages need no gather
// Collective calls     R reductions and one publish for each unit
//
// A unit's full parameters exist only while it is in use, prefetched or kept, and its full gradients from its backward to their
// reduction. Each rank keeps and updates its segment, and the other ranks gather it.
// Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020.
#include "ddh/sdk/data_parallel.hpp"
#include "ddh/sdk/strategy_options.hpp"

namespace {

class Zero3 final : public ddh::DataParallel {
 public:
  using DataParallel::DataParallel;

 private:
  ddh::Grouping grouping() const override {
    return ddh::with_blocks(ddh::PrefetchPolicy(options).grouping(), args(), ddh::grad_buffer_bytes(options));
  }

  std::unique_ptr<ddh::OptimStore> optimizer() override { return ddh::optim_of(host, layout(), args(), options); }

  std::unique_ptr<ddh::ParamStore> parameters() override {
    return std::make_unique<ddh::PrefetchedParams>(host, layout(), args(), ddh::PrefetchPolicy(options));
  }

  std::unique_ptr<ddh::GradStore> gradients() override {
    return std::make_unique<ddh::GradRing>(layout(), args(), ddh::ring_options(options));
  }
};

constexpr auto kOptions = ddh::joined(ddh::kPrefetchOptions, ddh::kGradRingOptions, ddh::kOffloadOptimizer);
constexpr uint64_t kCaps =
    ddh::DataParallel::kCaps | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD | DDH_CAP_SHARDS_PARAM | DDH_CAP_OFFLOADS;

}  // namespace

DDH_CXX_PLUGIN(Zero3, strategy, "zero3", "0.1.0", "parameters, gradients and optimizer state sharded (ZeRO stage 3)",
               ddh::kSchemaOf<kOptions>, ddh::DataParallel::kNeeds, kCaps, 0, ddh::DataParallel::kUnderstands, nullptr,
               ddh::DataParallel::kWants);
