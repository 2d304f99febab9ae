// SPDX-License-Identifier: Apache-2.0
//
// Windows and exchanges over pages that all ranks map: a window is one region, an exchange is one region with a buffer
// for each rank. Nothing is gathered; marks of peers synchronize writes and reads. Guard bytes follow a window and each
// buffer of an exchange.
#include <algorithm>
#include <array>

#include "engine/numerics/kernels.hpp"
#include "engine/services/memory/memory.hpp"
#include "engine/services/memory/windows.hpp"

namespace ddhost {
namespace {

constexpr uint64_t kPageBytes = 4096;

// One region, and marks with one counter per rank.
class SharedObject {
 public:
  SharedObject(const Comm& comm, ddh_group* group, const char* name, uint64_t bytes, uint32_t n_marks)
      : comm_(comm),
        group_(comm.group_or_world(group)),
        members_(comm.members_of(group_)),
        ranks_(comm.ranks_of(group_)),
        name_(name == nullptr ? "unnamed" : name) {
    comm.group_info(group_, &rank_, &group_size_, nullptr);
    comm.call(PluginCall::kRegionCreate, comm.shared()->region_create, group_, name_.c_str(),
              std::max(bytes, kPageBytes), &base_, &region_);
    comm.call(PluginCall::kMarksCreate, comm.shared()->marks_create, group_, n_marks, &first_mark_);
  }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;
  ~SharedObject() {
    comm_.settle_thread();
    comm_.shared()->region_destroy(comm_.inst(), region_);
  }

  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t group_size() const { return group_size_; }
  [[nodiscard]] float* base() const { return static_cast<float*>(base_); }

  // `what`: what a rank waits for until its peers have set the mark.
  struct Mark {
    uint32_t index;
    const char* what;
    std::string label;  // "gradients of exchange_name"
  };
  [[nodiscard]] Mark mark(uint32_t index, const char* what) const {
    return {index, what, ddh::str(what, " of ", name_)};
  }

  void set_mark(const Mark& mark, uint64_t value) {
    comm_.shared()->mark_set(comm_.inst(), group_, first_mark_ + mark.index, value);
  }
  // `Span`: InnerSpan within a span of communication.
  template <class Span = ClockSpan>
  void wait_mark_of_all(const Mark& mark, uint64_t value) {
    const Span span(comm_.clock(), DDH_SPAN_COMM, SpanTopic("wait", mark.what, name_.c_str()));
    for (int32_t peer = 0; peer < group_size_; ++peer) {
      if (peer == rank_) continue;
      const PartSpan of_peer(comm_.clock(), StepPart::wait, "wait for a rank", name_.c_str(),
                             members_[static_cast<size_t>(peer)]);
      comm_.call(PluginCall::kMarkWait, comm_.shared()->mark_wait, group_, peer, first_mark_ + mark.index, value,
                 mark.label.c_str());
    }
  }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Clock& clock() const { return comm_.clock(); }
  [[nodiscard]] const ddh::GroupRanks& ranks() const { return ranks_; }
  void count_sent(const ddh::SentBytes& sent, const char* operation) const { comm_.count_sent(sent, operation); }

 private:
  const Comm& comm_;
  ddh_group* group_;
  const std::vector<int32_t>& members_;
  const ddh::GroupRanks ranks_;
  std::string name_;
  int32_t rank_ = 0, group_size_ = 1;
  void* base_ = nullptr;
  ddh_region* region_ = nullptr;
  uint32_t first_mark_ = 0;
};

class SharedWindow final : public ddh_window {
 public:
  SharedWindow(const Comm& comm, Memory& memory, const ddh_window_args& args, int32_t rank, int32_t group_size,
               const std::string& owner)
      : memory_(memory),
        tag_(args.tag),
        permanent_((args.flags & DDH_WINDOW_PERMANENT) != 0),
        element_bytes_(ddh_dtype_bytes(args.dtype)),
        segments_(args.segment_numel, rank, group_size),
        owner_(owner),
        shared_(comm, args.group, args.name, segments_.total * element_bytes_ + kGuardBytes, 2) {
    write_shared_guard(end());
    memory_.account(tag_, signed_bytes(segments_.my_numel), false);
    if (permanent_) account_rest(+1);
  }
  ~SharedWindow() override {
    memory_.check_guard(end(), ddh::str("window '", shared_.name(), "' (", segments_.total * element_bytes_,
                                        " bytes of tag ", kTagNames[static_cast<size_t>(tag_)], ") of ", owner_));
    memory_.account(tag_, -signed_bytes(segments_.my_numel), false);
    if (permanent_ || opens_ > 0) account_rest(-1);
  }
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  void* segment() override { return reinterpret_cast<char*>(shared_.base()) + segments_.my_offset * element_bytes_; }

