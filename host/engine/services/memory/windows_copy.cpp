// SPDX-License-Identifier: Apache-2.0
//
// Windows and exchanges over collectives, for transports without shared memory: open is an all_gather, reduce is a
// reduce_scatter. Writes need no handshake between ranks, because a view is a copy. The transport sends and receives
// host memory: the buffers themselves on the CPU, staging on other devices. A transport of the device (Comm::device)
// takes the device's own buffers instead, in the order of the stream, and the host waits for nothing. So does a rank that is
// alone in its group, if the device sums the squares of gradients: its values stay in memory of the device.
//
// A reduction with DDH_REDUCE_ADD starts from this rank's dst, which no other rank has. Staging is then larger by the
// segment. With a transport without DDH_COMM_INITIAL, the ranks send the pieces themselves (all_to_all) and the host
// sums them. This takes host memory (tag comm) of the size of one segment for each rank.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "ddh/sdk/collective.hpp"
#include "engine/numerics/kernels.hpp"
#include "engine/services/memory/windows.hpp"

namespace ddhost {
namespace {

// A block of tagged memory.
class Block {
 public:
  Block(Memory& memory, int32_t tag, uint64_t bytes, const char* name, const std::string& owner = "",
        int32_t kind = DDH_MEM_DEVICE)
      : memory_(memory),
        data_(memory.allocate({sizeof(ddh_alloc_args), tag, bytes, kind, DDH_ALLOC_ZERO, name}, owner)) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { memory_.release(data_); }
  [[nodiscard]] char* data() const { return static_cast<char*>(data_); }

 private:
  Memory& memory_;
  void* data_;
};

// The memory of a window or an exchange: a block of the transport of the device, if that has memory of its own; else a
// block of the device, about which that transport is told.
class CommBlock {
 public:
  // `most_bytes`: the largest `bytes` of the group's ranks. [collective]
  CommBlock(const Comm& comm, Memory& memory, ddh_group* group, int32_t tag, uint64_t bytes, uint64_t most_bytes,
            const char* name, const std::string& owner)
      : memory_(memory), of_transport_(comm.device(), comm.group_or_world(group), rounded(most_bytes)) {
    data_ = static_cast<char*>(of_transport_.data());
    if (data_ == nullptr) {
      data_ = of_device_.emplace(memory, tag, bytes, name, owner).data();
      registration_.emplace(comm.device(), comm.group_or_world(group), data_, bytes);
      return;
    }
    Device& device = memory.device();
    device.call()(PluginCall::kDeviceWork, device.flatops().fill, device.context(), data_, DDH_I64,
                  rounded(most_bytes) / sizeof(int64_t), 0.0, nullptr);
    device.synchronize(nullptr);
    memory_.adopt(data_, tag, bytes);
  }
  CommBlock(const CommBlock&) = delete;
  CommBlock& operator=(const CommBlock&) = delete;
  ~CommBlock() {
    if (!of_device_) memory_.forget(data_);
  }
  [[nodiscard]] char* data() const { return data_; }

 private:
  static uint64_t rounded(uint64_t bytes) { return (std::max<uint64_t>(bytes, 1) + 255) / 256 * 256; }

  Memory& memory_;
  const DeviceComm::Block of_transport_;
  std::optional<Block> of_device_;
  std::optional<DeviceComm::Registration> registration_;
  char* data_ = nullptr;
};

ddh_coll pieces(const Comm& comm, ddh_group* group, int32_t dtype, const Segments& segments, const std::string& label) {
  ddh_coll c = ddh::collective(dtype, label.c_str());
  c.op = DDH_SUM;
  c.counts = segments.numel.data();
  c.group = comm.group_or_world(group);
  return c;
}

Segments segments_of(const Comm& comm, ddh_group* group, const uint64_t* segment_numel) {
  int32_t rank = 0, size = 1;
  comm.group_info(comm.group_or_world(group), &rank, &size, nullptr);
  return {segment_numel, rank, size};
}

// Whether a rank has memory of a device and no other rank to exchange it with.
bool is_alone(const Device& device, const Segments& segments) {
  return !device.is_host_memory() && segments.numel.size() == 1;
}

// `dst` may be pinned memory.
void copy_alone(const Memory& memory, void* dst, const void* src, uint64_t bytes, ddh_stream* stream) {
  if (dst != src && bytes > 0) memory.device().copy(dst, memory.kind_of(dst), src, memory.kind_of(src), bytes, stream);
}

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

class CopyExchange final : public ddh_exchange {
 public:
  CopyExchange(const Comm& comm, Memory& memory, Staging& staging, const ddh_exchange_args& args,
               const WindowSettings& settings, const std::string& owner)
      : comm_(comm),
        memory_(memory),
        staging_(staging),
        group_(args.group),
        ranks_(comm.ranks_of(args.group)),
        numel_(args.numel),
        reduce_block_(reduce_block_in(comm, args.group, settings)),
        round_to_bf16_(settings.round_to_bf16),
        name_(args.name == nullptr ? "unnamed" : args.name),
        buffer_(comm, memory, args.group, DDH_TAG_GRAD, args.numel * sizeof(float), args.numel * sizeof(float),
                name_.c_str(), owner),
        ready_(memory.device()),
        reduced_(memory.device()) {
    comm.group_info(comm.group_or_world(group_), nullptr, nullptr, &caps_);
  }

