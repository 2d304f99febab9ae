// SPDX-License-Identifier: Apache-2.0
#include "nccl/work.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "ddh/sdk/kernels/lowp.hpp"
#include "ddh/sdk/plugin.hpp"
#include "driver/for_nccl.hpp"

namespace standin {
namespace {

// A message on its way.
struct Transfer {
  Message message;
  char* data;
  uint64_t done = 0;
  bool begun = false;
  [[nodiscard]] bool is_over() const { return begun && done == message.bytes; }
};

enum class Progress : uint8_t { none, some, mismatch };

Progress send_some(const Seat& seat, Transfer& t) {
  Mailbox& box = seat.board->mailboxes[seat.rank][t.message.peer];
  if (box.written.load(std::memory_order_acquire) != box.read.load(std::memory_order_acquire)) return Progress::none;
  const uint64_t n = std::min(kChunkBytes, t.message.bytes - t.done);
  box.message_bytes = t.message.bytes;
  box.chunk_bytes = n;
  box.kind = t.message.kind;
  std::memcpy(box.data, t.data + t.done, n);
  t.done += n;
  t.begun = true;
  box.written.fetch_add(1, std::memory_order_release);
  return Progress::some;
}

Progress receive_some(const Seat& seat, Transfer& t) {
  Mailbox& box = seat.board->mailboxes[t.message.peer][seat.rank];
  if (box.written.load(std::memory_order_acquire) == box.read.load(std::memory_order_acquire)) return Progress::none;
  if (box.message_bytes != t.message.bytes || box.kind != t.message.kind) {
    ddhost_standin_fault(ddh::str("NCCL: rank ", t.message.peer, " sends ", box.message_bytes,
                                  " bytes in a call of kind ", box.kind, ", but rank ", seat.rank, " expects ",
                                  t.message.bytes, " in one of kind ", static_cast<int>(t.message.kind))
                             .c_str());
    return Progress::mismatch;
  }
  std::memcpy(t.data + t.done, box.data, box.chunk_bytes);
  t.done += box.chunk_bytes;
  t.begun = true;
  box.read.fetch_add(1, std::memory_order_release);
  return Progress::some;
}

// All messages at the same time. Those of one direction between two ranks go in order.
bool transfer_all(const Seat& seat, std::vector<Transfer>& transfers) {
  while (!seat.aborting->load()) {
    bool all_over = true, any = false;
    bool busy_to[kMostRanks] = {}, busy_from[kMostRanks] = {};
    for (Transfer& t : transfers) {
      if (t.is_over()) continue;
      all_over = false;
      bool& busy = t.message.sends ? busy_to[t.message.peer] : busy_from[t.message.peer];
      if (std::exchange(busy, true)) continue;
      const Progress progress = t.message.sends ? send_some(seat, t) : receive_some(seat, t);
      if (progress == Progress::mismatch) return false;
      any = any || progress == Progress::some;
    }
    if (all_over) return true;
    if (!any) sched_yield();
  }
  return true;
}

template <class T>
T reduced(T a, T b, nccl::RedOp op) {
  if (op == nccl::kMax) return std::max(a, b);
  if (op == nccl::kMin) return std::min(a, b);
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

template <class T>
void reduce_into(char* to, const char* from, uint64_t count, nccl::RedOp op) {
  for (uint64_t i = 0; i < count; ++i) {
    T a{}, b{};
    std::memcpy(&a, to + i * sizeof(T), sizeof(T));
    std::memcpy(&b, from + i * sizeof(T), sizeof(T));
    a = reduced(a, b, op);
    std::memcpy(to + i * sizeof(T), &a, sizeof(T));
  }
}

void reduce_bf16(char* to, const char* from, uint64_t count, nccl::RedOp op) {
  auto* const a = reinterpret_cast<uint16_t*>(to);
  const auto* const b = reinterpret_cast<const uint16_t*>(from);
  for (uint64_t i = 0; i < count; ++i)
    a[i] = ddh::Bf16::from_f32(reduced(ddh::Bf16::to_f32(a[i]), ddh::Bf16::to_f32(b[i]), op));
}

void reduce(char* to, const char* from, const Reduction& r) {
  switch (r.type) {
    case nccl::kFloat32:
      return reduce_into<float>(to, from, r.count, r.op);
    case nccl::kFloat64:
      return reduce_into<double>(to, from, r.count, r.op);
    case nccl::kInt32:
      return reduce_into<int32_t>(to, from, r.count, r.op);
    case nccl::kInt64:
      return reduce_into<int64_t>(to, from, r.count, r.op);
    default:
      return reduce_bf16(to, from, r.count, r.op);
  }
}

bool execute_reduction(const Seat& seat, int device, const Reduction& r) {
  const uint64_t bytes = r.count * bytes_of(r.type);
  const auto reach = [&](uint64_t address) { return static_cast<char*>(ddhost_standin_reach(device, address, bytes)); };
  char* const dst = reach(r.dst);
  if (dst == nullptr) return false;
  std::vector<std::vector<char>> came(static_cast<size_t>(seat.size), std::vector<char>(bytes));
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < seat.size; ++peer) {
    const auto p = static_cast<size_t>(peer);
    char* const piece = reach(r.own + r.own_offset_of[p]);
    if (piece == nullptr) return false;
    if (peer == seat.rank) {
      std::memcpy(came[p].data(), piece, bytes);
      continue;
    }
    transfers.push_back({{peer, true, 0, bytes, r.kind}, piece});
    transfers.push_back({{peer, false, 0, bytes, r.kind}, came[p].data()});
  }
  if (!transfer_all(seat, transfers)) return false;
  std::vector<char>& sum = came.back();
  for (size_t p = came.size() - 1; p-- > 0;) reduce(sum.data(), came[p].data(), r);
  std::memcpy(dst, sum.data(), bytes);
  return true;
}

}  // namespace

uint64_t bytes_of(nccl::DataType type) {
  switch (type) {
    case nccl::kUint8:
      return 1;
    case nccl::kFloat16:
    case nccl::kBfloat16:
      return 2;
    case nccl::kInt64:
    case nccl::kFloat64:
      return 8;
    default:
      return 4;
  }
}

bool execute(const Seat& seat, const Operation& operation) {
  seat.board->members[seat.rank].entered.store(operation.number);
  std::vector<Transfer> transfers;
  std::vector<Transfer> own;  // messages of this rank to itself
  for (const Message& message : operation.messages) {
    auto* const data = static_cast<char*>(ddhost_standin_reach(operation.device, message.address, message.bytes));
    if (data == nullptr) {
      ddhost_standin_fault("NCCL: a call uses memory that is in no block of the GPU");
      return false;
    }
    (message.peer == seat.rank ? own : transfers).push_back({message, data});
  }
  for (const Transfer& to : own)
    for (Transfer& from : own) {
      if (!to.message.sends || from.message.sends || from.begun) continue;
      if (from.message.bytes != to.message.bytes) return false;
      std::memmove(from.data, to.data, to.message.bytes);
      from.begun = true;
      break;
    }
  if (!transfer_all(seat, transfers)) return false;
  return std::all_of(operation.reductions.begin(), operation.reductions.end(),
                     [&](const Reduction& r) { return execute_reduction(seat, operation.device, r); });
}

}  // namespace standin
