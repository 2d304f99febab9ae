// SPDX-License-Identifier: Apache-2.0
//
// collectives.hpp: the collectives of a group. Moves are NCCL's. Sums of fp32 are made in rank order: the ranks exchange
// the contributions (send and receive in one group), and the device sums them with ddh.flatops ordered_sum. This moves
// the bytes of a reduce_scatter, and the bits don't depend on NCCL's algorithm. Sums of integers are NCCL's own.
#pragma once

#include <memory>
#include <vector>

#include "communicator.hpp"
#include "ddh/service/comm.h"

namespace nccl DDH_HIDDEN {

// Memory of the device that calls on any stream use one after the other.
class Scratch {
 public:
  explicit Scratch(const ddh::Host& host);
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();
  // Work on `stream` after this call follows the last use. Its content is undefined.
  float* begin(uint64_t bytes, ddh_stream* stream);
  void end(ddh_stream* stream);

 private:
  const ddh::Host& host_;
  void* block_ = nullptr;
  uint64_t bytes_ = 0;
  ddh_event* used_ = nullptr;
};

struct SumOrder {
  bool ordered = true;        // false: NCCL's own order, which is faster and has other bits
  uint32_t reduce_block = 1;  // ranks per block of an ordered sum
};

class Group {
 public:
  Group(const ddh::Host& host, const Library& library, Scratch& scratch, SumOrder order,
        std::unique_ptr<Communicator> communicator)
      : host_(host), library_(library), scratch_(scratch), order_(order), communicator_(std::move(communicator)) {}

  [[nodiscard]] Communicator& communicator() { return *communicator_; }
  [[nodiscard]] bool is_ordered() const { return order_.ordered; }

  void all_reduce(const ddh_coll& c);
  void reduce_scatter(const ddh_coll& c);
  void all_gather(const ddh_coll& c);
  void broadcast(const ddh_coll& c);
  void all_to_all(const ddh_coll& c);
  void send(const ddh_coll& c);
  void recv(const ddh_coll& c);

 private:
  struct Pieces;
  [[nodiscard]] Stream stream_of(const ddh_coll& c) const;
  // Each of `pieces` comes from its rank; `send` is this rank's.
  void gather(const ddh_coll& c, const char* send, char* recv, const Pieces& pieces);
  void exchange(const ddh_coll& c, const char* send, const Pieces& sent, char* recv, const Pieces& got, bool with_own);
  // recv = the sum of this rank's piece over the ranks, in rank order.
  void sum_in_order(const ddh_coll& c, const Pieces& pieces, float* recv, const float* initial);
  void sum_by_nccl(const ddh_coll& c, uint64_t count, const char* name, bool all);
  void fold(float* dst, const std::vector<const float*>& sources, bool from_dst, uint64_t numel, ddh_stream* stream);
  void copy(float* dst, const float* src, uint64_t numel, ddh_stream* stream) {
    fold(dst, {src}, false, numel, stream);
  }

  const ddh::Host& host_;
  const Library& library_;
  Scratch& scratch_;
  const SumOrder order_;
  const std::unique_ptr<Communicator> communicator_;
};

}  // namespace DDH_HIDDEN
