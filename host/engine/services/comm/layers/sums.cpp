// SPDX-License-Identifier: Apache-2.0
//
// The sums of core.hpp. A step has one sum inside the hosts and one exchange between them.
#include <algorithm>
#include <cstring>

#include "ddh/sdk/collective.hpp"
#include "engine/numerics/kernels.hpp"
#include "engine/services/comm/layers/core.hpp"

namespace ddhost::layers {

// The chunks of a call: chunk j has the elements from j * step on of each piece.
class Core::Chunks {
 public:
  // `most`: chunks that a buffer holds at least.
  Chunks(const Core& core, const SumCall& call, uint64_t most = 1) : core_(core), call_(call) {
    const Places& places = core.places_;
    uint64_t largest = 0;  // elements
    most = std::max(most, most_handled(places, call.pieces, /*of_other_hosts=*/false));
    step_ = std::max<uint64_t>(core.chunk_ / sizeof(float) / most, 1);
    for (size_t p = 0; p < call.pieces.size(); ++p) {
      largest = std::max(largest, call.pieces[p].count);
      packed_.push_back(p);
      if (handler_here(p) == places.rank()) mine_.push_back(p);
      if (call.pieces[p].owner == places.rank()) own_ = p;
    }
    std::stable_sort(packed_.begin(), packed_.end(),
                     [this](size_t a, size_t b) { return handler_here(a) < handler_here(b); });
    count_ = static_cast<int64_t>((largest + step_ - 1) / step_);
  }

  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] bool has(int64_t chunk) const { return chunk >= 0 && chunk < count_; }
  [[nodiscard]] const std::vector<size_t>& mine() const { return mine_; }  // that this rank handles
  [[nodiscard]] size_t own() const { return own_; }                        // this rank's; has no meaning without owners
  [[nodiscard]] const Piece& piece(size_t p) const { return call_.pieces[p]; }
  [[nodiscard]] uint64_t begin(int64_t chunk) const { return static_cast<uint64_t>(chunk) * step_; }
  [[nodiscard]] uint64_t numel(size_t p, int64_t chunk) const {
    const uint64_t at = begin(chunk), all = call_.pieces[p].count;
    return at >= all ? 0 : std::min(step_, all - at);
  }
  [[nodiscard]] uint64_t bytes(size_t p, int64_t chunk) const { return numel(p, chunk) * sizeof(float); }
  [[nodiscard]] int32_t handler_here(size_t p) const {
    return core_.places_.handler(core_.places_.host(), call_.pieces[p].share);
  }
  // Calls body(piece, place in a buffer that has the chunks of the pieces which this rank handles).
  template <class Body>
  void each_of_mine(int64_t chunk, std::byte* buffer, const Body& body) const {
    uint64_t at = 0;
    for (const size_t p : mine_) {
      body(p, buffer + at);
      at += bytes(p, chunk);
    }
  }
  // Sums the host's contributions to what this rank handles of a chunk. `initial` may be `sums`. [collective of the host]
  void sum_on_host(int64_t chunk, std::byte* sums, const std::byte* initial) const {
    const int32_t here = core_.places_.host(), first = core_.places_.first(here);
    std::vector<uint64_t> counts(static_cast<size_t>(core_.places_.size(here)));
    uint64_t at = 0;
    for (const size_t p : packed_) {
      if (bytes(p, chunk) > 0)
        std::memcpy(core_.pack_ + at, call_.send + call_.pieces[p].offset + begin(chunk), bytes(p, chunk));
      at += bytes(p, chunk);
      counts[static_cast<size_t>(handler_here(p) - first)] += numel(p, chunk);
    }
    ddh_coll c = ddh::collective(DDH_F32, call_.label);
    c.op = DDH_SUM;
    c.send = core_.pack_;
    c.recv = sums;
    c.counts = counts.data();
    c.initial = initial;
    core_.inside_.call(&ddh_comm_backend_api::reduce_scatter, "reduce_scatter", c);
  }

 private:
  const Core& core_;
  const SumCall& call_;
  std::vector<size_t> packed_, mine_;  // packed_: all pieces, by the ranks of this host that handle them
  size_t own_ = 0;
  uint64_t step_ = 1;  // elements
  int64_t count_ = 0;
};