  float* buffer() override { return reinterpret_cast<float*>(buffer_.data()); }
  void write_begin(ddh_stream* stream) override { reduced_.order(stream); }
  void ready(ddh_stream* stream) override { ready_.set(stream); }
  void wait(ddh_stream* stream) override { reduced_.order(stream); }

  void reduce(const ddh_reduce_args& args, NormSink& norm, ddh_stream* stream) override {
    const Segments segments = segments_of(comm_, group_, args.segment_numel);
    if (segments.total > numel_) {
      ddh::fail(DDH_OUT_OF_RANGE, "a reduction of ", segments.total, " elements in exchange '", name_, "' of ", numel_);
    }
    require_reducible(args, name_);
    const ClockSpan span(comm_.clock(), DDH_SPAN_COMM,
                         SpanTopic(kReduceOperation, nullptr, name_.c_str()).among(comm_.members_of(group_)));
    float* const dst = args.dst != nullptr ? args.dst : buffer() + segments.my_offset;
    ready_.order(stream);
    const bool alone = is_alone(memory_.device(), segments) && norm.sums_on_device();
    if (const DeviceComm* const transport = comm_.device(); transport != nullptr || alone)
      reduce_on_device(transport, segments, args, dst, norm, stream);
    else
      reduce_staged(segments, args, dst, norm, stream);
    reduced_.set(stream);
    comm_.count_sent(sent_in_reduction(ranks_, segments, args), kReduceOperation);
  }

 private:
  // In memory of the device; without a transport the sum is this rank's contribution. A sum in ordinary memory of the host is
  // computed in memory of the device first.
  void reduce_on_device(const DeviceComm* transport, const Segments& segments, const ddh_reduce_args& args, float* dst,
                        NormSink& norm, ddh_stream* stream) {
    const uint64_t my_bytes = segments.my_numel * sizeof(float);
    // A rank without a segment has nothing away, though its place at the end of the buffer belongs to no block.
    const bool add = (args.flags & DDH_REDUCE_ADD) != 0;
    const bool away = my_bytes > 0 && memory_.kind_of(dst) == DDH_MEM_HOST;
    const uint64_t rounded_bytes = round_to_bf16_ ? segments.total * sizeof(uint16_t) : 0;
    char* const scratch = scratch_of(std::max(rounded_bytes, away ? my_bytes : 0), stream);
    if (round_to_bf16_) round_on_device(scratch, segments.total, stream);
    float* const sum = away ? reinterpret_cast<float*>(scratch) : dst;
    Device& device = memory_.device();
    if (away && add) device.copy(sum, DDH_MEM_DEVICE, dst, DDH_MEM_HOST, my_bytes, stream);
    ddh_coll c = pieces(comm_, group_, DDH_F32, segments, name_);
    c.send = buffer();
    c.recv = sum;
    c.initial = add ? sum : nullptr;
    c.stream = stream;
    if (transport != nullptr)
      transport->queue(PluginCall::kReduceScatter, &ddh_comm_backend_api::reduce_scatter, c);
    else if (add)
      device.call()(PluginCall::kDeviceWork, device.flatops().add, device.context(), sum, buffer(), segments.total,
                    stream);
    else
      copy_alone(memory_, sum, buffer(), my_bytes, stream);
    if ((args.flags & DDH_REDUCE_NORM) != 0)
      norm.add_device_gradient(sum, 0, segments.my_numel, {args.ranges, args.n_ranges}, stream);
    if ((args.flags & DDH_REDUCE_TO_ALL) != 0) {
      c.send = sum;
      c.recv = buffer();
      c.initial = nullptr;
      if (transport != nullptr)
        transport->queue(PluginCall::kAllGather, &ddh_comm_backend_api::all_gather, c);
      else
        copy_alone(memory_, buffer(), sum, my_bytes, stream);
    }
    if (!away) return;
    device.copy(dst, DDH_MEM_HOST, sum, DDH_MEM_DEVICE, my_bytes, stream);
    device.synchronize(stream);
  }

