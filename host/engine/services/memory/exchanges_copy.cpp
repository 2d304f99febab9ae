// SPDX-License-Identifier: Apache-2.0
//
// Exchanges over collectives (windows_copy.cpp says of which transports): reduce is a reduce_scatter. On the CPU, with
// DDH_REDUCE_LATER, the transport thread makes these calls while the rank computes.
//
// A reduction with DDH_REDUCE_ADD starts from this rank's dst, which no other rank has. Staging is then larger by the
// segment. With a transport without DDH_COMM_INITIAL, the ranks send the pieces themselves (all_to_all) and the host
// sums them. This takes host memory (tag comm) of the size of one segment for each rank.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/numerics/kernels.hpp"
#include "engine/services/memory/copies.hpp"

namespace ddhost {
namespace {

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
  CopyExchange(const CopyExchange&) = delete;
  CopyExchange& operator=(const CopyExchange&) = delete;
  ~CopyExchange() override {
    if (comm_.thread() != nullptr) comm_.thread()->drop(transfer_);
  }

  float* buffer() override { return reinterpret_cast<float*>(buffer_.data()); }
  void write_begin(ddh_stream* stream) override { wait(stream); }
  void ready(ddh_stream* stream) override { ready_.set(stream); }
  void wait(ddh_stream* stream) override {
    if (comm_.thread() != nullptr) comm_.thread()->wait(transfer_);
    reduced_.order(stream);
  }

  void reduce(const ddh_reduce_args& args, NormSink& norm, ddh_stream* stream) override {
    const Segments segments = segments_of(comm_, group_, args.segment_numel);
    if (segments.total > numel_) {
      ddh::fail(DDH_OUT_OF_RANGE, "a reduction of ", segments.total, " elements in exchange '", name_, "' of ", numel_);
    }
    require_reducible(args, name_);
    comm_.count_sent(sent_in_reduction(ranks_, segments, args), kReduceOperation);
    float* const dst = args.dst != nullptr ? args.dst : buffer() + segments.my_offset;
    if (is_later(args)) return reduce_later(segments, args, dst, norm);
    const ClockSpan span(comm_.clock(), DDH_SPAN_COMM,
                         SpanTopic(kReduceOperation, nullptr, name_.c_str()).among(comm_.members_of(group_)));
    comm_.wait_for_thread();
    ready_.order(stream);
    const bool alone = is_alone(memory_.device(), segments) && norm.sums_on_device();
    if (const DeviceComm* const transport = comm_.device(); transport != nullptr || alone)
      reduce_on_device(transport, segments, args, dst, norm, stream);
    else
      reduce_staged(segments, args, dst, norm, stream);
    reduced_.set(stream);
  }

 private:
  // A profile measures each reduction where it was asked for.
  [[nodiscard]] bool is_later(const ddh_reduce_args& args) const {
    return (args.flags & DDH_REDUCE_LATER) != 0 && comm_.thread() != nullptr && memory_.device().is_host_memory() &&
           !comm_.clock().is_profiled();
  }

  void reduce_later(const Segments& segments, const ddh_reduce_args& args, float* dst, NormSink& norm) {
    comm_.thread()->wait(transfer_);  // drop knows one
    transfer_ = comm_.thread()->start(
        sums_for_all(args.flags) ? PluginCall::kAllReduce : PluginCall::kReduceScatter,
        [this, segments, flags = args.flags, dst] { transfer(segments, flags, buffer(), dst); },
        [my_numel = segments.my_numel, flags = args.flags, dst, &norm,
         ranges = std::vector<ddh_range>(args.ranges, args.ranges + args.n_ranges)] {
          if ((flags & DDH_REDUCE_NORM) != 0) norm.add_gradient(dst, 0, my_numel, ranges);
        });
  }

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
    transfer(segments, args.flags, all, sum);
    if (!dst_here) staging_.store(dst, sum, my_bytes, stream);
    if ((args.flags & DDH_REDUCE_NORM) != 0) {
      const PartSpan span(comm_.clock(), StepPart::norm, "norm", name_.c_str());
      norm.add_gradient(sum, 0, segments.my_numel, {args.ranges, args.n_ranges});
    }
    if ((args.flags & DDH_REDUCE_TO_ALL) != 0) staging_.store(buffer(), all, all_bytes, stream);
  }

  // `sum` becomes this rank's segment of `all`, summed over the ranks; with TO_ALL `all` becomes the sums of all segments.
  void transfer(const Segments& segments, uint32_t flags, float* all, float* sum) {
    // Transports return bf16 sums in bf16, so rounded values are sent as fp32.
    if (round_to_bf16_) kernels::round_to_bf16(all, segments.total);
    if (sums_for_all(flags)) return sum_for_all(segments, all, sum);
    sum_over_ranks(segments, all, sum, (flags & DDH_REDUCE_ADD) != 0);
    if ((flags & DDH_REDUCE_TO_ALL) == 0) return;
    ddh_coll c = pieces(comm_, group_, DDH_F32, segments, name_);
    c.send = sum;
    c.recv = all;
    comm_.call_in_transfer(PluginCall::kAllGather, comm_.backend()->all_gather, &c);
  }

  // Whether one all_reduce gives the bits of a reduce_scatter and an all_gather. Between hosts it may send less.
  [[nodiscard]] bool sums_for_all(uint32_t flags) const {
    return (flags & (DDH_REDUCE_TO_ALL | DDH_REDUCE_ADD)) == DDH_REDUCE_TO_ALL && (caps_ & DDH_COMM_ORDERED_SUM) != 0 &&
           comm_.backend()->all_reduce != nullptr;
  }
  // `all` becomes the sums over the ranks, and `sum` this rank's segment of them.
  void sum_for_all(const Segments& segments, float* all, float* sum) {
    ddh_coll c = pieces(comm_, group_, DDH_F32, segments, name_);
    c.send = all;
    c.recv = all;
    c.count = segments.total;
    c.counts = nullptr;
    comm_.call_in_transfer(PluginCall::kAllReduce, comm_.backend()->all_reduce, &c);
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
    comm_.call_in_transfer(PluginCall::kCollective, comm_.backend()->all_to_all, &c);
    std::vector<const float*> sources;
    for (size_t r = 0; r < n; ++r) sources.push_back(received + r * segments.my_numel);
    kernels::ordered_sum(sum, {sources.data(), static_cast<uint32_t>(n), reduce_block_}, 0, segments.my_numel, true);
  }

  void reduce_scatter(const ddh_coll& c) {
    if (comm_.backend()->reduce_scatter == nullptr)
      ddh::fail(DDH_UNIMPLEMENTED, "this transport has no reduce_scatter; choose another with --comm");
    comm_.call_in_transfer(PluginCall::kReduceScatter, comm_.backend()->reduce_scatter, &c);
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
  CommThread::Number transfer_ = 0;  // the last one of the transport thread
  uint32_t caps_ = 0;                // of the transport
  std::optional<Block> received_;
  uint64_t received_numel_ = 0;
  std::optional<Block> scratch_;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<ddh_exchange> make_copy_exchange(const Comm& comm, Memory& memory, Staging& staging,
                                                 const ddh_exchange_args& args, const WindowSettings& settings,
                                                 const std::string& owner) {
  return std::make_unique<CopyExchange>(comm, memory, staging, args, settings, "an exchange of " + owner);
}

}  // namespace ddhost
