// SPDX-License-Identifier: Apache-2.0
//
// The collectives of a group. Buffers in regions that all ranks map are read and written in place. Other buffers are
// copied through staging, one chunk per round.
#include <algorithm>
#include <cstring>

#include "ddh/sdk/plugin.hpp"
#include "group.hpp"

namespace same_host {
namespace {

std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }
const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }

// memcpy that allows zero bytes, and a copy of a buffer onto itself.
void copy_bytes(std::byte* to, const std::byte* from, uint64_t n) {
  if (n > 0 && to != from) std::memcpy(to, from, n);
}

uint64_t element_bytes(const ddh_coll& c) {
  const uint64_t size = ddh_dtype_bytes(c.dtype);
  if (size == 0) ddh::fail(DDH_UNIMPLEMENTED, "dtype ", c.dtype, " is unknown to this transport");
  return size;
}

void require_reducible(const ddh_coll& c) {
  if (!ordered_sum::can_reduce(c.dtype, c.op)) {
    ddh::fail(DDH_UNIMPLEMENTED, "a reduction with op ", c.op, " over dtype ", c.dtype,
              " is not supported; use SUM, MAX or MIN of F32, F64, BF16, I32 or I64");
  }
  if (c.initial != nullptr && (c.dtype != DDH_F32 || c.op != DDH_SUM)) {
    ddh::fail(DDH_UNIMPLEMENTED, "a reduction with op ", c.op, " over dtype ", c.dtype,
              " can't start from a value; give `initial` with SUM of F32 only");
  }
}

// The value from which the fold starts, `at` bytes into this rank's result.
const void* initial_at(const ddh_coll& c, uint64_t at) {
  return c.initial == nullptr ? nullptr : static_cast<const std::byte*>(c.initial) + at;
}

// [begin, end) of equal parts of `count` elements, cut at multiples of 16 elements.
std::pair<uint64_t, uint64_t> part(uint64_t count, int32_t index, int32_t parts) {
  const uint64_t unit = 16, blocks = (count + unit - 1) / unit, n = static_cast<uint64_t>(parts),
                 i = static_cast<uint64_t>(index);
  return {std::min(count, blocks * i / n * unit), std::min(count, blocks * (i + 1) / n * unit)};
}

}  // namespace

void Group::Pieces::set(const ddh_coll& c, int32_t ranks, const uint64_t* counts) {
  size.clear();
  offset.clear();
  largest = 0;
  uint64_t at = 0;
  for (int32_t r = 0; r < ranks; ++r) {
    offset.push_back(at);
    size.push_back((counts != nullptr ? counts[r] : c.count) * element_bytes(c));
    at += size.back();
    largest = std::max(largest, size.back());
  }
}

void Group::barrier() {
  ddh_coll c{};
  consume(begin_call(c, kBarrier, nullptr, 0));
}

void Group::all_gather(const ddh_coll& c) {
  pieces_.set(c, layout_.size, c.counts);
  gather_pieces(c, kAllGather, pieces_);
}

void Group::broadcast(const ddh_coll& c) {
  if (c.root < 0 || c.root >= layout_.size)
    ddh::fail(DDH_OUT_OF_RANGE, "root ", c.root, " of a group of ", layout_.size);
  pieces_.set(c, layout_.size, c.counts);
  for (int32_t r = 0; r < layout_.size; ++r) {
    if (r != c.root) pieces_.size[static_cast<size_t>(r)] = 0;
    pieces_.offset[static_cast<size_t>(r)] = 0;
  }
  gather_pieces(c, kBroadcast, pieces_);
}

// Copies every rank's piece to every rank, at its offset.
void Group::gather_pieces(const ddh_coll& c, uint32_t kind, const Pieces& pieces) {
  const auto me = static_cast<size_t>(settings_.rank);
  const auto n = static_cast<size_t>(layout_.size);
  const bool small = pieces.largest <= kInlineBytes;
  const uint64_t round = begin_call(c, kind, c.send, small ? pieces.size[me] : 0);
  const bool in_regions = [&] {
    for (size_t r = 0; r < n; ++r) {
      if (pieces.size[r] > 0 && call_slot(static_cast<int32_t>(r), round).call.send_region == 0) return false;
    }
    return true;
  }();
  if (small || in_regions) {
    for (size_t r = 0; r < n; ++r) {
      const CallSlot& theirs = call_slot(static_cast<int32_t>(r), round);
      const std::byte* from = small                ? theirs.payload.data()
                              : pieces.size[r] > 0 ? resolve(theirs.call.send_region, theirs.call.send_offset)
                                                   : nullptr;
      copy_bytes(bytes(c.recv) + pieces.offset[r], r == me ? bytes(c.send) : from, pieces.size[r]);
    }
    consume(round);
    if (!small) wait_all(kConsumed, round, "readers of my piece");  // the caller may overwrite it now
    return;
  }
  consume(round);
  for (uint64_t at = 0; at < pieces.largest; at += layout_.staging_bytes) {
    const uint64_t r_chunk = begin_round("staging");
    const auto length = [&](size_t r) {
      return at < pieces.size[r] ? std::min(layout_.staging_bytes, pieces.size[r] - at) : 0;
    };
    const std::byte* const mine =
        length(me) > 0 ? bytes(c.send) + at : nullptr;  // a rank without a piece has no buffer
    stage(staging(settings_.rank, r_chunk), mine, length(me));
    publish(r_chunk, "pieces of peers");
    for (size_t r = 0; r < n; ++r) {
      const std::byte* const from = r == me ? mine : staging(static_cast<int32_t>(r), r_chunk);
      copy_bytes(bytes(c.recv) + pieces.offset[r] + at, from, length(r));
    }
    consume(r_chunk);
  }
}

