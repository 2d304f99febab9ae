// SPDX-License-Identifier: Apache-2.0
#include "group.hpp"

#include <algorithm>
#include <cstring>

#include "../ordered_sum.hpp"

namespace messages {
namespace {

enum Kind : uint32_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kPointToPoint, kBarrier };
constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                  "all_to_all", "send and recv",  "barrier"};

Call call_of(Kind kind, const ddh_coll& c) { return {kNames[kind], c.label, kind, c.dtype}; }

std::byte* bytes_at(void* p) { return static_cast<std::byte*>(p); }
const std::byte* bytes_at(const void* p) { return static_cast<const std::byte*>(p); }

uint64_t element_bytes(int32_t dtype) {
  const uint64_t size = ddh_dtype_bytes(dtype);
  if (size == 0) ddh::fail(DDH_UNIMPLEMENTED, "this transport does not know dtype ", dtype, "; use one of ddh/abi.h");
  return size;
}

void require_foldable(const ddh_coll& c) {
  const bool has_start = c.initial == nullptr || (c.dtype == DDH_F32 && c.op == DDH_SUM);
  if (ordered_sum::can_reduce(c.dtype, c.op) && has_start) return;
  ddh::fail(DDH_UNIMPLEMENTED, "this transport reduces with SUM, MAX or MIN over F32, F64, BF16, I32 or I64, and ",
            "starts only sums of F32 from a value; it was asked for op ", c.op, " over dtype ", c.dtype,
            c.initial != nullptr ? " from a value" : "");
}

template <class Waits>
void wait_all(Waits& messages) {
  for (auto& message : messages)
    if (message != nullptr) message->wait();
  messages.clear();
}

// A chunk is long enough for the rate of a link, and those of all ranks together stay small. With 4 MiB a sum of 64 MB over
// gloo took 1.2 to 1.3 times as long (2 ranks, Zen 4). Two chunks of a peer are on their way at a time.
constexpr uint64_t kChunkBytes = uint64_t{1} << 20, kScratchBytes = uint64_t{1} << 25;
uint64_t chunk_for(uint64_t others) {
  return std::max<uint64_t>(std::min(kChunkBytes, kScratchBytes / (2 * std::max<uint64_t>(others, 1))) / 4096 * 4096,
                            4096);
}

// Below this size a copy into the frame takes less time than a second message. The floor is for groups of many ranks. A frame
// is never longer than a chunk.
constexpr uint64_t kFrameBytes = (uint64_t{1} << 16) + 4096, kLeastFrameBytes = 2048;
constexpr uint64_t kAllFramesBytes = uint64_t{1} << 22;
uint64_t frame_for(uint64_t others) {
  return std::clamp(kAllFramesBytes / std::max<uint64_t>(others, 1), kLeastFrameBytes, kFrameBytes);
}

}  // namespace

Group::Group(Member member, std::unique_ptr<Links> links)
    : member_(std::move(member)),
      links_(std::move(links)),
      chunk_(chunk_for(member_.world_ranks.size() - 1)),
      frame_(frame_for(member_.world_ranks.size() - 1)),
      scratch_(2 * (member_.world_ranks.size() - 1) * chunk_),
      pairs_(member_.world_ranks.size()) {
  for (size_t r = 0; r < pairs_.size(); ++r)
    if (static_cast<int32_t>(r) != member_.rank)
      for (std::vector<std::byte>* frame : {&pairs_[r].out, &pairs_[r].in}) frame->resize(frame_);
  if (member_.reduce_block == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "group '", member_.name,
              "' has blocks of 0 ranks; give a reduce_block of at least 1");
}

uint64_t Group::bytes(uint32_t size) {
  const uint64_t others = size > 1 ? size - 1 : 0;
  return others * 2 * (chunk_for(others) + frame_for(others));
}

void Group::require_peer(int32_t rank) const {
  if (rank < 0 || rank >= size())
    ddh::fail(DDH_OUT_OF_RANGE, "rank ", rank, " is not in a group of ", size(), "; ranks count from 0");
}

Pieces Group::pieces(uint64_t count, const uint64_t* counts, int32_t dtype) const {
  const uint64_t width = element_bytes(dtype);
  Pieces out;
  uint64_t at = 0;
  for (size_t r = 0; r < member_.world_ranks.size(); ++r) {
    out.bytes.push_back((counts != nullptr ? counts[r] : count) * width);
    out.offset.push_back(at);
    at += out.bytes.back();
    out.largest = std::max(out.largest, out.bytes.back());
  }
  return out;
}

