// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/rank_record.hpp: the record that a rank keeps for the launcher: its step, and the calls that its threads
// are in. The launcher stores it in memory that survives the rank.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/calls/misuse.hpp"

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
  kNextBlock,
  kGradsReady,
  kStep,
  kState,
  kStateRead,
  kStateWrite,
  kTrainsLater,
  kRhythm,
  kSettle,
  kStateCommit,
  kSlot,
  kNeeds,
  kPrepare,
  kUpdate,
  kMigrate,
  kShow,
  // models
  kDescribe,
  kBatchCreate,
  kBatchDestroy,
  kForward,
  kBackward,
  kGradientBlock,
  kMetrics,
  kDiscard,
  kDerive,
  kContribution,
  kEstimate,
  kSampleBegin,
  kSampleNext,
  kSampleText,
  kView,
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
  kEvent,
  kRunEnd,
  // codecs
  kRounds,
  kEncode,
  kDecode,
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

// The nested calls of one thread, outermost first: a strategy's step, and in it an all_gather of the transport. The thread
// writes them with one relaxed store when a call begins and one when it ends. The launcher and its watchdog read them, even if
// the rank hangs or is dead.
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

// The threads of a rank whose calls are recorded: the main one, the one that calls the transport while the main one computes
// (CommThread), and those that prepare data.
enum class RankThread : uint8_t { kMain, kComm, kData };
inline constexpr size_t kDataThreads = 16, kRankThreads = static_cast<size_t>(RankThread::kData) + kDataThreads;
// The i-th thread that prepares data.
constexpr RankThread data_thread(size_t i) {
  return static_cast<RankThread>(static_cast<size_t>(RankThread::kData) + i);
}

// Where memory is taken: of the machine, of a device with its own memory, of a process's address space.
enum class MemoryKind : uint32_t { kHost = 1, kDevice, kAddresses };

// A run does not start because its plan does not fit into what is left.
struct Shortage {
  MemoryKind kind;
  uint64_t bytes_left;
  uint32_t n_ranks;          // that share them
  std::string changes = {};  // with which the run fits, as text for the launcher; "": not known
};

// What a rank counts while it trains, for the page of a run that is going on.
struct RankNumbers {
  static constexpr size_t kTags = 6, kKinds = 6;  // DDH_TAG_*, DDH_SPAN_*
  std::array<uint64_t, kTags> peak_bytes{};
  std::array<double, kKinds> time_ms{};
};

class RankRecord {
 public:
  RankRecord() = default;
  RankRecord(const RankRecord&) = delete;
  RankRecord& operator=(const RankRecord&) = delete;
  virtual ~RankRecord() = default;

  // The step that the rank is working on; counts from 1, 0 = before the first.
  virtual void set_step(int64_t step) = 0;
  // The rank has begun with what the run is for (an evaluation, the text to generate, the end of a training). A step
  // says the same. Before that, nothing is lost if the rank ends.
  virtual void set_begun() {}
  // All steps of the run are done; what follows only writes results.
  virtual void set_done() {}
  // Whether the run was asked to end after the current step. A rank reads it once per step and agrees with the others.
  [[nodiscard]] virtual bool stop_requested() const = 0;
  // For ranks that do not agree with the others in every step. Called after a step that all ranks of this process have
  // begun, with the next one, which the rank begins unless the run was asked to end: returns the step after which all ranks
  // end, the last one that any of them has begun or may begin; kNoStop: the run was not asked to end.
  static constexpr int64_t kNoStop = INT64_MAX;
  [[nodiscard]] virtual int64_t last_step_before(int64_t next) { return stop_requested() ? next - 1 : kNoStop; }
  // How often the run has been asked to save a checkpoint after the current step.
  [[nodiscard]] virtual int64_t saves_requested() const { return 0; }

  // The record of a thread's calls. Valid while this object lives.
  [[nodiscard]] virtual CallLane& lane(RankThread thread) = 0;
  // Stores a plugin's name ("strategy 'zero1'") for messages about its calls. Returns its number for CallFrame.
  virtual uint8_t add_plugin(std::string_view name) = 0;
  // The memory that the strategy has planned, as text for the message about a lack of memory.
  virtual void set_plan(std::string_view /*text*/) {}
  // The same by tag, in bytes; 0: nothing, or not known.
  virtual void set_planned(const std::array<uint64_t, RankNumbers::kTags>& /*bytes*/) {}
  virtual void set_numbers(const RankNumbers& /*numbers*/) {}
  virtual void set_shortage(const Shortage& /*shortage*/) {}
  // The units of the model, equal on all ranks.
  virtual void set_unit_names(const char* const* names, size_t count) = 0;

  // What the rank's plugins did wrong in calls that can't return an error.
  [[nodiscard]] Misuse& misuse() { return misuse_; }

 private:
  Misuse misuse_;
};

}  // namespace ddhost