  // Rounds the contribution in place: to bf16 and back.
  void round_on_device(void* rounded, uint64_t numel, ddh_stream* stream) {
    Device& device = memory_.device();
    const auto cast = [&](void* to, int32_t to_dtype, const void* from, int32_t from_dtype) {
      device.call()(PluginCall::kDeviceWork, device.flatops().cast, device.context(), to, to_dtype, from, from_dtype,
                    numel, stream);
    };
    cast(rounded, DDH_BF16, buffer(), DDH_F32);
    cast(buffer(), DDH_F32, rounded, DDH_BF16);
  }

  // Memory of the device for one call; its content is undefined.
  char* scratch_of(uint64_t bytes, ddh_stream* stream) {
    if (bytes == 0) return nullptr;
    reduced_.order(stream);  // the last use
    if (scratch_bytes_ < bytes) {
      if (scratch_) memory_.device().synchronize(stream);
      scratch_.reset();
      scratch_.emplace(memory_, DDH_TAG_COMM, bytes, "sums of gradients");
      scratch_bytes_ = bytes;
    }
    return scratch_->data();
  }

  void reduce_staged(const Segments& segments, const ddh_reduce_args& args, float* dst, NormSink& norm,
                     ddh_stream* stream) {
    const uint64_t all_bytes = segments.total * sizeof(float), my_bytes = segments.my_numel * sizeof(float);
    const bool add = (args.flags & DDH_REDUCE_ADD) != 0;
    const bool dst_here = staging_.is_here(dst);
    const uint64_t start_bytes = add && !dst_here ? my_bytes : 0;
    auto* const all = reinterpret_cast<float*>(staging_.begin(buffer(), all_bytes + start_bytes));
    // The memory of the sum on the host: dst itself, or its copy after the contribution, or the contribution's memory.
    float* const sum = dst_here ? dst : all + (add ? segments.total : segments.my_offset);
    staging_.fetch(all, buffer(), all_bytes, stream);
    if (dst_here)
      staging_.claim(dst, my_bytes, stream);
    else if (add)
      staging_.fetch(sum, dst, my_bytes, stream);
    // Transports return bf16 sums in bf16, so rounded values are sent as fp32.
    if (round_to_bf16_) kernels::round_to_bf16(all, segments.total);
    const bool at_once = (args.flags & DDH_REDUCE_TO_ALL) != 0 && !add && sums_for_all();
    if (at_once)
      sum_for_all(segments, all, sum);
    else
      sum_over_ranks(segments, all, sum, add);
    if (!dst_here) staging_.store(dst, sum, my_bytes, stream);
    if ((args.flags & DDH_REDUCE_NORM) != 0) {
      const PartSpan span(comm_.clock(), StepPart::norm, "norm", name_.c_str());
      norm.add_gradient(sum, 0, segments.my_numel, {args.ranges, args.n_ranges});
    }
    if ((args.flags & DDH_REDUCE_TO_ALL) != 0) {
      staging_.wait();
      ddh_coll c = pieces(comm_, group_, DDH_F32, segments, name_);
      c.send = sum;
      c.recv = all;
      if (!at_once) comm_.call(PluginCall::kAllGather, comm_.backend()->all_gather, &c);
      staging_.store(buffer(), all, all_bytes, stream);
    }
  }

