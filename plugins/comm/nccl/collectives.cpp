// SPDX-License-Identifier: Apache-2.0
#include "collectives.hpp"

#include <algorithm>

namespace nccl DDH_HIDDEN {
namespace {

char* bytes(void* p) { return static_cast<char*>(p); }
const char* bytes(const void* p) { return static_cast<const char*>(p); }

uint64_t width_of(const ddh_coll& c) {
  const uint64_t width = ddh_dtype_bytes(c.dtype);
  if (width == 0) ddh::fail(DDH_UNIMPLEMENTED, "dtype ", c.dtype, " is unknown to comm 'nccl'");
  return width;
}

// The order of sums matters for floating-point numbers.
bool is_order_free(const ddh_coll& c) { return c.op != DDH_SUM || c.dtype == DDH_I32 || c.dtype == DDH_I64; }

DataType type_of(const ddh_coll& c) {
  switch (c.dtype) {
    case DDH_F32:
      return kFloat32;
    case DDH_F64:
      return kFloat64;
    case DDH_BF16:
      return kBfloat16;
    case DDH_I32:
      return kInt32;
    case DDH_I64:
      return kInt64;
    default:
      ddh::fail(DDH_UNIMPLEMENTED, "comm 'nccl' does not reduce dtype ", c.dtype, "; use F32, F64, BF16, I32 or I64");
  }
}

RedOp op_of(const ddh_coll& c) {
  switch (c.op) {
    case DDH_SUM:
      return kSum;
    case DDH_MAX:
      return kMax;
    case DDH_MIN:
      return kMin;
    default:
      ddh::fail(DDH_UNIMPLEMENTED, "comm 'nccl' has no reduction ", c.op, "; use SUM, MAX or MIN");
  }
}

}  // namespace

Scratch::Scratch(const ddh::Host& host) : host_(host) {}

Scratch::~Scratch() {
  if (used_ != nullptr) host_.stream->event_destroy(host_.h, used_);
  if (block_ != nullptr) host_.alloc->release(host_.h, block_);
}

float* Scratch::begin(uint64_t wanted, ddh_stream* stream) {
  if (used_ == nullptr) ddh::call(host_.stream->event_create, host_.h, &used_);
  ddh::call(host_.stream->wait, host_.h, stream, used_);
  if (wanted > bytes_) {
    ddh::call(host_.stream->synchronize, host_.h, stream);
    host_.alloc->release(host_.h, std::exchange(block_, nullptr));
    bytes_ = 0;
    const ddh_alloc_args args{
        sizeof(ddh_alloc_args), DDH_TAG_COMM, wanted, DDH_MEM_DEVICE, 0, "contributions to a sum in rank order"};
    ddh::call(host_.alloc->allocate, host_.h, &args, &block_);
    bytes_ = wanted;
  }
  return static_cast<float*>(block_);
}

void Scratch::end(ddh_stream* stream) { ddh::call(host_.stream->record, host_.h, used_, stream); }

// Sizes and places of the ranks' pieces in a buffer, in bytes.
struct Group::Pieces {
  std::vector<uint64_t> size, offset;
  bool equal = true;

