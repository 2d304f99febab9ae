// SPDX-License-Identifier: Apache-2.0
#include "engine/state/state_pieces.hpp"

#include <algorithm>
#include <cstring>

#include "checkpoint/manifest.hpp"
#include "ddh/ddh.h"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "engine/numerics/kernels.hpp"

namespace ddhost {
namespace {

void check_dtype(const StateSource& source, const StoredTensor& tensor, int32_t dtype) {
  if (tensor.kind != TensorKind::slot || dtype == tensor.dtype) return;
  source.strategy.caller().blame(PluginCall::kState, {}, "keeps '", tensor.name, "' in dtype ", dtype,
                                 ", but the optimizer's slot has dtype ", tensor.dtype);
}

}  // namespace

uint64_t place_hash(const char* values, uint64_t begin, uint64_t numel, uint64_t width, uint64_t grid) {
  uint64_t sum = 0;
  for (uint64_t done = 0; done < numel; done += grid) {
    const uint64_t bytes = std::min(grid, numel - done) * width;
    sum += ddh::mix64(sum_of(values + done * width, bytes) + ddh::kMixStep * ((begin + done) / grid + 1));
  }
  return sum;
}

std::vector<StatePiece> state_pieces(const StateSource& source, const CheckpointLayout& layout) {
  const std::vector<ddh_state_entry> entries = state_entries(source);
  std::vector<StatePiece> out;
  for (size_t i = 0; i < entries.size(); ++i) {
    const ddh_state_entry& e = entries[i];
    const int64_t tensor = layout.of_entry(e);
    // A flat range has a slot for all its parameters, also for those that do not use it.
    if (tensor < 0 || e.numel == 0) continue;
    if (e.kind != DDH_STATE_PARAM) check_dtype(source, layout.tensors()[static_cast<size_t>(tensor)], e.dtype);
    const bool differs = e.scope == DDH_SCOPE_RANK;  // then each replica has a tensor of its own
    out.push_back({static_cast<size_t>(tensor), e.offset, e.numel, e.dtype, e.data, static_cast<uint32_t>(i),
                   differs ? 0 : e.replica_index, differs ? 1 : e.replica_count});
  }
  std::stable_sort(out.begin(), out.end(), [](const StatePiece& a, const StatePiece& b) {
    return a.tensor != b.tensor ? a.tensor < b.tensor : a.offset < b.offset;
  });
  return out;
}

void check_pieces_once(const std::vector<StatePiece>& pieces, const StateSource& source, const CheckpointLayout& layout,
                       const Comm& comm) {
  const std::vector<StoredTensor>& tensors = layout.tensors();
  Cover held(tensors.size());
  for (const StatePiece& p : pieces)
    if (p.is_first_replica()) held.add(static_cast<int32_t>(p.tensor), p.offset, p.numel);
  const std::vector<Cover::Param>& mine = held.params();
  std::vector<Cover::Param> all(mine.size() * static_cast<size_t>(comm.world_size())), sum(mine.size());
  comm.all_gather_bytes(mine.data(), all.data(), mine.size() * sizeof(Cover::Param), "checkpoint: held state");
  for (size_t i = 0; i < all.size(); ++i) sum[i % mine.size()] += all[i];
  for (size_t t = 0; t < tensors.size(); ++t) {
    const uint64_t numel = tensors[t].bytes / ddh_dtype_bytes(tensors[t].dtype);
    if (tensors[t].kind == TensorKind::buffer || sum[t] == Cover::piece(static_cast<int32_t>(t), 0, numel)) continue;
    source.strategy.caller().blame(PluginCall::kState, {}, "the entries of all ranks with replica_index 0 have ",
                                   sum[t].numel, " elements of '", tensors[t].name, "'; each of its ", numel,
                                   " must occur once");
  }
}

const char* PieceAccess::read_kept(const StatePiece& piece, uint64_t begin, uint64_t numel) {
  const uint64_t width = ddh_dtype_bytes(piece.dtype);
  if (piece.data != nullptr)
    return staging_.readable(static_cast<const char*>(piece.data) + begin * width, numel * width, nullptr);
  if (source_.table.state_read == nullptr)
    source_.strategy.caller().blame(PluginCall::kState, {},
                                    "has entries without a pointer, but there is no state_read");
  values_.resize(std::max<size_t>(values_.size(), numel * width));
  source_.strategy.call(PluginCall::kStateRead, source_.table.state_read, piece.entry, begin, numel,
                        static_cast<void*>(values_.data()));
  return values_.data();
}

const char* PieceAccess::read(const StatePiece& piece, uint64_t begin, uint64_t numel) {
  const char* const from = read_kept(piece, begin, numel);
  const int32_t dtype = layout_.tensors()[piece.tensor].dtype;
  if (dtype == piece.dtype) return from;
  converted_.resize(std::max<size_t>(converted_.size(), numel * ddh_dtype_bytes(dtype)));
  kernels::cast(converted_.data(), dtype, from, piece.dtype, numel);
  return converted_.data();
}

const char* PieceAccess::write(const StatePiece& piece, uint64_t begin, uint64_t numel, const char* from) {
  const uint64_t width = ddh_dtype_bytes(piece.dtype);
  const int32_t dtype = layout_.tensors()[piece.tensor].dtype;
  if (reinterpret_cast<uintptr_t>(from) % ddh_dtype_bytes(dtype) != 0) {
    values_.assign(from, from + numel * ddh_dtype_bytes(dtype));
    from = values_.data();
  }
  if (dtype != piece.dtype) {
    converted_.resize(std::max<size_t>(converted_.size(), numel * width));
    kernels::cast(converted_.data(), piece.dtype, from, dtype, numel);
    from = converted_.data();
  }
  if (piece.data == nullptr) {
    if (source_.table.state_write == nullptr)
      source_.strategy.caller().blame(PluginCall::kState, {},
                                      "has entries without a pointer, but there is no state_write");
    source_.strategy.call(PluginCall::kStateWrite, source_.table.state_write, piece.entry, begin, numel,
                          static_cast<const void*>(from));
    return from;
  }
  char* const to = static_cast<char*>(piece.data) + begin * width;
  if (staging_.is_here(to)) {
    std::memcpy(to, from, numel * width);
    return from;
  }
  char* const on_its_way = staging_.begin(to, numel * width);
  std::memcpy(on_its_way, from, numel * width);
  staging_.store(to, on_its_way, numel * width, nullptr);
  staging_.wait();
  return from;
}

}  // namespace ddhost
