// SPDX-License-Identifier: Apache-2.0
//
// quantized_grads.hpp: gradients whose sums travel as blocks of 4 or 8 bits (qgZ), in two exchanges instead of a
// reduce-scatter, so that each value is rounded twice and not once for each rank:
//
//   within a node    rank l gets from its neighbours the segments of the ranks with place l on all nodes, and sums them
//   between nodes    these sums go to the ranks with place l, each its own segment, and are summed
//
// Full gradients have a buffer for each space on every rank.
#pragma once

#include <vector>

#include "quantized_params.hpp"

class QuantizedGrads final : public ddh::GradStore {
 public:
  // `node`: neighbours; `across`: the ranks with the same place on all nodes, in the order of the nodes.
  QuantizedGrads(const ddh::ModelLayout& layout, const ddh_attach_args& args, int64_t bits, const Peers& node,
                 const Peers& across)
      : layout_(layout), args_(args), blocks_(bits), node_(node), across_(across), spaces_(layout.spaces.size()) {}

  [[nodiscard]] uint64_t bytes() const override {
    uint64_t bytes = 0;
    for (const ddh::FlatSpace& space : layout_.spaces)
      if (space.trained()) bytes += space.grad_bytes() + space.grad_segment_bytes(args_.rank);
    return bytes;
  }
  [[nodiscard]] ddh::SentBytes sent_bytes() const override {
    ddh::SentBytes sent;
    for (const ddh::FlatSpace& space : layout_.spaces) {
      if (!space.trained_in(layout_.first_program())) continue;
      std::vector<uint64_t> on_node, between;
      for (size_t place = 0; place < node_.ranks.size(); ++place) on_node.push_back(bytes_of_place(space, place));
      for (size_t n = 0; n < across_.ranks.size(); ++n)
        between.push_back(blocks_.bytes(space.segment_numel(rank_of(n, place()))));
      ddh::SentBytes once = node_.ranks.pieces(on_node, 1);
      once += across_.ranks.pieces(between, 1);
      sent += ddh::reductions_per_step(args_) * once;
    }
    return sent;
  }

  void materialize(const ddh::Host& host) override {
    host_ = &host;
    for (size_t i = 0; i < spaces_.size(); ++i) {
      const ddh::FlatSpace& space = layout_.spaces[i];
      if (!space.trained()) continue;
      spaces_[i].whole = ddh::Buffer(host, DDH_TAG_GRAD, space.grad_bytes(), "gradients of " + space.name);
      spaces_[i].sum = ddh::Buffer(host, DDH_TAG_GRAD, space.grad_segment_bytes(args_.rank), "sums of " + space.name);
    }
  }

  float* writable(size_t space) override { return spaces_[space].whole.f32(); }

  void ready(size_t space, bool last) override {
    Space& s = spaces_[space];
    const ddh::FlatSpace& flat = layout_.spaces[space];
    add_across(flat, sum_on_node(flat, s.whole.f32()), s.sum.f32(), s.reductions > 0);
    ++s.reductions;
    if (!last) return;
    const std::vector<ddh_range> ranges = flat.segment_ranges(args_.rank);
    ddh::call(host_->optim->add_gradient, host_->h, s.sum.f32(), ranges.data(), static_cast<uint32_t>(ranges.size()));
  }
  void reduce_all() override {}

  [[nodiscard]] const float* sum(size_t space) override {
    return spaces_[space].reductions > 0 ? spaces_[space].sum.f32() : nullptr;
  }
  void step_done() override {
    for (Space& s : spaces_) s.reductions = 0;
  }
  void free(size_t space) override { spaces_[space] = {}; }

 private:
  struct Space {
    ddh::Buffer whole, sum;
    uint32_t reductions = 0;  // in this step
  };

