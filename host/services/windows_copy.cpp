// SPDX-License-Identifier: Apache-2.0
//
// Windows and exchanges over collectives, for transports whose ranks share no memory: open is an all_gather, reduce a
// reduce_scatter. Writes need no handshake between ranks, since a view is a copy. What the transport sends and receives is
// the host's memory: the buffers themselves on the CPU, staging elsewhere.
#include <limits>

#include "device/cpu/kernels.hpp"
#include "services/windows.hpp"

namespace ddhost {
namespace {

// A block of tagged memory.
class Block {
 public:
  Block(Memory& memory, int32_t tag, uint64_t bytes, const char* name)
      : memory_(memory), data_(memory.allocate(tag, bytes, name)) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { memory_.release(data_); }
  [[nodiscard]] char* data() const { return static_cast<char*>(data_); }

 private:
  Memory& memory_;
  void* data_;
};

ddh_coll pieces(const Comm& comm, ddh_group* group, int32_t dtype, const Segments& segments, const std::string& label) {
  ddh_coll c{};
  c.struct_size = sizeof c;
  c.dtype = dtype;
  c.op = DDH_SUM;
  c.counts = segments.numel.data();
  c.group = comm.group_or_world(group);
  c.label = label.c_str();
  return c;
}

Segments segments_of(const Comm& comm, ddh_group* group, const uint64_t* segment_numel) {
  int32_t rank = 0, size = 1;
  comm.group_info(comm.group_or_world(group), &rank, &size, nullptr);
  return {segment_numel, rank, size};
}

class CopyWindow final : public ddh_window {
 public:
  CopyWindow(const Comm& comm, Memory& memory, Staging& staging, const ddh_window_args& args, bool poison)
      : comm_(comm),
        staging_(staging),
        group_(args.group),
        dtype_(args.dtype),
        permanent_((args.flags & DDH_WINDOW_PERMANENT) != 0),
        poison_(poison),
        name_(args.name == nullptr ? "unnamed" : args.name),
        segments_(segments_of(comm, args.group, args.segment_numel)),
        element_bytes_(ddh_dtype_bytes(args.dtype)),
        own_(memory, args.tag, (permanent_ ? segments_.total : segments_.my_numel) * element_bytes_, name_.c_str()),
        committed_(memory.device()),
        closed_(memory.device()) {}

  void* segment() override { return own_.data() + (permanent_ ? my_offset_bytes() : 0); }

  void write_begin(ddh_stream* stream) override {
    if (opens_ > 0) {
      ddh::fail(DDH_FAILED_PRECONDITION, "window '", name_, "' is written while its view is open; close it first");
    }
    closed_.order(stream);
  }
  void commit(ddh_stream* stream) override {
    ++epoch_;
    committed_.set(stream);
  }

  void* open(void* backing, ddh_stream* stream) override {
    if (!permanent_ && backing == nullptr) {
      ddh::fail(DDH_INVALID_ARGUMENT, "window '", name_,
                "' needs a backing on this transport; give one that holds all segments");
    }
    committed_.order(stream);
    if (opens_ > 0) {
      ++opens_;
      return view_;
    }
    view_ = permanent_ ? own_.data() : backing;
    if (!permanent_ || gathered_epoch_ != epoch_) gather(stream);
    opens_ = 1;
    return view_;
  }

  void close(ddh_stream* stream) override {
    if (opens_ == 0) ddh::fail(DDH_FAILED_PRECONDITION, "window '", name_, "' is closed more often than opened");
    --opens_;
    // Behind the other closes too: the mark stands for all readers.
    closed_.order(stream);
    if (opens_ == 0 && !permanent_) forget_view(stream);
    closed_.set(stream);
  }
  [[nodiscard]] bool is_open() const override { return opens_ > 0; }
  void all_closed() override {}

 private:
  [[nodiscard]] uint64_t my_offset_bytes() const { return segments_.my_offset * element_bytes_; }

  void gather(ddh_stream* stream) {
    const ClockSpan span(comm_.clock(), DDH_SPAN_COMM);
    const uint64_t my_bytes = segments_.my_numel * element_bytes_, all_bytes = segments_.total * element_bytes_;
    char* const host_view = staging_.begin(view_, all_bytes);
    const bool in_place = host_view == view_;
    ddh_coll c = pieces(comm_, group_, dtype_, segments_, name_);
    c.send = in_place ? segment() : host_view + my_offset_bytes();
    c.recv = host_view;
    if (!in_place) staging_.fetch(host_view + my_offset_bytes(), segment(), my_bytes, stream);
    comm_.call(PluginCall::kAllGather, comm_.backend()->all_gather, &c);
    staging_.store(view_, host_view, all_bytes, stream);
    committed_.set(stream);  // for opens on other streams
    gathered_epoch_ = epoch_;
    comm_.clock().count("comm.window_gathers", 1);
    comm_.clock().count("comm.window_gather_bytes", all_bytes);
  }

  void forget_view(ddh_stream* stream) {
    const bool has_nan = dtype_ == DDH_F32 || dtype_ == DDH_BF16 || dtype_ == DDH_F16 || dtype_ == DDH_F64;
    if (poison_ && has_nan) {
      const Device& device = staging_.device();
      device.call()(PluginCall::kDeviceWork, device.flatops().fill, device.context(), view_, dtype_, segments_.total,
                    std::numeric_limits<double>::quiet_NaN(), stream);
    }
    view_ = nullptr;
  }