  // Whether one all_reduce gives the bits of a reduce_scatter and an all_gather. Between hosts it may send less.
  [[nodiscard]] bool sums_for_all() const {
    return (caps_ & DDH_COMM_ORDERED_SUM) != 0 && comm_.backend()->all_reduce != nullptr;
  }
  // `all` becomes the sums over the ranks, and `sum` this rank's segment of them.
  void sum_for_all(const Segments& segments, float* all, float* sum) {
    ddh_coll c = pieces(comm_, group_, DDH_F32, segments, name_);
    c.send = all;
    c.recv = all;
    c.count = segments.total;
    c.counts = nullptr;
    comm_.call(PluginCall::kAllReduce, comm_.backend()->all_reduce, &c);
    if (segments.my_numel > 0 && sum != all + segments.my_offset)
      std::memcpy(sum, all + segments.my_offset, segments.my_numel * sizeof(float));
  }

  // sum = this rank's segment of `all`, summed over the ranks; `from_sum`: the fold starts from the values in `sum`.
  void sum_over_ranks(const Segments& segments, float* all, float* sum, bool from_sum) {
    ddh_coll c = pieces(comm_, group_, DDH_F32, segments, name_);
    c.send = all;
    c.recv = sum;
    if (from_sum && (caps_ & DDH_COMM_INITIAL) == 0) return add_over_ranks(segments, c, sum);
    c.initial = from_sum ? sum : nullptr;
    reduce_scatter(c);
  }

  // The same for a transport that can't start a sum from a value. `c` has the data to send.
  void add_over_ranks(const Segments& segments, ddh_coll c, float* sum) {
    if ((caps_ & DDH_COMM_ORDERED_SUM) == 0) {  // no order is promised
      auto* const mine = const_cast<float*>(static_cast<const float*>(c.send)) + segments.my_offset;
      c.recv = mine;
      reduce_scatter(c);
      return kernels::add(sum, mine, segments.my_numel);
    }
    if (comm_.backend()->all_to_all == nullptr) {
      ddh::fail(DDH_UNIMPLEMENTED, "exchange '", name_,
                "' accumulates micro-batches, but this transport has neither sums ",
                "that start from a value (DDH_COMM_INITIAL) nor all_to_all; set train.reduce_order=micro_first, or ",
                "choose another with --comm");
    }
    const auto n = segments.numel.size();
    const std::vector<uint64_t> from_each(n, segments.my_numel);
    if (received_numel_ < n * segments.my_numel) {
      received_.reset();
      received_.emplace(memory_, DDH_TAG_COMM, n * segments.my_numel * sizeof(float), "pieces of gradients", "",
                        DDH_MEM_PINNED);
      received_numel_ = n * segments.my_numel;
    }
    auto* const received = reinterpret_cast<float*>(received_->data());
    c.recv = received;
    c.recv_counts = from_each.data();
    comm_.call(PluginCall::kCollective, comm_.backend()->all_to_all, &c);
    std::vector<const float*> sources;
    for (size_t r = 0; r < n; ++r) sources.push_back(received + r * segments.my_numel);
    kernels::ordered_sum(sum, {sources.data(), static_cast<uint32_t>(n), reduce_block_}, 0, segments.my_numel, true);
  }

  void reduce_scatter(const ddh_coll& c) {
    if (comm_.backend()->reduce_scatter == nullptr)
      ddh::fail(DDH_UNIMPLEMENTED, "this transport has no reduce_scatter; choose another with --comm");
    comm_.call(PluginCall::kReduceScatter, comm_.backend()->reduce_scatter, &c);
  }

  const Comm& comm_;
  Memory& memory_;
  Staging& staging_;
  ddh_group* const group_;
  const ddh::GroupRanks ranks_;
  const uint64_t numel_;
  const uint32_t reduce_block_;
  const bool round_to_bf16_;
  const std::string name_;
  CommBlock buffer_;
  StreamMark ready_, reduced_;
  uint32_t caps_ = 0;  // of the transport
  std::optional<Block> received_;
  uint64_t received_numel_ = 0;
  std::optional<Block> scratch_;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<ddh_window> make_copy_window(const Comm& comm, Memory& memory, Staging& staging,
                                             const ddh_window_args& args, bool poison, const std::string& owner) {
  return std::make_unique<CopyWindow>(comm, memory, staging, args, poison, "a window of " + owner);
}

std::unique_ptr<ddh_exchange> make_copy_exchange(const Comm& comm, Memory& memory, Staging& staging,
                                                 const ddh_exchange_args& args, const WindowSettings& settings,
                                                 const std::string& owner) {
  return std::make_unique<CopyExchange>(comm, memory, staging, args, settings, "an exchange of " + owner);
}

}  // namespace ddhost
