// SPDX-License-Identifier: Apache-2.0
//
// zero1: optimizer state is sharded; parameters and gradients are replicated (ZeRO stage 1).
//
//                      bytes on each of N ranks (terms: ddh/sdk/data_parallel.hpp)
// Parameters           4 P; once per machine if ranks share pages
// Gradients            4 P; 4 P/N more with accumulation in rank_first order
// Optimizer state      8 P/N; on a tier with offload_optimizer.device, where only the frames are in memory
// Sent in a step       (R + 1) (N-1)/N 4 P: R reduce-scatters and an all-gather
// Collective calls     R reductions and one publish for each bucket
//
// Only the rank that owns a segment keeps the sum of its gradients, updates its parameters, and publishes these.
// Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020.
#include "ddh/sdk/data_parallel.hpp"
#include "ddh/sdk/strategy_options.hpp"

namespace {

class Zero1 final : public ddh::DataParallel {
 public:
  using DataParallel::DataParallel;

 private:
  ddh::Grouping grouping() const override { return ddh::bucket_grouping(options, "reduce_bucket_bytes"); }

  std::unique_ptr<ddh::OptimStore> optimizer() override { return ddh::optim_of(host, layout(), args(), options); }

  std::unique_ptr<ddh::ParamStore> parameters() override {
    return std::make_unique<ddh::PublishedParams>(host, layout(), args(), !options.flag("overlap_publish"));
  }

  std::unique_ptr<ddh::GradStore> gradients() override {
    return std::make_unique<ddh::FullGrads>(layout(), args(), /*to_all=*/0);
  }
};

constexpr auto kOptions = ddh::joined({ddh::kReduceBucket, ddh::kOverlapPublish}, ddh::kOffloadOptimizer);
constexpr uint64_t kCaps = ddh::DataParallel::kCaps | DDH_CAP_SHARDS_OPTIM | DDH_CAP_OFFLOADS;

}  // namespace

DDH_CXX_PLUGIN(Zero1, strategy, "zero1", "0.1.0", "optimizer state sharded, the rest replicated (ZeRO stage 1)",
               ddh::kSchemaOf<kOptions>, ddh::DataParallel::kNeeds, kCaps, 0, ddh::DataParallel::kUnderstands, nullptr,
               ddh::DataParallel::kWants);
