// SPDX-License-Identifier: Apache-2.0
//
// zero3_offload: zero3 with the optimizer state, and optionally the parameters, on another tier: pinned memory of the
// host (cpu) or a file on a fast disk (nvme).
//
// Each of N ranks owns      as zero3: 1/N of parameters, gradients and optimizer state
// Bytes on the device       fp32 AdamW: 4 P/N of gradients, 4 P/N of parameters, (1 - r) 8 P/N of optimizer state (r: `ratio`),
//                           the units in flight as in zero3, and the frames: buffer_count * (offloaded arrays) *
//                           buffer_bytes, at most offload_memory_bytes; with nvme they are pinned memory.
//                           With offload_param a buffer for each open unit replaces the 4 P/N of parameters, because
//                           shared pages would stay allocated; with nvme and a GPU also a pinned one for each read. For an
//                           optimizer of whole parameters a frame holds this rank's part of a unit.
// Bytes on the tier         r 8 P/N, and with offload_param 4 P/N: with cpu in pinned memory (tags optim and param), with
//                           nvme in one file (no memory)
// Moved per rank and step   between ranks as zero3; between tier and device r 8 P/N read and written in step(). With
//                           offload_param 4 P/N more of each, and 4 P/N read at each gather, twice per micro-batch. In a
//                           low precision r 12 P/N, and 2 P/N of parameters that are only written. With norms of
//                           parameters the state is read and the slots are written once more
// Collectives per step      as zero3; with offload_param each gather is an all_gather, and there is no publish
// Terms: ddh/sdk/data_parallel.hpp. Sources: Ren et al., ZeRO-Offload, ATC 2021; Rajbhandari et al., ZeRO-Infinity, SC 2021.
// The update is never delayed, so the bits equal zero3's.
//
// Differences from zero3: step() processes tiles instead of segments, so one is updated while the next one is read and
// the previous one is written. An offloaded segment is read, beginning with the prefetch, and then all-gathered.
#include "ddh/sdk/data_parallel.hpp"
#include "ddh/sdk/strategy_options.hpp"
#include "ddh/sdk/tier/offloaded_params.hpp"

namespace {

class Zero3Offload final : public ddh::DataParallel {
 public:
  explicit Zero3Offload(const ddh_create& create)
      : DataParallel(create),
        policy_(options),
        settings_(ddh::offload_settings(host, options, /*offloads_params=*/true)) {
    if (settings_.values != ddh::Place::device && policy_.grouping().persistent_bytes > 0)
      ddh::fail(DDH_FAILED_PRECONDITION, options.key("persistence_bytes"), "=", policy_.grouping().persistent_bytes,
                " keeps small parameters gathered on the device, but with ", options.key("offload_param.device"), "=",
                options.text("offload_param.device"),
                " no parameters stay there; set the first to 0 or the second to none");
  }

 private:
  ddh::Grouping grouping() const override {
    return ddh::with_blocks(policy_.grouping(), args(), ddh::grad_buffer_bytes(options));
  }

  std::unique_ptr<ddh::OptimStore> optimizer() override {
    if (args().rank == 0) ddh::warn_of_idle_options(host, options, settings_);
    auto store = std::make_unique<ddh::TieredOptim>(host, layout(), args().rank, settings_);
    if (settings_.values != ddh::Place::device) away_ = &store->offloaded();
    return store;
  }

  std::unique_ptr<ddh::ParamStore> parameters() override {
    return std::make_unique<ddh::OffloadedParams>(host, layout(), args(), policy_, away_);
  }

  std::unique_ptr<ddh::GradStore> gradients() override {
    return std::make_unique<ddh::GradRing>(layout(), args(), ddh::ring_options(options));
  }

  const ddh::PrefetchPolicy policy_;
  const ddh::OffloadSettings settings_;
  ddh::OffloadedState* away_ = nullptr;  // of the optimizer's store; nullptr: the parameters stay on the device
};

constexpr auto kOptions = ddh::with_default(
    ddh::joined(ddh::kPrefetchOptions, ddh::kGradRingOptions, ddh::kOffloadOptimizer, ddh::kOffloadParam),
    "offload_optimizer.device", R"("cpu")");
constexpr uint64_t kCaps =
    ddh::DataParallel::kCaps | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_GRAD | DDH_CAP_SHARDS_PARAM | DDH_CAP_OFFLOADS;

}  // namespace

DDH_CXX_PLUGIN(Zero3Offload, strategy, "zero3_offload", "0.1.0",
               "zero3 with optimizer state and parameters in host memory or on disk (ZeRO-Offload, ZeRO-Infinity)",
               ddh::kSchemaOf<kOptions>, ddh::DataParallel::kNeeds, kCaps, 0, ddh::DataParallel::kUnderstands, nullptr,
               ddh::DataParallel::kWants);