  void write_begin(ddh_stream*) override {
    if (opens_ > 0) {
      ddh::fail(DDH_FAILED_PRECONDITION, "window '", shared_.name(),
                "' is written while its view is open; close it first");
    }
    if (closed_by_all_ == epoch_) return;
    shared_.set_mark(closed_, epoch_);
    shared_.wait_mark_of_all(closed_, epoch_);
    closed_by_all_ = epoch_;
  }

  // Peers read the segment in place.
  void commit(ddh_stream*) override {
    shared_.set_mark(committed_, ++epoch_);
    shared_.count_sent(shared_.ranks().to_each(segments_.my_numel * element_bytes_), kPublish);
    shared_.clock().note_operation(kPublish, 0, /*calls=*/1);
  }

  void* open(void*, ddh_stream*) override {
    if (committed_by_all_ < epoch_) {
      shared_.wait_mark_of_all(committed_, epoch_);
      committed_by_all_ = epoch_;
    }
    if (opens_++ == 0 && !permanent_) account_rest(+1);
    return shared_.base();
  }

  void close(ddh_stream*) override {
    if (opens_ == 0)
      ddh::fail(DDH_FAILED_PRECONDITION, "window '", shared_.name(), "' is closed more often than opened");
    if (--opens_ == 0 && !permanent_) account_rest(-1);
  }

  [[nodiscard]] bool is_open() const override { return opens_ > 0; }
  void all_closed() override { closed_by_all_ = epoch_; }

 private:
  [[nodiscard]] int64_t signed_bytes(uint64_t numel) const { return static_cast<int64_t>(numel * element_bytes_); }
  [[nodiscard]] char* end() const { return reinterpret_cast<char*>(shared_.base()) + segments_.total * element_bytes_; }
  // The other ranks' segments: addressable on this rank, counted as unique on theirs.
  void account_rest(int64_t sign) {
    memory_.account(tag_, sign * signed_bytes(segments_.total - segments_.my_numel), true);
  }

  Memory& memory_;
  const int32_t tag_;
  const bool permanent_;
  const uint64_t element_bytes_;
  const Segments segments_;
  const std::string owner_;
  SharedObject shared_;
  const SharedObject::Mark committed_ = shared_.mark(0, "publishing"), closed_ = shared_.mark(1, "closing");
  uint64_t epoch_ = 0;             // commits of this rank
  uint64_t committed_by_all_ = 0;  // epochs that all ranks have written
  uint64_t closed_by_all_ = 0;     // epochs that no rank reads any more
  uint32_t opens_ = 0;
};

class SharedExchange final : public ddh_exchange {
 public:
  SharedExchange(const Comm& comm, Memory& memory, const ddh_exchange_args& args, const WindowSettings& settings,
                 int32_t group_size, const std::string& owner)
      : memory_(memory),
        numel_(args.numel),
        // Each rank's buffer begins on a new page.
        stride_((args.numel * sizeof(float) + kGuardBytes + kPageBytes - 1) / kPageBytes * kPageBytes / sizeof(float)),
        reduce_block_(reduce_block_in(comm, args.group, settings)),
        round_to_bf16_(settings.round_to_bf16),
        owner_(owner),
        shared_(comm, args.group, args.name, stride_ * sizeof(float) * static_cast<uint64_t>(group_size), 2) {
    for (int32_t r = 0; r < group_size; ++r) buffers_.push_back(buffer_of(r));
    write_guard(buffer_of(shared_.rank()) + numel_);
    memory_.account(DDH_TAG_GRAD, static_cast<int64_t>(numel_ * sizeof(float)), false);
  }
  ~SharedExchange() override {
    memory_.check_guard(buffer_of(shared_.rank()) + numel_,
                        ddh::str("this rank's buffer of exchange '", shared_.name(), "' (", numel_ * sizeof(float),
                                 " bytes of tag grad) of ", owner_));
    memory_.account(DDH_TAG_GRAD, -static_cast<int64_t>(numel_ * sizeof(float)), false);
  }
  SharedExchange(const SharedExchange&) = delete;
  SharedExchange& operator=(const SharedExchange&) = delete;

  float* buffer() override { return buffer_of(shared_.rank()); }

  void write_begin(ddh_stream*) override {
    if (done_by_all_ == generation_) return;
    shared_.wait_mark_of_all(done_, generation_);
    done_by_all_ = generation_;
  }

  void ready(ddh_stream*) override { shared_.set_mark(ready_, ++generation_); }

