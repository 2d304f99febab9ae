// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/call_record.hpp: the plugin and the call that a thread of a rank is in. The thread writes it with one
// relaxed store when a call begins and one when it ends. The launcher and its watchdog read it, even if the rank hangs
// or is dead.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddhost {

// Every call of the host into a plugin.
enum class PluginCall : uint8_t {
  kNone,
  // all kinds
  kCreate,
  kGetInterface,
  kDestroy,
  // strategies and optimizers
  kAttach,
  kPlan,
  kMaterialize,
  kStepBegin,
  kAcquire,
  kRelease,
  kGradsReady,
  kStep,
  kState,
  kStateRead,
  kStateWrite,
  kTrainsLater,
  kStateCommit,
  kSlot,
  kNeeds,
  kPrepare,
  kUpdate,
  // models
  kDescribe,
  kBatchCreate,
  kBatchDestroy,
  kForward,
  kBackward,
  kMetrics,
  kDiscard,
  kDerive,
  kContribution,
  kEstimate,
  kSampleBegin,
  kSampleNext,
  kSampleText,
  // transports
  kInit,
  kGroupInfo,
  kGroupCreate,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier,
  kOrderedSum,
  kCollective,
  kBufferAllocate,
  kBufferRelease,
  kPoll,
  kRegionCreate,
  kMarksCreate,
  kMarkWait,
  kAbort,
  kFinalize,
  // devices
  kDeviceOpen,
  kAllocate,
  kCopy,
  kSynchronize,
  kDeviceWork,
  // schedules
  kLr,
  kStepDone,
  kObserve,
  kNumber,
  // monitors
  kRunBegin,
  kRow,
  kRunEnd,
  kCount
};

// "grads_ready"; also defined for an unknown number.
const char* call_name(PluginCall call);
// Whether the call waits for other ranks.
bool waits_for_ranks(PluginCall call);
// Whether the call happens once, before the first step, and may take long: it loads libraries, reads data, fills
// memory.
bool is_preparation(PluginCall call);

// One call in a record. `serial` distinguishes two calls of the same kind; 0: no call.
struct CallFrame {
  uint32_t serial = 0;
  PluginCall call = PluginCall::kNone;
  uint8_t plugin = 0;  // number of the plugin's name in the rank's progress page
  int32_t unit = -1;   // of the model; -1: none
  bool operator==(const CallFrame&) const = default;
};

// The nested calls of one thread, outermost first: a strategy's step, and in it an all_gather of the transport.
class CallLane {
 public:
  static constexpr size_t kDepth = 4;  // deeper calls are not recorded

  // From now on the calls of the calling thread, whose id (gettid) is `tid`, are recorded here.
  void set_thread(int32_t tid) {
    tid_.store(tid, std::memory_order_relaxed);
    of_this_thread = this;
  }
  // Whether the calling thread is the one that writes here. Plugins may also call services from other threads.
  [[nodiscard]] bool is_of_this_thread() const noexcept { return of_this_thread == this; }
  [[nodiscard]] int32_t thread() const { return tid_.load(std::memory_order_relaxed); }

  void enter(uint8_t plugin, PluginCall call, int32_t unit) noexcept {
    const uint32_t depth = depth_.load(std::memory_order_relaxed);
    const uint32_t serial = serial_.load(std::memory_order_relaxed) + 1;
    serial_.store(serial == 0 ? 1 : serial, std::memory_order_relaxed);
    if (depth < kDepth) frames_[depth].store(packed(serial, plugin, call, unit), std::memory_order_relaxed);
    depth_.store(depth + 1, std::memory_order_relaxed);
  }
  void leave() noexcept {
    const uint32_t depth = depth_.load(std::memory_order_relaxed) - 1;
    depth_.store(depth, std::memory_order_relaxed);
    if (depth < kDepth) frames_[depth].store(0, std::memory_order_relaxed);
  }
  [[nodiscard]] CallFrame frame(size_t depth) const noexcept {
    const uint64_t bits = frames_[depth].load(std::memory_order_relaxed);
    const auto unit = static_cast<uint32_t>(bits & 0xFFFF);
    return {static_cast<uint32_t>(bits >> 32), static_cast<PluginCall>(bits >> 24 & 0xFF),
            static_cast<uint8_t>(bits >> 16 & 0xFF), unit == kNoUnit ? -1 : static_cast<int32_t>(unit)};
  }

 private:
  static constexpr uint32_t kNoUnit = 0xFFFF;
  static uint64_t packed(uint32_t serial, uint8_t plugin, PluginCall call, int32_t unit) {
    const uint32_t small_unit =
        unit < 0 || unit >= static_cast<int32_t>(kNoUnit) ? kNoUnit : static_cast<uint32_t>(unit);
    return uint64_t{serial} << 32 | uint64_t{static_cast<uint8_t>(call)} << 24 | uint64_t{plugin} << 16 | small_unit;
  }

  std::array<std::atomic<uint64_t>, kDepth> frames_{};
  std::atomic<uint32_t> depth_{0}, serial_{0};  // written by only one thread
  std::atomic<int32_t> tid_{0};
  static inline thread_local const CallLane* of_this_thread = nullptr;
};

}  // namespace ddhost
