// SPDX-License-Identifier: Apache-2.0
//
// Windows and exchanges over collectives, for transports whose ranks share no memory: open is an all_gather, reduce a
// reduce_scatter. Writes need no handshake, since a view is a copy.
#include <algorithm>
#include <cstring>

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

class CopyWindow final : public ddh_window_t {
 public:
  CopyWindow(const Comm& comm, Memory& memory, const ddh_window_args& args, bool poison)
      : comm_(comm),
        group_(args.group),
        dtype_(args.dtype),
        permanent_((args.flags & DDH_WINDOW_PERMANENT) != 0),
        poison_(poison),
        name_(args.name == nullptr ? "unnamed" : args.name),
        segments_(segments_of(comm, args.group, args.segment_numel)),
        element_bytes_(ddh_dtype_bytes(args.dtype)),
        own_(memory, args.tag, (permanent_ ? segments_.total : segments_.my_numel) * element_bytes_, name_.c_str()) {}

  void* segment() override { return own_.data() + (permanent_ ? segments_.my_offset * element_bytes_ : 0); }

  void write_begin() override {
    if (opens_ > 0) {
      ddh::fail(DDH_FAILED_PRECONDITION, "window '", name_, "' is written while its view is open; close it first");
    }
  }
  void commit() override { ++epoch_; }

  void* open(void* backing) override {
    if (!permanent_ && backing == nullptr) {
      ddh::fail(DDH_INVALID_ARGUMENT, "window '", name_,
                "' needs a backing on this transport; give one that holds all segments");
    }
    if (opens_ > 0) {
      ++opens_;
      return view_;
    }
    view_ = permanent_ ? own_.data() : backing;
    if (!permanent_ || gathered_epoch_ != epoch_) gather();
    opens_ = 1;
    return view_;
  }

  void close() override {
    if (opens_ == 0) ddh::fail(DDH_FAILED_PRECONDITION, "window '", name_, "' is closed more often than opened");
    if (--opens_ > 0 || permanent_) return;
    if (poison_) std::memset(view_, 0xFF, segments_.total * element_bytes_);  // every float a NaN
    view_ = nullptr;
  }
  [[nodiscard]] bool is_open() const override { return opens_ > 0; }
  void all_closed() override {}

 private:
  void gather() {
    const ClockSpan span(comm_.clock(), DDH_SPAN_COMM);
    ddh_coll c = pieces(comm_, group_, dtype_, segments_, name_);
    c.send = segment();
    c.recv = view_;
    ddh::call(comm_.backend()->all_gather, comm_.inst(), &c);
    gathered_epoch_ = epoch_;
    comm_.clock().count("comm.window_gathers", 1);
    comm_.clock().count("comm.window_gather_bytes", segments_.total * element_bytes_);
  }

  const Comm& comm_;
  ddh_group* const group_;
  const int32_t dtype_;
  const bool permanent_, poison_;
  const std::string name_;
  const Segments segments_;
  const uint64_t element_bytes_;
  Block own_;  // the segment; the whole view where it is permanent
  void* view_ = nullptr;
  uint64_t epoch_ = 0, gathered_epoch_ = 0;
  uint32_t opens_ = 0;
};

class CopyExchange final : public ddh_exchange_t {
 public:
  CopyExchange(const Comm& comm, Memory& memory, const ddh_exchange_args& args)
      : comm_(comm),
        group_(args.group),
        numel_(args.numel),
        name_(args.name == nullptr ? "unnamed" : args.name),
        buffer_(memory, DDH_TAG_GRAD, args.numel * sizeof(float), name_.c_str()) {}

  float* buffer() override { return reinterpret_cast<float*>(buffer_.data()); }
  void write_begin() override {}
  void ready() override {}
  void wait() override {}

  void reduce(const ddh_reduce_args& args, NormSink& norm) override {
    const Segments segments = segments_of(comm_, group_, args.segment_numel);
    if (segments.total > numel_) {
      ddh::fail(DDH_OUT_OF_RANGE, "a reduction of ", segments.total, " elements in exchange '", name_, "' of ", numel_);
    }
    require_reducible(args, name_);
    const ClockSpan span(comm_.clock(), DDH_SPAN_COMM);
    float* const mine = buffer() + segments.my_offset;
    ddh_coll c = pieces(comm_, group_, DDH_F32, segments, name_);
    c.send = buffer();
    c.recv = mine;
    ddh::call(comm_.backend()->reduce_scatter, comm_.inst(), &c);

    float* const dst = args.dst != nullptr ? args.dst : mine;
    if ((args.flags & DDH_REDUCE_ADD) != 0) {
      cpu::add(dst, mine, segments.my_numel);
    } else if (dst != mine) {
      cpu::copy(dst, mine, segments.my_numel);
    }
    if ((args.flags & DDH_REDUCE_NORM) != 0) norm.add_gradient(dst, 0, segments.my_numel, {args.ranges, args.n_ranges});
    if ((args.flags & DDH_REDUCE_TO_ALL) != 0) {
      if (dst != mine) cpu::copy(mine, dst, segments.my_numel);
      c.send = mine;
      c.recv = buffer();
      ddh::call(comm_.backend()->all_gather, comm_.inst(), &c);
    }
  }

 private:
  const Comm& comm_;
  ddh_group* const group_;
  const uint64_t numel_;
  const std::string name_;
  Block buffer_;
};

}  // namespace

std::unique_ptr<ddh_window_t> make_copy_window(const Comm& comm, Memory& memory, const ddh_window_args& args,
                                               bool poison) {
  return std::make_unique<CopyWindow>(comm, memory, args, poison);
}

std::unique_ptr<ddh_exchange_t> make_copy_exchange(const Comm& comm, Memory& memory, const ddh_exchange_args& args) {
  return std::make_unique<CopyExchange>(comm, memory, args);
}

}  // namespace ddhost