  const Comm& comm_;
  Staging& staging_;
  ddh_group* const group_;
  const int32_t dtype_;
  const bool permanent_, poison_;
  const std::string name_;
  const Segments segments_;
  const uint64_t element_bytes_;
  Block own_;  // the segment; the whole view where it is permanent
  StreamMark committed_, closed_;
  void* view_ = nullptr;
  uint64_t epoch_ = 0, gathered_epoch_ = 0;
  uint32_t opens_ = 0;
};

class CopyExchange final : public ddh_exchange {
 public:
  CopyExchange(const Comm& comm, Memory& memory, Staging& staging, const ddh_exchange_args& args, bool round_to_bf16)
      : comm_(comm),
        staging_(staging),
        group_(args.group),
        numel_(args.numel),
        round_to_bf16_(round_to_bf16),
        name_(args.name == nullptr ? "unnamed" : args.name),
        buffer_(memory, DDH_TAG_GRAD, args.numel * sizeof(float), name_.c_str()),
        ready_(memory.device()),
        reduced_(memory.device()) {}

  float* buffer() override { return reinterpret_cast<float*>(buffer_.data()); }
  void write_begin(ddh_stream* stream) override { reduced_.order(stream); }
  void ready(ddh_stream* stream) override { ready_.set(stream); }
  void wait(ddh_stream* stream) override { reduced_.order(stream); }

  // On the host: the sum of my segment, its squares, and for TO_ALL the sums of all. On the device: adding to `dst`, so
  // that it happens in the order of the stream.
  void reduce(const ddh_reduce_args& args, NormSink& norm, ddh_stream* stream) override {
    const Segments segments = segments_of(comm_, group_, args.segment_numel);
    if (segments.total > numel_) {
      ddh::fail(DDH_OUT_OF_RANGE, "a reduction of ", segments.total, " elements in exchange '", name_, "' of ", numel_);
    }
    require_reducible(args, name_);
    const ClockSpan span(comm_.clock(), DDH_SPAN_COMM);
    const uint64_t all_bytes = segments.total * sizeof(float), my_bytes = segments.my_numel * sizeof(float);
    ready_.order(stream);
    auto* const host_all = reinterpret_cast<float*>(staging_.begin(buffer(), all_bytes));
    staging_.fetch(host_all, buffer(), all_bytes, stream);
    // Transports return bf16 sums in bf16, so rounded values travel as fp32.
    if (round_to_bf16_) cpu::round_to_bf16(host_all, segments.total);
    float* const host_mine = host_all + segments.my_offset;
    ddh_coll c = pieces(comm_, group_, DDH_F32, segments, name_);
    c.send = host_all;
    c.recv = host_mine;
    comm_.call(PluginCall::kReduceScatter, comm_.backend()->reduce_scatter, &c);

    float* const mine = buffer() + segments.my_offset;
    float* const dst = args.dst != nullptr ? args.dst : mine;
    staging_.store(mine, host_mine, my_bytes, stream);
    settle(args.flags, dst, mine, host_mine, segments.my_numel, stream);
    if ((args.flags & DDH_REDUCE_NORM) != 0) {
      const float* const sum = host_mine == mine ? dst : host_mine;
      norm.add_gradient(sum, 0, segments.my_numel, {args.ranges, args.n_ranges});
    }
    if ((args.flags & DDH_REDUCE_TO_ALL) != 0) {
      staging_.wait();
      c.send = host_mine;
      c.recv = host_all;
      comm_.call(PluginCall::kAllGather, comm_.backend()->all_gather, &c);
      staging_.store(buffer(), host_all, all_bytes, stream);
    }
    reduced_.set(stream);
  }

 private:
  // `mine`, and `host_mine` with it, hold the new sum. Puts it, or the total with what was there, into dst; a total that
  // is needed further also back into `mine` and `host_mine`.
  void settle(uint32_t flags, float* dst, float* mine, float* host_mine, uint64_t numel, ddh_stream* stream) {
    Device& device = staging_.device();
    const uint64_t bytes = numel * sizeof(float);
    if (numel == 0) return;
    if ((flags & DDH_REDUCE_ADD) == 0) {
      if (dst != mine) device.copy(dst, DDH_MEM_DEVICE, mine, DDH_MEM_DEVICE, bytes, stream);
      return;
    }
    device.call()(PluginCall::kDeviceWork, device.flatops().add, device.context(), dst, mine, numel, stream);
    if ((flags & DDH_REDUCE_TO_ALL) != 0 && dst != mine)
      device.copy(mine, DDH_MEM_DEVICE, dst, DDH_MEM_DEVICE, bytes, stream);
    if ((flags & (DDH_REDUCE_NORM | DDH_REDUCE_TO_ALL)) != 0) staging_.fetch(host_mine, dst, bytes, stream);
  }

  const Comm& comm_;
  Staging& staging_;
  ddh_group* const group_;
  const uint64_t numel_;
  const bool round_to_bf16_;
  const std::string name_;
  Block buffer_;
  StreamMark ready_, reduced_;
};

}  // namespace

std::unique_ptr<ddh_window> make_copy_window(const Comm& comm, Memory& memory, Staging& staging,
                                             const ddh_window_args& args, bool poison) {
  return std::make_unique<CopyWindow>(comm, memory, staging, args, poison);
}

std::unique_ptr<ddh_exchange> make_copy_exchange(const Comm& comm, Memory& memory, Staging& staging,
                                                 const ddh_exchange_args& args, bool round_to_bf16) {
  return std::make_unique<CopyExchange>(comm, memory, staging, args, round_to_bf16);
}

}  // namespace ddhost