  Pieces(uint64_t width, uint64_t count, const uint64_t* counts, int n) {
    uint64_t at = 0;
    for (int r = 0; r < n; ++r) {
      size.push_back((counts != nullptr ? counts[r] : count) * width);
      offset.push_back(at);
      at += size.back();
      equal = equal && size.back() == size.front();
    }
  }
  // `count` elements in parts for n ranks, cut at multiples of 16 elements.
  static Pieces parts(uint64_t width, uint64_t count, int n) {
    const auto ranks = static_cast<uint64_t>(n);
    const uint64_t part = (count + 16 * ranks - 1) / (16 * ranks) * 16;
    std::vector<uint64_t> counts;
    for (uint64_t r = 0; r < ranks; ++r) counts.push_back(std::min(part, count - std::min(count, r * part)));
    return {width, 0, counts.data(), n};
  }
};

Stream Group::stream_of(const ddh_coll& c) const {
  return static_cast<Stream>(host_.stream->native(host_.h, c.stream));
}

void Group::gather(const ddh_coll& c, const char* send, char* recv, const Pieces& pieces) {
  const Stream stream = stream_of(c);
  communicator_->queue("an all_gather", [&](Comm comm) {
    if (pieces.equal) {
      if (pieces.size.front() > 0)
        communicator_->check(library_.AllGather(send, recv, pieces.size.front(), kUint8, comm, stream),
                             "ncclAllGather");
      return;
    }
    for (int r = 0; r < communicator_->size(); ++r) {
      const auto i = static_cast<size_t>(r);
      if (pieces.size[i] == 0) continue;
      char* const to = recv + pieces.offset[i];
      const void* const from = r == communicator_->rank() ? send : to;
      communicator_->check(library_.Broadcast(from, to, pieces.size[i], kUint8, r, comm, stream), "ncclBroadcast");
    }
  });
}

void Group::exchange(const ddh_coll& c, const char* send, const Pieces& sent, char* recv, const Pieces& got,
                     bool with_own) {
  const Stream stream = stream_of(c);
  communicator_->queue("an all_to_all", [&](Comm comm) {
    for (int r = 0; r < communicator_->size(); ++r) {
      if (r == communicator_->rank() && !with_own) continue;
      const auto i = static_cast<size_t>(r);
      if (sent.size[i] > 0)
        communicator_->check(library_.Send(send + sent.offset[i], sent.size[i], kUint8, r, comm, stream), "ncclSend");
      if (got.size[i] > 0)
        communicator_->check(library_.Recv(recv + got.offset[i], got.size[i], kUint8, r, comm, stream), "ncclRecv");
    }
  });
}

void Group::fold(float* dst, const std::vector<const float*>& sources, bool from_dst, uint64_t numel,
                 ddh_stream* stream) {
  ddh::call(host_.flatops->ordered_sum, host_.h, dst, sources.data(), static_cast<uint32_t>(sources.size()),
            order_.reduce_block, from_dst ? DDH_SUM_FROM_DST : 0U, numel, stream);
}

void Group::sum_in_order(const ddh_coll& c, const Pieces& pieces, float* recv, const float* initial) {
  const auto n = static_cast<size_t>(communicator_->size()), me = static_cast<size_t>(communicator_->rank());
  const uint64_t mine = pieces.size[me], numel = mine / sizeof(float);
  const std::vector<uint64_t> counts(n, mine);
  const Pieces got(1, 0, counts.data(), communicator_->size());
  char* const contributions = reinterpret_cast<char*>(scratch_.begin(n * mine, c.stream));
  // `initial` is copied to recv, which may be this rank's contribution.
  const bool copies = initial != nullptr && initial != recv;
  exchange(c, bytes(c.send), pieces, contributions, got, copies);
  std::vector<const float*> sources;
  for (size_t r = 0; r < n; ++r) sources.push_back(reinterpret_cast<const float*>(contributions + got.offset[r]));
  if (!copies) sources[me] = reinterpret_cast<const float*>(bytes(c.send) + pieces.offset[me]);
  if (numel > 0) {
    if (copies) copy(recv, initial, numel, c.stream);
    fold(recv, sources, initial != nullptr, numel, c.stream);
  }
  scratch_.end(c.stream);
}

// An initial value is added afterwards. `name` is for messages.
void Group::sum_by_nccl(const ddh_coll& c, uint64_t count, const char* name, bool all) {
  if (count == 0) return;
  const Stream stream = stream_of(c);
  void* const to = c.initial == nullptr ? c.recv : scratch_.begin(count * sizeof(float), c.stream);
  communicator_->queue(name, [&](Comm comm) {
    const Result result = all ? library_.AllReduce(c.send, to, count, type_of(c), op_of(c), comm, stream)
                              : library_.ReduceScatter(c.send, to, count, type_of(c), op_of(c), comm, stream);
    communicator_->check(result, all ? "ncclAllReduce" : "ncclReduceScatter");
  });
  if (c.initial == nullptr) return;
  auto* const recv = static_cast<float*>(c.recv);
  if (c.initial != c.recv) copy(recv, static_cast<const float*>(c.initial), count, c.stream);
  ddh::call(host_.flatops->add, host_.h, recv, static_cast<const float*>(to), count, c.stream);
  scratch_.end(c.stream);
}

namespace {

void require_reducible(const ddh_coll& c, bool ordered) {
  if (c.initial != nullptr && (c.dtype != DDH_F32 || c.op != DDH_SUM))
    ddh::fail(DDH_UNIMPLEMENTED, "comm 'nccl' starts only sums of F32 from a value, not op ", c.op, " of dtype ",
              c.dtype);
  if (!ordered || is_order_free(c) || c.dtype == DDH_F32) return;
  ddh::fail(DDH_UNIMPLEMENTED, "comm 'nccl' sums F32 in rank order, but not dtype ", c.dtype,
            "; use F32, or set comm.ordered_sums=false");
}

}  // namespace

void Group::reduce_scatter(const ddh_coll& c) {
  require_reducible(c, order_.ordered);
  const Pieces pieces(width_of(c), c.count, c.counts, communicator_->size());
  const bool sums_f32 = c.dtype == DDH_F32 && c.op == DDH_SUM;
  if (sums_f32 && (order_.ordered || !pieces.equal))
    return sum_in_order(c, pieces, static_cast<float*>(c.recv), static_cast<const float*>(c.initial));
  if (!pieces.equal)
    ddh::fail(DDH_UNIMPLEMENTED, "NCCL's reduce_scatter takes equal pieces; give equal counts for dtype ", c.dtype);
  sum_by_nccl(c, pieces.size.front() / width_of(c), "a reduce_scatter", false);
}

void Group::all_reduce(const ddh_coll& c) {
  require_reducible(c, order_.ordered);
  const bool sums_f32 = c.dtype == DDH_F32 && c.op == DDH_SUM;
  if (!sums_f32 || !order_.ordered) return sum_by_nccl(c, c.count, "an all_reduce", true);
  const Pieces parts = Pieces::parts(sizeof(float), c.count, communicator_->size());
  const uint64_t at = parts.offset[static_cast<size_t>(communicator_->rank())];
  char* const mine = bytes(c.recv) + at;
  const void* const initial = c.initial == nullptr ? nullptr : bytes(c.initial) + at;
  sum_in_order(c, parts, reinterpret_cast<float*>(mine), static_cast<const float*>(initial));
  gather(c, mine, bytes(c.recv), parts);
}

void Group::all_gather(const ddh_coll& c) {
  gather(c, bytes(c.send), bytes(c.recv), Pieces(width_of(c), c.count, c.counts, communicator_->size()));
}

void Group::broadcast(const ddh_coll& c) {
  const uint64_t size = c.count * width_of(c);
  if (size == 0) return;
  const void* const from = c.root == communicator_->rank() ? c.send : c.recv;
  communicator_->queue("a broadcast", [&](Comm comm) {
    communicator_->check(library_.Broadcast(from, c.recv, size, kUint8, c.root, comm, stream_of(c)), "ncclBroadcast");
  });
}

void Group::all_to_all(const ddh_coll& c) {
  const uint64_t width = width_of(c);
  const Pieces sent(width, c.count, c.counts, communicator_->size());
  const Pieces got(width, c.count, c.recv_counts, communicator_->size());
  exchange(c, bytes(c.send), sent, bytes(c.recv), got, true);
}

void Group::send(const ddh_coll& c) {
  communicator_->queue("a send", [&](Comm comm) {
    communicator_->check(library_.Send(c.send, c.count * width_of(c), kUint8, c.root, comm, stream_of(c)), "ncclSend");
  });
}

void Group::recv(const ddh_coll& c) {
  communicator_->queue("a recv", [&](Comm comm) {
    communicator_->check(library_.Recv(c.recv, c.count * width_of(c), kUint8, c.root, comm, stream_of(c)), "ncclRecv");
  });
}

}  // namespace DDH_HIDDEN
