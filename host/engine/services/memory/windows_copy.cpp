// SPDX-License-Identifier: Apache-2.0
//
// Windows over collectives, for transports without shared memory: open is an all_gather. Writes need no handshake between
// ranks, because a view is a copy. The transport sends and receives host memory: the buffers themselves on the CPU, staging on
// other devices. A transport of the device (Comm::device) takes the device's own buffers instead, in the order of the stream,
// and the host waits for nothing. So does a rank that is alone in its group, if the device sums the squares of gradients: its
// values stay in memory of the device.
#include <algorithm>
#include <limits>

#include "engine/services/memory/copies.hpp"

namespace ddhost {
namespace {

class CopyWindow final : public ddh_window {
 public:
  CopyWindow(const Comm& comm, Memory& memory, Staging& staging, const ddh_window_args& args, bool poison,
             const std::string& owner)
      : comm_(comm),
        memory_(memory),
        staging_(staging),
        group_(args.group),
        ranks_(comm.ranks_of(args.group)),
        dtype_(args.dtype),
        permanent_((args.flags & DDH_WINDOW_PERMANENT) != 0),
        poison_(poison),
        name_(args.name == nullptr ? "unnamed" : args.name),
        segments_(segments_of(comm, args.group, args.segment_numel)),
        element_bytes_(ddh_dtype_bytes(args.dtype)),
        own_(comm, memory, args.group, args.tag, bytes_of(segments_.my_numel),
             bytes_of(*std::max_element(segments_.numel.begin(), segments_.numel.end())), name_.c_str(), owner),
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
    // After the other closes too: the mark covers all readers.
    closed_.order(stream);
    if (opens_ == 0 && !permanent_) forget_view(stream);
    closed_.set(stream);
  }
  [[nodiscard]] bool is_open() const override { return opens_ > 0; }
  void all_closed() override {}

 private:
  [[nodiscard]] uint64_t my_offset_bytes() const { return segments_.my_offset * element_bytes_; }
  // Of this window on a rank with a segment of `segment_numel`.
  [[nodiscard]] uint64_t bytes_of(uint64_t segment_numel) const {
    return (permanent_ ? segments_.total : segment_numel) * element_bytes_;
  }

  void gather(ddh_stream* stream) {
    const ClockSpan span(comm_.clock(), DDH_SPAN_COMM,
                         SpanTopic(kGather, nullptr, name_.c_str()).among(comm_.members_of(group_)));
    const uint64_t my_bytes = segments_.my_numel * element_bytes_, all_bytes = segments_.total * element_bytes_;
    if (const DeviceComm* const transport = comm_.device(); transport != nullptr)
      gather_on_device(*transport, stream);
    else if (is_alone(staging_.device(), segments_))
      copy_alone(memory_, view_, segment(), all_bytes, stream);
    else
      gather_staged(my_bytes, all_bytes, stream);
    committed_.set(stream);  // for opens on other streams
    gathered_epoch_ = epoch_;
    comm_.clock().count("comm.window_gathers", 1);
    comm_.clock().count("comm.window_gather_bytes", all_bytes);
    comm_.count_sent(ranks_.to_each(my_bytes), kGather);
  }

  void gather_on_device(const DeviceComm& transport, ddh_stream* stream) {
    ddh_coll c = pieces(comm_, group_, dtype_, segments_, name_);
    c.send = segment();
    c.recv = view_;
    c.stream = stream;
    transport.queue(PluginCall::kAllGather, &ddh_comm_backend_api::all_gather, c);
  }

  void gather_staged(uint64_t my_bytes, uint64_t all_bytes, ddh_stream* stream) {
    char* const host_view = staging_.begin(view_, all_bytes);
    const bool in_place = host_view == view_;
    ddh_coll c = pieces(comm_, group_, dtype_, segments_, name_);
    c.send = in_place ? segment() : host_view + my_offset_bytes();
    c.recv = host_view;
    if (!in_place) staging_.fetch(host_view + my_offset_bytes(), segment(), my_bytes, stream);
    comm_.call(PluginCall::kAllGather, comm_.backend()->all_gather, &c);
    staging_.store(view_, host_view, all_bytes, stream);
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
  Memory& memory_;
  Staging& staging_;
  ddh_group* const group_;
  const ddh::GroupRanks ranks_;
  const int32_t dtype_;
  const bool permanent_, poison_;
  const std::string name_;
  const Segments segments_;
  const uint64_t element_bytes_;
  CommBlock own_;  // the segment; the whole view if it is permanent
  StreamMark committed_, closed_;
  void* view_ = nullptr;
  uint64_t epoch_ = 0, gathered_epoch_ = 0;
  uint32_t opens_ = 0;
};

}  // namespace

std::unique_ptr<ddh_window> make_copy_window(const Comm& comm, Memory& memory, Staging& staging,
                                             const ddh_window_args& args, bool poison, const std::string& owner) {
  return std::make_unique<CopyWindow>(comm, memory, staging, args, poison, "a window of " + owner);
}

}  // namespace ddhost