  void reduce(const ddh_reduce_args& args, NormSink& norm, ddh_stream*) override {
    segments_.set(args.segment_numel, shared_.rank(), shared_.group_size());
    if (segments_.total > numel_) {
      ddh::fail(DDH_OUT_OF_RANGE, "a reduction of ", segments_.total, " elements in exchange '", shared_.name(),
                "' of ", numel_);
    }
    {
      const ClockSpan span(shared_.clock(), DDH_SPAN_COMM,
                           SpanTopic(kReduceOperation, nullptr, shared_.name().c_str()));
      shared_.wait_mark_of_all<InnerSpan>(ready_, generation_);
      sum_segment(args, norm);
    }
    shared_.set_mark(done_, generation_);
    shared_.count_sent(sent_in_reduction(shared_.ranks(), segments_, args), kReduceOperation);
  }

  void wait(ddh_stream* stream) override { write_begin(stream); }

 private:
  // Sums from 4 MiB on bypass the caches: only the optimizer reads them again, and by then they would have left.
  static constexpr uint64_t kStreamedNumel = uint64_t{1} << 20;

  [[nodiscard]] float* buffer_of(int32_t rank) const { return shared_.base() + stride_ * static_cast<uint64_t>(rank); }

  // In chunks, so that squares and copies find the sum in the first-level cache.
  void sum_segment(const ddh_reduce_args& args, NormSink& norm) {
    const auto n = static_cast<uint32_t>(buffers_.size());
    const kernels::SumSources sum{buffers_.data(), n, reduce_block_, round_to_bf16_};
    const uint64_t offset = segments_.my_offset;
    require_reducible(args, shared_.name());
    const bool add = (args.flags & DDH_REDUCE_ADD) != 0, to_all = (args.flags & DDH_REDUCE_TO_ALL) != 0;
    const bool straight_to_all = to_all && !add && args.dst == nullptr;
    float* const dst = args.dst != nullptr ? args.dst : buffer() + offset;
    const bool streams = !add && !to_all && dst != buffer() + offset && segments_.my_numel >= kStreamedNumel;
    const bool takes_norm = (args.flags & DDH_REDUCE_NORM) != 0;
    alignas(64) std::array<float, kernels::kSumChunkNumel> chunk;  // of a sum that streams
    const auto sum_chunk = [&](uint64_t begin, uint64_t numel) {
      float* const to = streams ? chunk.data() : dst + begin;
      if (straight_to_all) {
        kernels::ordered_sum_to_all(buffers_.data(), n, sum, offset + begin, numel);
      } else if (streams) {
        kernels::ordered_sum_streamed(dst + begin, to, sum, offset + begin, numel);
      } else {
        kernels::ordered_sum(to, sum, offset + begin, numel, add);
        for (float* b : buffers_)
          if (to_all && b + offset != dst) kernels::copy(b + offset + begin, dst + begin, numel);
      }
      if (takes_norm) {
        const NormShare share(shared_.clock());
        norm.add_gradient(to, begin, numel, {args.ranges, args.n_ranges});
      }
    };
    kernels::for_each_chunk(segments_.my_numel, sum_chunk,
                            takes_norm || streams ? kernels::kSumChunkNumel : kernels::kChunkNumel);
    if (streams) kernels::end_streams();
  }

  Memory& memory_;
  const uint64_t numel_;   // of one rank's buffer
  const uint64_t stride_;  // elements between two ranks' buffers
  const uint32_t reduce_block_;
  const bool round_to_bf16_;  // during the sum: each value is read once, by the rank that owns the segment
  const std::string owner_;
  SharedObject shared_;
  const SharedObject::Mark ready_ = shared_.mark(0, "gradients"), done_ = shared_.mark(1, "last use of gradients");
  std::vector<float*> buffers_;  // of the ranks
  Segments segments_;            // of the last reduction
  uint64_t generation_ = 0;      // last generation that this rank has made ready
  uint64_t done_by_all_ = 0;     // generations that no rank reads any more
};

}  // namespace

std::unique_ptr<ddh_window> make_shared_window(const Comm& comm, Memory& memory, const ddh_window_args& args,
                                               const std::string& owner) {
  int32_t rank = 0, size = 1;
  comm.group_info(comm.group_or_world(args.group), &rank, &size, nullptr);
  return std::make_unique<SharedWindow>(comm, memory, args, rank, size, owner);
}

std::unique_ptr<ddh_exchange> make_shared_exchange(const Comm& comm, Memory& memory, const ddh_exchange_args& args,
                                                   const WindowSettings& settings, const std::string& owner) {
  int32_t size = 1;
  comm.group_info(comm.group_or_world(args.group), nullptr, &size, nullptr);
  return std::make_unique<SharedExchange>(comm, memory, args, settings, size, owner);
}

}  // namespace ddhost