std::vector<Part> Group::parts_of(const Pieces& out, const std::byte* from, const Pieces& in, std::byte* to) const {
  std::vector<Part> parts;
  for (size_t r = 0; r < member_.world_ranks.size(); ++r)
    parts.push_back({static_cast<int32_t>(r), from + out.offset[r], out.bytes[r], to + in.offset[r], in.bytes[r]});
  return parts;
}

void Group::copy_own(const Call& call, const Part& part) const {
  if (part.out_bytes != part.in_bytes)
    ddh::fail(DDH_INVALID_ARGUMENT, call.name, " sends this rank ", part.out_bytes, " bytes of its own and expects ",
              part.in_bytes, "; the counts of a rank for itself must be equal");
  if (part.in_bytes > 0 && part.in != part.out) std::memmove(part.in, part.out, part.in_bytes);
}

void Group::check(const Call& call, const Part& part, const Header& header) const {
  const auto said = [](const char* label) { return label == nullptr ? std::string() : ddh::str(" ('", label, "')"); };
  const int32_t me = world_rank(rank()), other = world_rank(part.peer);
  if (header.kind != call.kind || header.dtype != call.dtype)
    ddh::fail(DDH_FAILED_PRECONDITION, "rank ", me, " calls ", call.name, said(call.label), " with dtype ", call.dtype,
              ", and rank ", other, " calls ", header.kind < std::size(kNames) ? kNames[header.kind] : "something else",
              " with dtype ", header.dtype, "; all ranks of a group must make the same calls in the same order");
  if (header.bytes != part.in_bytes)
    ddh::fail(DDH_INVALID_ARGUMENT, call.name, said(call.label), ": rank ", other, " sends rank ", me, " ",
              header.bytes / element_bytes(call.dtype), " elements, but rank ", me, " expects ",
              part.in_bytes / element_bytes(call.dtype), "; the counts of all ranks must agree");
}

std::unique_ptr<Message> Group::send_frame(const Call& call, const Part& part, Messages& sent) {
  Pair& pair = pairs_[static_cast<size_t>(part.peer)];
  auto coming = links_->receive(Channel::kFrames, part.peer, pair.in.data(), frame_);
  const Header header{call.kind, call.dtype, part.out_bytes};
  std::memcpy(pair.out.data(), &header, sizeof header);
  const uint64_t carried = is_inline(part.out_bytes) ? part.out_bytes : 0;
  if (carried > 0) std::memcpy(pair.out.data() + sizeof header, part.out, carried);
  sent.push_back(links_->send(Channel::kFrames, part.peer, pair.out.data(), sizeof header + carried));
  return coming;
}

const std::byte* Group::receive_frame(const Call& call, const Part& part, Message& coming) {
  const Pair& pair = pairs_[static_cast<size_t>(part.peer)];
  coming.wait();
  Header header{};
  std::memcpy(&header, pair.in.data(), sizeof header);
  check(call, part, header);
  return pair.in.data() + sizeof header;
}

void Group::exchange(const Call& call, const std::vector<Part>& parts) {
  Messages sent, received, frames;
  std::vector<std::pair<const Part*, const std::byte*>> small;
  for (const Part& part : parts)
    if (part.peer != rank() && !is_inline(part.in_bytes))
      received.push_back(links_->receive(Channel::kData, part.peer, part.in, part.in_bytes));
  for (const Part& part : parts) {
    if (part.peer == rank()) continue;
    frames.push_back(send_frame(call, part, sent));
    if (!is_inline(part.out_bytes)) sent.push_back(links_->send(Channel::kData, part.peer, part.out, part.out_bytes));
  }
  auto frame = frames.begin();
  for (const Part& part : parts) {
    if (part.peer == rank()) continue;
    const std::byte* const data = receive_frame(call, part, **frame++);
    if (part.in_bytes > 0 && is_inline(part.in_bytes)) small.emplace_back(&part, data);
  }
  wait_all(sent);  // what comes in may replace it
  for (const auto& [part, data] : small) std::memcpy(part->in, data, part->in_bytes);
  wait_all(received);
  for (const Part& part : parts)
    if (part.peer == rank()) copy_own(call, part);
}

void Group::gather(const Call& call, const Pieces& pieces, const std::byte* mine, std::byte* all) {
  const auto me = static_cast<size_t>(rank());
  std::vector<Part> parts;
  for (size_t r = 0; r < pieces.bytes.size(); ++r)
    parts.push_back({static_cast<int32_t>(r), mine, pieces.bytes[me], all + pieces.offset[r], pieces.bytes[r]});
  exchange(call, parts);
}