void Group::all_reduce(const ddh_coll& c) {
  require_reducible(c);
  const uint64_t size = c.count * element_bytes(c);
  const bool small = size <= kInlineBytes;
  const uint64_t round = begin_call(c, kAllReduce, c.send, small ? size : 0);
  if (small) {
    sources_.clear();
    for (int32_t r = 0; r < layout_.size; ++r) sources_.push_back(call_slot(r, round).payload.data());
    ordered_sum::ordered_reduce({c.dtype, c.op, settings_.reduce_block, static_cast<uint32_t>(sources_.size()),
                                 sources_.data(), 1, &c.recv, c.count, c.initial});
    return consume(round);
  }
  if (all_send_in_regions(round) && all_recv_in_regions(round)) return reduce_in_place(c, round, c.count);
  consume(round);
  reduce_staged(c, c.count);
}

// Each rank sums its part in place, and writes the result into the buffers of all ranks.
void Group::reduce_in_place(const ddh_coll& c, uint64_t round, uint64_t count) {
  const auto [begin, end] = part(count, settings_.rank, layout_.size);
  const uint64_t offset = begin * element_bytes(c);
  sources_.clear();
  destinations_.clear();
  for (int32_t r = 0; r < layout_.size; ++r) {
    const Call& theirs = call_slot(r, round).call;
    sources_.push_back(resolve(theirs.send_region, theirs.send_offset) + offset);
    destinations_.push_back(resolve(theirs.recv_region, theirs.recv_offset) + offset);
  }
  const auto n = static_cast<uint32_t>(sources_.size());
  ordered_sum::ordered_reduce({c.dtype, c.op, settings_.reduce_block, n, sources_.data(), n, destinations_.data(),
                               end - begin, initial_at(c, offset)});
  consume(round);
  wait_all(kConsumed, round, "sums of peers");
}

// For each chunk: every rank copies the other ranks' parts to staging, sums its part, and copies the sums of all parts. The sum
// is made in staging. One that goes there past the caches is made in the result first.
void Group::reduce_staged(const ddh_coll& c, uint64_t count) {
  const uint64_t size = element_bytes(c), chunk = layout_.staging_bytes / size;
  for (uint64_t at = 0; at < count; at += chunk) {
    const uint64_t n = std::min(chunk, count - at), round = begin_round("staging");
    const std::byte* const chunk_of_mine = bytes(c.send) + at * size;
    const auto [begin, end] = part(n, settings_.rank, layout_.size);
    std::byte* const staged = staging(settings_.rank, round);
    stage(staged, chunk_of_mine, begin * size);
    stage(staged + end * size, chunk_of_mine + end * size, (n - end) * size);
    publish(round, "contributions of peers");
    sources_.clear();
    for (int32_t r = 0; r < layout_.size; ++r)
      sources_.push_back((r == settings_.rank ? chunk_of_mine : staging(r, round)) + begin * size);
    std::byte* const result = bytes(c.recv) + (at + begin) * size;
    const bool is_in_result = bypasses_caches((end - begin) * size);
    void* sum = is_in_result ? result : staged + begin * size;
    ordered_sum::ordered_reduce({c.dtype, c.op, settings_.reduce_block, static_cast<uint32_t>(sources_.size()),
                                 sources_.data(), 1, &sum, end - begin, initial_at(c, (at + begin) * size)});
    if (is_in_result) stage(staged + begin * size, result, (end - begin) * size);
    mark_raise(line(settings_.rank, kSummed), round);
    wait_all(kSummed, round, "sums of peers");
    for (int32_t r = 0; r < layout_.size; ++r) {
      const auto [first, last] = part(n, r, layout_.size);
      if (r != settings_.rank || !is_in_result)
        copy_bytes(bytes(c.recv) + (at + first) * size, staging(r, round) + first * size, (last - first) * size);
    }
    consume(round);
  }
}

