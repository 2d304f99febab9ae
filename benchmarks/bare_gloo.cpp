// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/bare_gloo.cpp: what the transport gloo is compared with: the engine alone, with the messages that a collective
// needs and nothing else. There are no chunks, and no rank checks what another one calls.
//   bare_gloo  sums in the order of ranks, as the transport gloo: pieces go to their owners, the owner adds them, and the sums
//              go to all. Made of Gloo's send and receive.
//   own_gloo   all_reduce, all_gather and broadcast of the engine, whose sums have no promised order
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <vector>

#define USE_C10D_GLOO
#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/gloo/kv_store.hpp"
#include "ddh/sdk/comm.hpp"
#include "ddh/sdk/comm_groups.hpp"

namespace bare_gloo {
namespace {

using c10d::ProcessGroupGloo;
using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

constexpr std::chrono::milliseconds kTimeout{60'000};

std::byte* bytes_at(const void* p) { return static_cast<std::byte*>(const_cast<void*>(p)); }

void wait_all(Works& works) {
  for (const auto& work : works) work->wait();
  works.clear();
}

class Gloo final : public ddh::CommBackend {
 public:
  using CommBackend::CommBackend;

  void init(const ddh_comm_init& args) override {
    places_.init(args, args.timeout_ms);
    const ddh::GroupPlace place = places_.world();
    rank_ = place.rank;
    n_ = place.size();
    auto settings = ProcessGroupGloo::Options::create(kTimeout);
    settings->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    settings->threads = 1;
    gloo_ = c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<gloo_links::KvStore>(host, place.key, kTimeout),
                                                  rank_, n_, settings);
  }
  ddh_group* world() override { return reinterpret_cast<ddh_group*>(this); }
  ddh_group* group_create(const char* /*name*/, const int32_t* /*ranks*/, uint32_t /*n*/) override { return world(); }
  void group_info(ddh_group* /*group*/, int32_t& rank, int32_t& size, uint32_t& caps) override {
    rank = rank_;
    size = n_;
    caps = 0;
  }

  void all_reduce(const ddh_coll& c) override {
#ifdef BARE_GLOO_OWN
    if (c.recv != c.send) std::memcpy(c.recv, c.send, c.count * width(c));
    std::vector<at::Tensor> data{at::from_blob(c.recv, {static_cast<int64_t>(c.count)}, at::TensorOptions(at::kFloat))};
    gloo_->allreduce(data)->wait();
#else
    if (c.send == c.recv || c.dtype != DDH_F32)
      ddh::fail(DDH_UNIMPLEMENTED, "the transport of a benchmark sums F32, and not in place; choose gloo");
    const uint64_t share = (c.count + ranks() - 1) / ranks();
    std::vector<uint64_t> at;  // elements
    for (uint64_t r = 0; r <= ranks(); ++r) at.push_back(std::min(c.count, r * share));
    const auto counts = [&](int r) { return at[static_cast<size_t>(r) + 1] - at[static_cast<size_t>(r)]; };
    auto* const sums = static_cast<float*>(c.recv) + at[static_cast<size_t>(rank_)];
    sum(c, at, sums);
    Works works;
    for (int peer = 0; peer < n_; ++peer) {
      if (peer == rank_) continue;
      receive(works, peer, static_cast<float*>(c.recv) + at[static_cast<size_t>(peer)], counts(peer) * sizeof(float));
      send(works, peer, sums, counts(rank_) * sizeof(float));
    }
    wait_all(works);
#endif
  }
  void reduce_scatter(const ddh_coll& c) override {
    std::vector<uint64_t> at;
    for (uint64_t r = 0; r <= ranks(); ++r) at.push_back(r * c.count);
    sum(c, at, static_cast<float*>(c.recv));
  }
  void all_gather(const ddh_coll& c) override {
    const uint64_t bytes = c.count * width(c);
#ifdef BARE_GLOO_OWN
    at::Tensor all = tensor(c.recv, bytes * ranks()), mine = tensor(c.send, bytes);
    gloo_->_allgather_base(all, mine)->wait();
#else
    Works works;
    for (int peer = 0; peer < n_; ++peer) {
      std::byte* const to = bytes_at(c.recv) + static_cast<uint64_t>(peer) * bytes;
      if (peer == rank_) {
        if (bytes > 0) std::memmove(to, c.send, bytes);
        continue;
      }
      receive(works, peer, to, bytes);
      send(works, peer, c.send, bytes);
    }
    wait_all(works);
#endif
  }
  void all_to_all(const ddh_coll& c) override {
    const uint64_t bytes = c.count * width(c);
    Works works;
    for (int peer = 0; peer < n_; ++peer) {
      const uint64_t at = static_cast<uint64_t>(peer) * bytes;
      if (peer == rank_) {
        std::memcpy(bytes_at(c.recv) + at, bytes_at(c.send) + at, bytes);
        continue;
      }
      receive(works, peer, bytes_at(c.recv) + at, bytes);
      send(works, peer, bytes_at(c.send) + at, bytes);
    }
    wait_all(works);
  }
  void broadcast(const ddh_coll& c) override {
    const uint64_t bytes = c.count * width(c);
#ifdef BARE_GLOO_OWN
    if (rank_ == c.root && c.recv != c.send) std::memcpy(c.recv, c.send, bytes);
    std::vector<at::Tensor> data{tensor(c.recv, bytes)};
    c10d::BroadcastOptions from_root;
    from_root.rootRank = c.root;
    gloo_->broadcast(data, from_root)->wait();
#else
    Works works;
    for (int peer = 0; peer < n_; ++peer)
      if (rank_ == c.root && peer != c.root) send(works, peer, c.send, bytes);
    if (rank_ != c.root) receive(works, c.root, c.recv, bytes);
    wait_all(works);
    if (rank_ == c.root && c.recv != c.send) std::memcpy(c.recv, c.send, bytes);
#endif
  }
  void send_to(const ddh_coll& /*c*/) override { lacks("send"); }
  void receive_from(const ddh_coll& /*c*/) override { lacks("recv"); }
  void barrier(ddh_group* /*group*/) override {
    std::byte mine{};
    std::vector<std::byte> all(ranks());
    ddh_coll c{};
    c.dtype = DDH_U8;
    c.count = 1;
    c.send = &mine;
    c.recv = all.data();
    all_gather(c);
  }
  void abort(const char* /*reason*/) override {}
  void finalize() override { barrier(world()); }

 private:
  [[noreturn]] static void lacks(const char* what) {
    ddh::fail(DDH_UNIMPLEMENTED, "the transport of a benchmark has no ", what, "; choose gloo");
  }
  [[nodiscard]] uint64_t ranks() const { return static_cast<uint64_t>(n_); }
  static uint64_t width(const ddh_coll& c) { return ddh_dtype_bytes(c.dtype); }
  static at::Tensor tensor(const void* data, uint64_t bytes) {
    return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(bytes)}, at::kByte);
  }
  void send(Works& works, int peer, const void* data, uint64_t bytes) {
    std::vector<at::Tensor> one{tensor(data, bytes)};
    if (bytes > 0) works.push_back(gloo_->send(one, peer, static_cast<int>(sent_[peer]++)));
  }
  void receive(Works& works, int peer, void* data, uint64_t bytes) {
    std::vector<at::Tensor> one{tensor(data, bytes)};
    if (bytes > 0) works.push_back(gloo_->recv(one, peer, static_cast<int>(received_[peer]++)));
  }