// At step s host h sums chunk s - h, or one step later if the initial values must come to host 0 first. The exchange at the
// end of the step moves all that the next step needs.
class Core::Chain {
 public:
  Chain(Core& core, const SumCall& call)
      : core_(core),
        places_(core.places_),
        call_(call),
        chunks_(core, call),
        to_all_(call.pieces.front().owner < 0),
        wait_(!to_all_ && call.initial != nullptr ? 1 : 0),
        last_(places_.n_hosts() - 1),
        here_(places_.host()) {}

  void run() {
    if (chunks_.count() == 0) return;
    const int64_t steps = chunks_.count() + wait_ + last_ + (to_all_ ? last_ - 1 : 0);
    for (int64_t step = 0; step < steps; ++step) {
      now_ = core_.carry(static_cast<uint64_t>(step));
      next_ = core_.carry(static_cast<uint64_t>(step) + 1);
      if (chunks_.has(chunk_at(step, here_))) sum(chunk_at(step, here_));
      pass_on(step);
      if (to_all_)
        pass_back(step);
      else
        deliver(step);
      if (wait_ > 0) fetch_initial(step);
      core_.run_exchange(call_.label);
    }
    if (to_all_) core_.share_on_host(reinterpret_cast<std::byte*>(call_.recv), in_bytes(), -1, nullptr, call_.label);
  }

 private:
  // What a host sums at a step.
  [[nodiscard]] int64_t chunk_at(int64_t step, int64_t host) const { return step - wait_ - host; }
  // The sums that a host passes back at a step.
  [[nodiscard]] int64_t returned_at(int64_t step, int64_t host) const { return step - last_ - (last_ - host); }
  [[nodiscard]] int32_t handler(int64_t host, size_t p) const {
    return places_.handler(static_cast<int32_t>(host), chunks_.piece(p).share);
  }
  [[nodiscard]] float* place_in_all(size_t p, int64_t chunk) const {
    return part_of(call_.recv, chunks_.piece(p).offset + chunks_.begin(chunk), chunks_.numel(p, chunk));
  }
  [[nodiscard]] std::vector<Piece> in_bytes() const {
    std::vector<Piece> pieces = call_.pieces;
    for (Piece& piece : pieces) piece.offset *= sizeof(float), piece.count *= sizeof(float);
    return pieces;
  }

  void sum(int64_t chunk) {
    const bool begins = here_ == 0 && to_all_ && call_.initial != nullptr;
    if (begins)
      chunks_.each_of_mine(chunk, now_, [&](size_t p, std::byte* at) {
        if (chunks_.bytes(p, chunk) > 0)
          std::memcpy(at, call_.initial + chunks_.piece(p).offset + chunks_.begin(chunk), chunks_.bytes(p, chunk));
      });
    chunks_.sum_on_host(chunk, now_, here_ > 0 || begins || wait_ > 0 ? now_ : nullptr);
  }

  void pass_on(int64_t step) {
    if (const int64_t chunk = chunk_at(step, here_); here_ < last_ && chunks_.has(chunk))
      chunks_.each_of_mine(chunk, now_, [&](size_t p, std::byte* at) {
        core_.exchange_.send(handler(here_ + 1, p), at, chunks_.bytes(p, chunk));
      });
    if (const int64_t chunk = chunk_at(step, here_ - 1); here_ > 0 && chunks_.has(chunk))
      chunks_.each_of_mine(chunk, next_, [&](size_t p, std::byte* at) {
        core_.exchange_.receive(handler(here_ - 1, p), at, chunks_.bytes(p, chunk));
      });
  }

  // The sums go to all hosts, from each to the one before it, so no link carries them twice.
  void pass_back(int64_t step) {
    const int64_t sent = returned_at(step, here_), received = returned_at(step, here_ + 1);
    if (here_ == last_ && chunks_.has(sent))
      chunks_.each_of_mine(sent, now_, [&](size_t p, std::byte* at) {
        if (chunks_.bytes(p, sent) > 0) std::memcpy(place_in_all(p, sent), at, chunks_.bytes(p, sent));
      });
    for (const size_t p : chunks_.mine()) {
      if (here_ > 0 && chunks_.has(sent))
        core_.exchange_.send(handler(here_ - 1, p), place_in_all(p, sent), chunks_.bytes(p, sent));
      if (here_ < last_ && chunks_.has(received))
        core_.exchange_.receive(handler(here_ + 1, p), place_in_all(p, received), chunks_.bytes(p, received));
    }
  }