  [[nodiscard]] size_t place() const { return node_.ranks.me(); }
  [[nodiscard]] int32_t rank_of(size_t node, size_t place) const {
    return static_cast<int32_t>(node * node_.ranks.size() + place);
  }
  // Of the segments of the ranks with this place on all nodes.
  [[nodiscard]] uint64_t bytes_of_place(const ddh::FlatSpace& space, size_t place) const {
    uint64_t bytes = 0;
    for (size_t n = 0; n < across_.ranks.size(); ++n) bytes += blocks_.bytes(space.segment_numel(rank_of(n, place)));
    return bytes;
  }

  // The sums over the node of the segments of this rank's place, one after another.
  std::vector<float> sum_on_node(const ddh::FlatSpace& space, const float* whole) {
    std::vector<uint64_t> counts;
    std::vector<uint8_t> sent;
    for (size_t place = 0; place < node_.ranks.size(); ++place) {
      counts.push_back(bytes_of_place(space, place));
      for (size_t n = 0; n < across_.ranks.size(); ++n) {
        const auto r = static_cast<size_t>(rank_of(n, place));
        append(sent, whole + space.cut.segment_offset[r], space.cut.segment_numel[r]);
      }
    }
    const std::vector<uint64_t> from_each(counts.size(), counts[place()]);
    const std::vector<uint8_t> received = exchange(node_, sent, counts, from_each);
    std::vector<float> sums;
    const uint8_t* from = received.data();
    for (size_t peer = 0; peer < counts.size(); ++peer) {
      uint64_t at = 0;
      for (size_t n = 0; n < across_.ranks.size(); ++n) {
        const uint64_t numel = space.segment_numel(rank_of(n, place()));
        sums.resize(std::max<size_t>(sums.size(), at + numel));
        blocks_.decode(from, numel, sums.data() + at, /*adds=*/peer > 0);
        from += blocks_.bytes(numel);
        at += numel;
      }
    }
    return sums;
  }

  void add_across(const ddh::FlatSpace& space, const std::vector<float>& sums, float* to, bool adds) {
    std::vector<uint64_t> counts;
    std::vector<uint8_t> sent;
    uint64_t at = 0;
    for (size_t n = 0; n < across_.ranks.size(); ++n) {
      const uint64_t numel = space.segment_numel(rank_of(n, place()));
      counts.push_back(blocks_.bytes(numel));
      append(sent, sums.data() + at, numel);
      at += numel;
    }
    const uint64_t numel = space.segment_numel(args_.rank);
    const std::vector<uint64_t> from_each(counts.size(), blocks_.bytes(numel));
    const std::vector<uint8_t> received = exchange(across_, sent, counts, from_each);
    for (size_t n = 0; n < counts.size(); ++n)
      blocks_.decode(received.data() + n * blocks_.bytes(numel), numel, to, adds || n > 0);
  }

  void append(std::vector<uint8_t>& out, const float* values, uint64_t numel) const {
    const size_t begin = out.size();
    out.resize(begin + blocks_.bytes(numel));
    blocks_.encode(values, numel, out.data() + begin);
  }

  [[nodiscard]] std::vector<uint8_t> exchange(const Peers& peers, const std::vector<uint8_t>& sent,
                                              const std::vector<uint64_t>& counts,
                                              const std::vector<uint64_t>& recv_counts) const {
    std::vector<uint8_t> received(recv_counts.front() * recv_counts.size());
    ddh_coll coll{};
    coll.struct_size = sizeof coll;
    coll.dtype = DDH_U8;
    coll.send = sent.data();
    coll.recv = received.data();
    coll.counts = counts.data();
    coll.recv_counts = recv_counts.data();
    coll.group = peers.group;
    coll.label = "quantized gradients";
    ddh::call(host_->comm->all_to_all, host_->h, &coll);
    return received;
  }

  const ddh::Host* host_ = nullptr;
  const ddh::ModelLayout& layout_;
  const ddh_attach_args args_;
  const Blocks blocks_;
  const Peers node_, across_;
  std::vector<Space> spaces_;
};