  // Adds the pieces of all ranks that begin at element `at` of this rank, in the order of ranks.
  void sum(const ddh_coll& c, const std::vector<uint64_t>& at, float* sums) {
    const auto me = static_cast<size_t>(rank_);
    const auto* const from = static_cast<const float*>(c.send);
    const uint64_t mine = at[me + 1] - at[me];
    if (scratch_.size() < mine * ranks()) scratch_.resize(mine * ranks());
    Works works;
    for (int peer = 0; peer < n_; ++peer) {
      if (peer == rank_) continue;
      const auto p = static_cast<size_t>(peer);
      receive(works, peer, scratch_.data() + p * mine, mine * sizeof(float));
      send(works, peer, from + at[p], (at[p + 1] - at[p]) * sizeof(float));
    }
    wait_all(works);
    const auto of = [&](size_t r) { return r == me ? from + at[me] : scratch_.data() + r * mine; };
    if (n_ == 1) std::memmove(sums, of(0), mine * sizeof(float));
    for (size_t r = 1; r < ranks(); ++r) {
      const float *const a = r == 1 ? of(0) : sums, *const b = of(r);
      for (uint64_t i = 0; i < mine; ++i) sums[i] = a[i] + b[i];
    }
  }

  ddh::GroupPlaces places_{host};
  c10::intrusive_ptr<ProcessGroupGloo> gloo_;
  std::map<int, uint32_t> sent_, received_;  // messages to and from each rank
  std::vector<float> scratch_;
  int rank_ = 0, n_ = 1;
};

constexpr const char* kNeeds[] = {DDH_KV_IFACE, nullptr};

}  // namespace
}  // namespace bare_gloo

DDH_CXX_PLUGIN(bare_gloo::Gloo, comm, BARE_GLOO_ID, "0.1.0", "Gloo alone, for benchmarks",
               R"({"type": "object", "properties": {}})", bare_gloo::kNeeds, /*caps=*/0);