void Group::reduce_scatter(const ddh_coll& c) {
  require_reducible(c);
  pieces_.set(c, layout_.size, c.counts);
  const auto me = static_cast<size_t>(settings_.rank);
  const uint64_t size = element_bytes(c), round = begin_call(c, kReduceScatter, nullptr, 0);
  sources_.resize(static_cast<size_t>(layout_.size));
  const auto reduce = [&](uint64_t at, uint64_t n_bytes) {
    void* to = bytes(c.recv) + at;
    ordered_sum::ordered_reduce({c.dtype, c.op, settings_.reduce_block, static_cast<uint32_t>(sources_.size()),
                                 sources_.data(), 1, &to, n_bytes / size, initial_at(c, at)});
  };
  if (all_send_in_regions(round)) {
    for (size_t r = 0; r < sources_.size(); ++r) {
      const Call& theirs = call_slot(static_cast<int32_t>(r), round).call;
      sources_[r] = resolve(theirs.send_region, theirs.send_offset) + pieces_.offset[me];
    }
    reduce(0, pieces_.size[me]);
    consume(round);
    return wait_all(kConsumed, round, "readers of my contribution");
  }
  consume(round);
  // Staging holds one equal share for each destination.
  const uint64_t share = layout_.staging_bytes / static_cast<uint64_t>(layout_.size) / 64 * 64;
  for (uint64_t at = 0; at < pieces_.largest; at += share) {
    const uint64_t r_chunk = begin_round("staging");
    const auto length = [&](size_t r) { return at < pieces_.size[r] ? std::min(share, pieces_.size[r] - at) : 0; };
    for (size_t r = 0; r < sources_.size(); ++r)
      if (r != me)
        stage(staging(settings_.rank, r_chunk) + r * share, bytes(c.send) + pieces_.offset[r] + at, length(r));
    publish(r_chunk, "contributions of peers");
    for (size_t r = 0; r < sources_.size(); ++r)
      sources_[r] =
          r == me ? bytes(c.send) + pieces_.offset[me] + at : staging(static_cast<int32_t>(r), r_chunk) + me * share;
    reduce(at, length(me));
    consume(r_chunk);
  }
}

// Exchanges the counts and recv_counts of all ranks through staging. The counts of sender and receiver must agree. All
// ranks see the same table, so all of them refuse a difference. Returns the largest piece of any rank, in bytes.
uint64_t Group::agree_on_pieces(const ddh_coll& c) {
  const auto n = static_cast<size_t>(layout_.size);
  const uint64_t row = n * sizeof(uint64_t);
  if (2 * row > layout_.staging_bytes)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "all_to_all with counts among ", n,
              " ranks needs comm.staging_bytes of at least ", 2 * row);
  const uint64_t round = begin_round("staging");
  std::byte* const mine = staging(settings_.rank, round);
  std::memcpy(mine, c.counts, row);
  std::memcpy(mine + row, c.recv_counts, row);
  publish(round, "counts of peers");
  const auto count = [&](size_t rank, uint64_t which, size_t peer) {
    return reinterpret_cast<const uint64_t*>(staging(static_cast<int32_t>(rank), round) + which * row)[peer];
  };
  uint64_t largest = 0;
  std::string difference;
  for (size_t from = 0; from < n && difference.empty(); ++from) {
    for (size_t to = 0; to < n; ++to) {
      const uint64_t sent = count(from, 0, to), expected = count(to, 1, from);
      largest = std::max(largest, sent);
      if (sent == expected) continue;
      difference = ddh::str(c.label != nullptr ? c.label : "all_to_all", ": rank ", settings_.ranks[from], " sends ",
                            sent, " elements to rank ", settings_.ranks[to], ", which expects ", expected,
                            "; the sender's counts must equal the receiver's recv_counts");
      break;
    }
  }
  consume(round);
  if (!difference.empty()) ddh::fail(DDH_FAILED_PRECONDITION, difference);
  return largest * element_bytes(c);
}