std::byte* Group::scratch(uint64_t chunk, size_t rank) {
  const size_t others = member_.world_ranks.size() - 1;
  const size_t place = rank > static_cast<size_t>(member_.rank) ? rank - 1 : rank;  // among the others
  return scratch_.data() + (chunk % 2 * others + place) * chunk_;
}

uint64_t Group::chunk_bytes(const Pieces& pieces, size_t rank, uint64_t chunk) const {
  const uint64_t begin = chunk * chunk_;
  return begin >= pieces.bytes[rank] ? 0 : std::min(chunk_, pieces.bytes[rank] - begin);
}

void Group::start_receives(const Fold& f, uint64_t chunk, Messages& received) {
  const auto me = static_cast<size_t>(rank());
  const uint64_t bytes = chunk_bytes(f.pieces, me, chunk);
  for (size_t r = 0; r < f.pieces.bytes.size(); ++r)
    if (r != me && bytes > 0)
      received.push_back(links_->receive(Channel::kData, static_cast<int32_t>(r), scratch(chunk, r), bytes));
}

void Group::start_sends(const Fold& f, uint64_t chunk, Messages& sent) {
  for (size_t r = 0; r < f.pieces.bytes.size(); ++r) {
    const uint64_t bytes = chunk_bytes(f.pieces, r, chunk);
    if (r != static_cast<size_t>(rank()) && bytes > 0)
      sent.push_back(
          links_->send(Channel::kData, static_cast<int32_t>(r), f.from + f.pieces.offset[r] + chunk * chunk_, bytes));
  }
}

void Group::reduce(const Call& call, int32_t op, const std::vector<const void*>& sources, const void* initial,
                   void* sums, uint64_t bytes) const {
  if (bytes == 0) return;
  void* const destinations[] = {sums};
  ordered_sum::ordered_reduce({call.dtype, op, member_.reduce_block, static_cast<uint32_t>(sources.size()),
                               sources.data(), 1, destinations, bytes / element_bytes(call.dtype), initial});
}

void Group::fold_chunk(const Fold& f, uint64_t chunk) {
  const auto me = static_cast<size_t>(rank());
  std::vector<const void*> sources;
  for (size_t r = 0; r < f.pieces.bytes.size(); ++r)
    sources.push_back(r == me ? f.from + f.pieces.offset[me] + chunk * chunk_ : scratch(chunk, r));
  reduce(f.call, f.op, sources, f.initial == nullptr ? nullptr : f.initial + chunk * chunk_, f.sums + chunk * chunk_,
         chunk_bytes(f.pieces, me, chunk));
}

void Group::share_chunk(const Fold& f, uint64_t chunk, Messages& shared) {
  const auto me = static_cast<size_t>(rank());
  for (size_t r = 0; r < f.pieces.bytes.size(); ++r) {
    if (r == me) continue;
    const auto peer = static_cast<int32_t>(r);
    if (const uint64_t bytes = chunk_bytes(f.pieces, r, chunk); bytes > 0)
      shared.push_back(links_->receive(Channel::kData, peer, f.all + f.pieces.offset[r] + chunk * chunk_, bytes));
    if (const uint64_t bytes = chunk_bytes(f.pieces, me, chunk); bytes > 0)
      shared.push_back(links_->send(Channel::kData, peer, f.sums + chunk * chunk_, bytes));
  }
}

void Group::fold(const Fold& f) {
  std::vector<Part> parts;
  const auto me = static_cast<size_t>(rank());
  for (size_t r = 0; r < f.pieces.bytes.size(); ++r)
    if (r != me)
      parts.push_back(
          {static_cast<int32_t>(r), f.from + f.pieces.offset[r], f.pieces.bytes[r], scratch(0, r), f.pieces.bytes[me]});
  const bool is_small = is_inline(f.pieces.largest);
  if (is_small) exchange(f.call, parts);
  const uint64_t n_chunks = (f.pieces.largest + chunk_ - 1) / chunk_;
  Messages frames, sent_frames, sent[2], received[2], shared[2];
  for (uint64_t chunk = 0; chunk <= n_chunks; ++chunk) {
    if (chunk < n_chunks && !is_small) {
      start_receives(f, chunk, received[chunk % 2]);
      if (chunk == 0)
        for (const Part& part : parts) frames.push_back(send_frame(f.call, part, sent_frames));
      start_sends(f, chunk, sent[chunk % 2]);
      if (chunk == 0)
        for (size_t i = 0; i < parts.size(); ++i) receive_frame(f.call, parts[i], *frames[i]);
    }
    if (chunk == 0) continue;
    const uint64_t last = chunk - 1;
    wait_all(received[last % 2]);
    wait_all(sent[last % 2]);  // what is shared may replace it
    fold_chunk(f, last);
    wait_all(shared[last % 2]);
    if (f.all != nullptr) share_chunk(f, last, shared[last % 2]);
  }
  for (Messages& messages : shared) wait_all(messages);
  wait_all(sent_frames);
}

