// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm/gather.hpp: exchanges lists and texts of any length between all ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/services/comm/comm.hpp"

namespace ddhost {

// The lists of all ranks, one after the other in the order of ranks. [collective]
template <class T>
std::vector<T> gather_lists(const Comm& comm, const std::vector<T>& mine, const char* label) {
  static_assert(std::is_trivially_copyable_v<T>);
  const uint64_t size = mine.size();
  std::vector<uint64_t> sizes(static_cast<size_t>(comm.world_size()));
  comm.all_gather_bytes(&size, sizes.data(), sizeof size, label);
  const uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  if (most == 0) return {};
  std::vector<T> padded = mine, all(most * sizes.size()), out;
  padded.resize(most);
  comm.all_gather_bytes(padded.data(), all.data(), most * sizeof(T), label);
  for (size_t rank = 0; rank < sizes.size(); ++rank)
    for (size_t i = 0; i < sizes[rank]; ++i) out.push_back(all[rank * most + i]);
  return out;
}

// Gives all ranks the text of `root`. [collective]
inline void broadcast_text(const Comm& comm, std::string& text, int32_t root, const char* label) {
  uint64_t bytes = text.size();
  comm.broadcast_bytes(&bytes, sizeof bytes, root, label);
  text.resize(bytes);
  if (bytes > 0) comm.broadcast_bytes(text.data(), bytes, root, label);
}

// Sums each number over the ranks, with wrap-around, in parts so that no rank needs room for the numbers of all others at
// once. [collective]
inline std::vector<uint64_t> sums_over_ranks(const Comm& comm, const std::vector<uint64_t>& mine, const char* label) {
  constexpr size_t kPiece = 1 << 14;
  const auto world_size = static_cast<size_t>(comm.world_size());
  std::vector<uint64_t> out(mine.size()), gathered;
  for (size_t begin = 0; begin < mine.size(); begin += kPiece) {
    const size_t n = std::min(kPiece, mine.size() - begin);
    gathered.resize(n * world_size);
    comm.all_gather_bytes(&mine[begin], gathered.data(), n * sizeof(uint64_t), label);
    for (size_t i = 0; i < gathered.size(); ++i) out[begin + i % n] += gathered[i];
  }
  return out;
}

}  // namespace ddhost
