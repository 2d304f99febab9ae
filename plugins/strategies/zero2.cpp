// SPDX-License-Identifier: Apache-2.0
//
// zero2: gradients and optimizer state are sharded; parameters are replicated (ZeRO stage 2).
//
//                      bytes on each of N ranks (terms: ddh/sdk/data_parallel.hpp)
// Parameters           4 P; once per machine if ranks share pages
// Gradients            4 P/N; in flight two buffers of the largest bucket or of blocks of it, or less
//                      (ddh/sdk/grads/grad_ring.hpp), and all gradients of tied parameters; with accumulation in
//                      micro_first order 4 P
// Optimizer state      8 P/N; on a tier with offload_optimizer.device, where only the frames are in memory
// Sent in a step       (R + 1) (N-1)/N 4 P: R reduce-scatters and an all-gather
// Collective calls     R reductions and one publish for each bucket
//
// Full gradients exist from a bucket's backward to its reduction; then only a segment's owner has its sum, and updates it.
// Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020.
#include "ddh/sdk/data_parallel.hpp"
#include "ddh/sdk/strategy_options.hpp"

namespace {

class Zero2 final : public ddh::DataParallel {
 public:
  using DataParallel::DataParallel;

 private:
  ddh::Grouping grouping() const override {
    return ddh::with_blocks(ddh::bucket_grouping(options, "reduce_bucket_bytes"), args(),
                            ddh::grad_buffer_bytes(options));
  }

  std::unique_ptr<ddh::OptimStore> optimizer() override { return ddh::optim_of(host, layout(), args(), options); }

  std::unique_ptr<ddh::ParamStore> parameters() override {
    return std::make_unique<ddh::PublishedParams>(host, layout(), args(), !options.flag("overlap_publish"));
  }

  std::unique_ptr<ddh::GradStore> gradients() override {
    return std::make_unique<ddh::GradRing>(layout(), args(), ddh::ring_options(options));
  }
};

constexpr auto kOptions =
    ddh::joined({ddh::kReduceBucket, ddh::kOverlapPublish}, ddh::kGradRingOptions, ddh::kOffloadOptimizer);
constexpr uint64_t kCaps = ddh::DataParallel::kCaps | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD | DDH_CAP_OFFLOADS;

}  // namespace

DDH_CXX_PLUGIN(Zero2, strategy, "zero2", "0.1.0", "gradients and optimizer state sharded (ZeRO stage 2)",
               ddh::kSchemaOf<kOptions>, ddh::DataParallel::kNeeds, kCaps, 0, ddh::DataParallel::kUnderstands, nullptr,
               ddh::DataParallel::kWants);
