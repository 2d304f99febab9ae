// SPDX-License-Identifier: Apache-2.0
//
// quantized_params.hpp: parameters of which each rank keeps its segment, as in zero3. The first gather after an update is of
// blocks of 8 bits (qwZ). Then each rank of a node keeps a part of the gathered values, and further gathers stay on the node
// (hpZ). All ranks get the same values: a rank decodes its own segment too.
#pragma once

#include <optional>
#include <vector>

#include "blocks.hpp"
#include "ddh/sdk/data_parallel.hpp"

// The ranks of a node, or those with the same place on their nodes.
struct Peers {
  ddh_group* group = nullptr;
  ddh::GroupRanks ranks;
};

struct ParamSettings {
  int64_t weight_bits = 8;  // 16: gathered as they are
  bool secondary = true;    // a part of the gathered values stays on each rank of a node
  Peers node;
};

class QuantizedParams final : public ddh::ViewSource {
 public:
  QuantizedParams(const ddh::Host& host, const ddh::ModelLayout& layout, const ddh_attach_args& args,
                  const ParamSettings& settings)
      : host_(host), args_(args), settings_(settings), blocks_(settings.weight_bits == 8 ? 8 : 4) {
    for (const ddh::FlatSpace& space : layout.spaces) {
      Space& s = spaces_.emplace_back();
      s.world = s.node = space;
      s.node.cut = ddh::Cut(space.numel, static_cast<int32_t>(settings.node.ranks.size()));
    }
  }

  [[nodiscard]] bool keeps_segments() const override { return true; }
  [[nodiscard]] uint64_t resting_bytes() const override {
    uint64_t bytes = 0;
    for (const Space& s : spaces_)
      bytes += s.world.value_segment_bytes(args_.rank) + (settings_.secondary ? s.node.value_segment_bytes(me()) : 0);
    return bytes;
  }
  void materialize() override {
    for (Space& s : spaces_) {
      s.segment =
          ddh::Buffer(host_, DDH_TAG_PARAM, s.world.value_segment_bytes(args_.rank), "segment of " + s.world.name);
      if (settings_.secondary)
        s.part =
            ddh::Buffer(host_, DDH_TAG_PARAM, s.node.value_segment_bytes(me()), "secondary part of " + s.world.name);
    }
  }

  [[nodiscard]] void* segment(size_t space) { return spaces_[space].segment.data(); }
  // Values have changed: the next gathers are from all ranks again.
  void forget() {
    for (Space& s : spaces_) s.has_part = false;
  }

  void open(size_t space, ddh::Window*, void* view) override {
    Space& s = spaces_[space];
    s.opened_on_node = s.has_part;
    if (view != nullptr) fill(s, view);
    s.has_part = settings_.secondary;
  }
  [[nodiscard]] std::optional<ddh::SentBytes> sent_in_open(size_t space) const override {
    const Space& s = spaces_[space];
    if (s.opened_on_node) return settings_.node.ranks.to_each(s.node.value_segment_bytes(me()));
    if (settings_.weight_bits != 8) return std::nullopt;
    const auto ranks = ddh::GroupRanks::strided(0, 1, args_.world_size, args_.rank, args_.node_of);
    return ranks.to_each(blocks_.bytes(s.world.segment_numel(args_.rank)));
  }
  void close(size_t, ddh::Window*, void*) override {}

 private:
  struct Space {
    ddh::FlatSpace world, node;  // cut among all ranks, and among those of the node
    ddh::Buffer segment, part;
    bool has_part = false;  // it holds the newest values
    bool opened_on_node = false;
  };

  [[nodiscard]] int32_t me() const { return static_cast<int32_t>(settings_.node.ranks.me()); }

  void fill(Space& s, void* view) {
    if (s.has_part) {
      std::memcpy(ddh::segment_in(s.node, me(), view), s.part.data(), s.part.bytes());
      return ddh::gather_segments(host_, settings_.node.group, s.node, me(), view);
    }
    if (settings_.weight_bits == 8) {
      gather_blocks(s, view);
    } else {
      std::memcpy(ddh::segment_in(s.world, args_.rank, view), s.segment.data(), s.segment.bytes());
      ddh::gather_segments(host_, args_.group, s.world, args_.rank, view);
    }
    if (settings_.secondary) std::memcpy(s.part.data(), ddh::segment_in(s.node, me(), view), s.part.bytes());
  }

  void gather_blocks(const Space& s, void* view) {
    const ddh::FlatSpace& space = s.world;
    const uint64_t mine = space.segment_numel(args_.rank);
    std::vector<float> values(space.numel);
    ddh::call(host_.flatops->cast, host_.h, values.data(), DDH_F32, s.segment.data(), space.dtype, mine, nullptr);
    std::vector<uint8_t> sent(blocks_.bytes(mine));
    blocks_.encode(values.data(), mine, sent.data());
    std::vector<uint64_t> counts;
    uint64_t all = 0;
    for (const uint64_t numel : space.cut.segment_numel) all += counts.emplace_back(blocks_.bytes(numel));
    std::vector<uint8_t> received(all);
    ddh_coll coll{};
    coll.struct_size = sizeof coll;
    coll.dtype = DDH_U8;
    coll.send = sent.data();
    coll.recv = received.data();
    coll.counts = counts.data();
    coll.group = args_.group;
    coll.label = space.name.c_str();
    ddh::call(host_.comm->all_gather, host_.h, &coll);
    const uint8_t* from = received.data();
    for (size_t r = 0; r < counts.size(); from += counts[r++])
      blocks_.decode(from, space.cut.segment_numel[r], values.data() + space.cut.segment_offset[r], /*adds=*/false);
    ddh::round_to(host_, view, space.dtype, values.data(), space.numel);
  }

  const ddh::Host& host_;
  const ddh_attach_args args_;
  const ParamSettings settings_;
  const Blocks blocks_;
  std::vector<Space> spaces_;
};

// A unit's parameters are gathered for its use alone.
class GatheredForUse final : public ddh::GatheredStore {
 public:
  GatheredForUse(const ddh::Host& host, const ddh::ModelLayout& layout, const ddh_attach_args& args,
                 const ParamSettings& settings)
      : GatheredStore(host, layout, args), settings_(settings) {}

  void* values(size_t space) override { return static_cast<QuantizedParams*>(source())->segment(space); }
  void values_changed() override { static_cast<QuantizedParams*>(source())->forget(); }

 protected:
  [[nodiscard]] std::unique_ptr<ddh::ViewSource> make_source() const override {
    return std::make_unique<QuantizedParams>(host_, layout_, args_, settings_);
  }
  [[nodiscard]] uint64_t source_calls(const Gathered& dry) const override { return dry.params.opens(); }

  void gather_for(const ddh_unit_use& use, Gathered& gathered) const override {
    gathered.params.acquire(spaces_of(use));
  }
  void drop_after(const ddh_unit_use& use, Gathered& gathered) const override {
    gathered.params.release(spaces_of(use));
    const bool again = use.n_next > 0 && use.next[0] == use.unit;  // its backward follows its forward
    if (again)
      for (const size_t s : spaces_of(use)) gathered.params.keep(s);
    gathered.params.close_others();
  }

 private:
  const ParamSettings settings_;
};