// Every rank gets all contributions and folds them itself: one exchange instead of two.
void Group::fold_small(const ddh_coll& c, const Call& call, uint64_t bytes) {
  std::vector<Part> parts;
  std::vector<const void*> sources;
  for (size_t r = 0; r < member_.world_ranks.size(); ++r) {
    const bool is_own = static_cast<int32_t>(r) == rank();
    sources.push_back(is_own ? c.send : scratch(0, r));
    if (!is_own) parts.push_back({static_cast<int32_t>(r), bytes_at(c.send), bytes, scratch(0, r), bytes});
  }
  exchange(call, parts);
  reduce(call, c.op, sources, c.initial, c.recv, bytes);
}

void Group::all_reduce(const ddh_coll& c) {
  require_foldable(c);
  const uint64_t width = element_bytes(c.dtype), ranks = member_.world_ranks.size();
  const Call call = call_of(kAllReduce, c);
  if (ranks == 1) return reduce(call, c.op, {c.send}, c.initial, c.recv, c.count * width);
  // Of two ranks each sends all of its values either way; of more, some bytes are sent more often.
  if (is_inline(c.count * width * (ranks - 1))) return fold_small(c, call, c.count * width);
  const uint64_t share = (c.count + ranks - 1) / ranks;
  std::vector<uint64_t> counts;
  for (uint64_t r = 0; r < ranks; ++r)
    counts.push_back(std::min(c.count, (r + 1) * share) - std::min(c.count, r * share));
  const Pieces cut = pieces(0, counts.data(), c.dtype);
  const uint64_t mine = cut.offset[static_cast<size_t>(rank())];
  fold({call, c.op, cut, bytes_at(c.send), c.initial == nullptr ? nullptr : bytes_at(c.initial) + mine,
        bytes_at(c.recv) + mine, bytes_at(c.recv)});
}

void Group::reduce_scatter(const ddh_coll& c) {
  require_foldable(c);
  const Pieces cut = pieces(c.count, c.counts, c.dtype);
  const Call call = call_of(kReduceScatter, c);
  if (size() == 1) return reduce(call, c.op, {c.send}, c.initial, c.recv, cut.bytes[0]);
  fold({call, c.op, cut, bytes_at(c.send), bytes_at(c.initial), bytes_at(c.recv), nullptr});
}

void Group::all_gather(const ddh_coll& c) {
  gather(call_of(kAllGather, c), pieces(c.count, c.counts, c.dtype), bytes_at(c.send), bytes_at(c.recv));
}

void Group::broadcast(const ddh_coll& c) {
  require_peer(c.root);
  const uint64_t bytes = c.count * element_bytes(c.dtype);
  std::vector<Part> parts;
  for (int32_t r = 0; r < size(); ++r)
    parts.push_back({r, bytes_at(c.send), rank() == c.root ? bytes : 0, bytes_at(c.recv), r == c.root ? bytes : 0});
  exchange(call_of(kBroadcast, c), parts);
}

void Group::all_to_all(const ddh_coll& c) {
  if ((c.counts != nullptr) != (c.recv_counts != nullptr))
    ddh::fail(DDH_INVALID_ARGUMENT, "all_to_all has `counts` or `recv_counts` alone; give both, or neither");
  const Pieces out = pieces(c.count, c.counts, c.dtype), in = pieces(c.count, c.recv_counts, c.dtype);
  exchange(call_of(kAllToAll, c), parts_of(out, bytes_at(c.send), in, bytes_at(c.recv)));
}

void Group::send(const ddh_coll& c) {
  require_peer(c.root);
  exchange(call_of(kPointToPoint, c), {{c.root, bytes_at(c.send), c.count * element_bytes(c.dtype), nullptr, 0}});
}

void Group::receive(const ddh_coll& c) {
  require_peer(c.root);
  exchange(call_of(kPointToPoint, c), {{c.root, nullptr, 0, bytes_at(c.recv), c.count * element_bytes(c.dtype)}});
}

void Group::barrier() {
  ddh_coll nothing{};
  nothing.dtype = DDH_U8;
  gather(call_of(kBarrier, nothing), pieces(0, nullptr, DDH_U8), nullptr, nullptr);
}

}  // namespace messages