  // The sums go to their owners.
  void deliver(int64_t step) {
    const int64_t chunk = chunk_at(step, last_);
    if (!chunks_.has(chunk)) return;
    if (here_ == last_)
      chunks_.each_of_mine(chunk, now_, [&](size_t p, std::byte* at) {
        const uint64_t bytes = chunks_.bytes(p, chunk);
        if (chunks_.piece(p).owner != places_.rank())
          core_.exchange_.send(chunks_.piece(p).owner, at, bytes);
        else if (bytes > 0)
          std::memcpy(call_.recv + chunks_.begin(chunk), at, bytes);
      });
    else
      core_.exchange_.receive(handler(last_, chunks_.own()),
                              part_of(call_.recv, chunks_.begin(chunk), chunks_.numel(chunks_.own(), chunk)),
                              chunks_.bytes(chunks_.own(), chunk));
  }

  // Each owner's initial values go to host 0, which sums their chunk at the next step.
  void fetch_initial(int64_t step) {
    if (!chunks_.has(step)) return;
    if (here_ == 0)
      chunks_.each_of_mine(step, next_, [&](size_t p, std::byte* at) {
        const uint64_t bytes = chunks_.bytes(p, step);
        if (chunks_.piece(p).owner != places_.rank())
          core_.exchange_.receive(chunks_.piece(p).owner, at, bytes);
        else if (bytes > 0)
          std::memcpy(at, call_.initial + chunks_.begin(step), bytes);
      });
    else
      core_.exchange_.send(handler(0, chunks_.own()),
                           part_of(call_.initial, chunks_.begin(step), chunks_.numel(chunks_.own(), step)),
                           chunks_.bytes(chunks_.own(), step));
  }

  Core& core_;
  const Places& places_;
  const SumCall& call_;
  const Chunks chunks_;
  const bool to_all_;
  const int64_t wait_, last_, here_;  // steps; hosts
  std::byte *now_ = nullptr, *next_ = nullptr;
};

void Core::chain(const SumCall& call) { Chain(*this, call).run(); }

void Core::blocks(const SumCall& call) {
  const size_t n_hosts = static_cast<size_t>(places_.n_hosts());
  const Chunks chunks(*this, call, n_hosts);
  const size_t own = chunks.own();
  std::byte *const sums = carry(0), *const arrivals = carry(1);
  for (int64_t chunk = 0; chunk < chunks.count(); ++chunk) {
    chunks.sum_on_host(chunk, sums, nullptr);
    std::vector<const float*> of_host(n_hosts);
    const uint64_t numel = chunks.numel(own, chunk), bytes = chunks.bytes(own, chunk);
    chunks.each_of_mine(chunk, sums, [&](size_t p, std::byte* at) {
      if (p == own)
        of_host[static_cast<size_t>(places_.host())] = reinterpret_cast<const float*>(at);
      else
        exchange_.send(chunks.piece(p).owner, at, chunks.bytes(p, chunk));
    });
    std::byte* at = arrivals;
    for (size_t host = 0; host < n_hosts; ++host) {
      if (host == static_cast<size_t>(places_.host())) continue;
      exchange_.receive(places_.handler(static_cast<int32_t>(host), chunks.piece(own).share), at, bytes);
      of_host[host] = reinterpret_cast<const float*>(at);
      at += bytes;
    }
    run_exchange(call.label);
    if (numel == 0) continue;
    float* const to = call.recv + chunks.begin(chunk);
    if (call.initial != nullptr && call.initial != call.recv)
      std::memcpy(to, call.initial + chunks.begin(chunk), bytes);
    kernels::ordered_sum(to, {of_host.data(), static_cast<uint32_t>(n_hosts), 1}, 0, numel, call.initial != nullptr);
  }
}

}  // namespace ddhost::layers
