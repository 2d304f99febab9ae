// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm/layers/exchange.hpp: one transport of two, and messages of a rank to several others at once, carried by
// one all_to_all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost::layers {

// A transport that is initialized, and its group.
struct Layer {
  ddh_inst* inst = nullptr;
  const ddh_comm_backend_api* api = nullptr;
  ddh_group* group = nullptr;

  using Slot = ddh_rc (*ddh_comm_backend_api::*)(ddh_inst*, const ddh_coll*, ddh_err*) noexcept;
  // Calls a function of the table with this group. Throws; `name` is for the error of a missing function.
  void call(Slot slot, const char* name, ddh_coll c) const;
};

// Bytes that lie one after the other, some for each of several ranks.
struct Bytes {
  std::vector<uint64_t> of_rank;
  std::byte* data = nullptr;
};

class Exchange {
 public:
  // `members`: world ranks of the layer's group. `out` and `in` have `capacity` bytes each; data that already lies in the
  // order of ranks takes none of them.
  Exchange(const Layer& layer, std::vector<int32_t> members, std::byte* out, std::byte* in, uint64_t capacity)
      : layer_(layer), members_(std::move(members)), out_{{}, out, capacity}, in_{{}, in, capacity} {}

  // What the next run moves. Between two ranks the order of both must agree; a message of 0 bytes is none.
  void send(int32_t to, const void* data, uint64_t bytes) {
    add(out_, to, static_cast<std::byte*>(const_cast<void*>(data)), bytes);
  }
  void receive(int32_t from, void* data, uint64_t bytes) { add(in_, from, static_cast<std::byte*>(data), bytes); }
  // Returns the bytes that were sent. [collective of the group]
  uint64_t run(const char* label);

 private:
  struct Part {
    size_t peer;  // in the group
    std::byte* data;
    uint64_t bytes;
  };
  struct Side {
    std::vector<Part> parts;
    std::byte* scratch;
    uint64_t capacity;
  };
  void add(Side& side, int32_t rank, std::byte* data, uint64_t bytes);
  // Sorts the parts by rank, and counts the bytes of each. Data: that of the parts if it lies so, else scratch.
  [[nodiscard]] Bytes laid_out(Side& side) const;

  const Layer layer_;
  const std::vector<int32_t> members_;
  Side out_, in_;
};

}  // namespace ddhost::layers