void Group::all_to_all(const ddh_coll& c) {
  if ((c.counts != nullptr) != (c.recv_counts != nullptr))
    ddh::fail(DDH_INVALID_ARGUMENT, "all_to_all has `counts` or `recv_counts` alone; give both, or neither");
  pieces_.set(c, layout_.size, c.counts);
  received_.set(c, layout_.size, c.recv_counts);
  consume(begin_call(c, kAllToAll, nullptr, 0));
  const uint64_t largest = c.counts != nullptr ? agree_on_pieces(c) : pieces_.largest;
  const auto n = static_cast<size_t>(layout_.size), me = static_cast<size_t>(settings_.rank);
  const uint64_t share = layout_.staging_bytes / n / 64 * 64;
  for (uint64_t at = 0; at < largest; at += share) {
    const uint64_t round = begin_round("staging");
    const auto length = [&](const Pieces& pieces, size_t r) {
      return at < pieces.size[r] ? std::min(share, pieces.size[r] - at) : 0;
    };
    // A rank without data may have no buffer. This rank's own piece needs no staging.
    for (size_t r = 0; r < n; ++r)
      if (const uint64_t n_bytes = length(pieces_, r); r != me && n_bytes > 0)
        stage(staging(settings_.rank, round) + r * share, bytes(c.send) + pieces_.offset[r] + at, n_bytes);
    publish(round, "pieces of peers");
    for (size_t r = 0; r < n; ++r) {
      const uint64_t n_bytes = length(received_, r);
      if (n_bytes == 0) continue;
      const std::byte* const from =
          r == me ? bytes(c.send) + pieces_.offset[me] + at : staging(static_cast<int32_t>(r), round) + me * share;
      copy_bytes(bytes(c.recv) + received_.offset[r] + at, from, n_bytes);
    }
    consume(round);
  }
}

// Point to point: a chunk stays in the sender's channel until the receiver has taken it. A header has the sender's and
// the receiver's description of the message, so both notice a difference.
struct Group::Message {
  uint64_t sent_count, expected_count;
  int32_t sent_dtype, expected_dtype;
};

namespace {
constexpr uint64_t kMessageBytes = 64;  // header of a chunk
}

void Group::check_message(const ddh_coll& c, const Message& m, int32_t sender, int32_t receiver) const {
  static_assert(sizeof(Message) <= kMessageBytes);
  if (m.sent_count == m.expected_count && m.sent_dtype == m.expected_dtype) return;
  const auto world_rank = [&](int32_t r) { return settings_.ranks[static_cast<size_t>(r)]; };
  ddh::fail(DDH_FAILED_PRECONDITION, c.label != nullptr ? c.label : "a message", ": rank ", world_rank(sender),
            " sends ", m.sent_count, " elements of dtype ", m.sent_dtype, ", rank ", world_rank(receiver), " expects ",
            m.expected_count, " of dtype ", m.expected_dtype);
}

void Group::send(const ddh_coll& c) {
  const auto peer = static_cast<size_t>(c.root);
  if (c.root < 0 || c.root >= layout_.size || c.root == settings_.rank)
    ddh::fail(DDH_OUT_OF_RANGE, "peer ", c.root, " of a group of ", layout_.size);
  const uint64_t size = c.count * element_bytes(c), chunk = layout_.staging_bytes - kMessageBytes;
  const uint32_t sent_to = kInternalMarks + static_cast<uint32_t>(c.root);
  const uint32_t taken_from = kInternalMarks + static_cast<uint32_t>(layout_.size + settings_.rank);
  uint64_t at = 0;
  do {
    *reinterpret_cast<Message*>(channel(settings_.rank)) = {c.count, c.count, c.dtype, c.dtype};
    stage(channel(settings_.rank) + kMessageBytes, bytes(c.send) + at, std::min(chunk, size - at));
    mark_raise(line(settings_.rank, sent_to), ++sent_[peer]);
    wait(line(c.root, taken_from), sent_[peer], c.root, "the receiver");
    check_message(c, *reinterpret_cast<const Message*>(channel(settings_.rank)), settings_.rank, c.root);
    at += chunk;
  } while (at < size);
}

void Group::recv(const ddh_coll& c) {
  const auto peer = static_cast<size_t>(c.root);
  if (c.root < 0 || c.root >= layout_.size || c.root == settings_.rank)
    ddh::fail(DDH_OUT_OF_RANGE, "peer ", c.root, " of a group of ", layout_.size);
  const uint64_t size = c.count * element_bytes(c), chunk = layout_.staging_bytes - kMessageBytes;
  const uint32_t sent_to = kInternalMarks + static_cast<uint32_t>(settings_.rank);
  const uint32_t taken_from = kInternalMarks + static_cast<uint32_t>(layout_.size + c.root);
  uint64_t at = 0;
  do {
    wait(line(c.root, sent_to), ++taken_[peer], c.root, "the sender");
    auto& message = *reinterpret_cast<Message*>(channel(c.root));
    message.expected_count = c.count;
    message.expected_dtype = c.dtype;
    const Message seen = message;  // the sender may overwrite it once it is taken
    if (seen.sent_count == c.count && seen.sent_dtype == c.dtype)
      copy_bytes(bytes(c.recv) + at, channel(c.root) + kMessageBytes, std::min(chunk, size - at));
    mark_raise(line(settings_.rank, taken_from), taken_[peer]);
    check_message(c, seen, c.root, settings_.rank);
    at += chunk;
  } while (at < size);
}

}  // namespace same_host
