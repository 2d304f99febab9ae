// SPDX-License-Identifier: Apache-2.0
//
// ddp: data parallelism. Parameters, gradients and optimizer state are replicated.
//
//                      bytes on each of N ranks (terms: ddh/sdk/data_parallel.hpp)
// Parameters           4 P
// Gradients            4 P; 4 P/N more with accumulation in rank_first order
// Optimizer state      8 P
// Sent in a step       (R + 1) (N-1)/N 4 P: R reduce-scatters and an all-gather
// Collective calls     R reductions for each bucket; the last of them is an all-reduce
//
// Every rank sums one segment of each bucket, so sums equal those of sharded strategies. Then all make the same update.
// Source: Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020.
#include "ddh/sdk/data_parallel.hpp"
#include "ddh/sdk/strategy_options.hpp"

namespace {

class Ddp final : public ddh::DataParallel {
 public:
  using DataParallel::DataParallel;

 private:
  ddh::Grouping grouping() const override { return ddh::bucket_grouping(options, "bucket_bytes"); }

  std::unique_ptr<ddh::OptimStore> optimizer() override { return ddh::whole_optim(host, layout(), args()); }

  std::unique_ptr<ddh::ParamStore> parameters() override {
    return std::make_unique<ddh::ReplicatedParams>(host, layout(), args());
  }

  std::unique_ptr<ddh::GradStore> gradients() override {
    return std::make_unique<ddh::FullGrads>(layout(), args(), DDH_REDUCE_TO_ALL);
  }
};

constexpr std::array kOptions = {ddh::bucket_option("bucket_bytes")};
constexpr uint64_t kCaps = ddh::DataParallel::kCaps;

}  // namespace

DDH_CXX_PLUGIN(Ddp, strategy, "ddp", "0.1.0", "parameters, gradients and optimizer state replicated",
               ddh::kSchemaOf<kOptions>, ddh::DataParallel::kNeeds, kCaps, 0, ddh::DataParallel::kUnderstands, nullptr,
               ddh::DataParallel::kWants);
