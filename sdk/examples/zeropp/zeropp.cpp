// SPDX-License-Identifier: Apache-2.0
//
// zeropp: zero3 with quantized communication and a second copy of the parameters on each node (ZeRO++).
//
//                      bytes on each of N ranks, L of them on a node (terms: ddh/sdk/data_parallel.hpp)
// Parameters           4 P/N, the secondary part 4 P/L, and the units in use; half of it in bf16
// Gradients            4 P, and 4 P/N for the sums
// Optimizer state      8 P/N; in bf16 a master of 4 P/N more
// Sent between nodes   for each element of a segment and each rank of another node, in a step with one micro-batch:
//                      weight_bits=8      1 byte in the first gather instead of 2 (bf16)
//                      secondary=true     none in the second gather instead of 2
//                      grad_bits=4        half a byte to one rank of each other node instead of 4 to each rank there
// Each block of 256 values has a scale of 4 bytes more.
// Source: Wang et al., ZeRO++: Extremely Efficient Collective Communication for Giant Model Training, arXiv 2306.10209.
#include "quantized_grads.hpp"

namespace {

constexpr ddh::Option kOptions[] = {
    {"weight_bits", "integer", "8", R"("enum": [8, 16])",
     "bits of a gathered parameter (qwZ); 16: gathered as the run computes with it"},
    {"grad_bits", "integer", "4", R"("enum": [4, 8, 32])",
     "bits of a gradient between ranks (qgZ); 32: summed as zero3 does"},
    {"secondary", "boolean", "true", "",
     "keep a second copy of the parameters on each node, from which the backward gathers (hpZ)"},
};

class Zeropp final : public ddh::DataParallel {
 public:
  using DataParallel::DataParallel;

 private:
  // All ranks share the model. Nodes are of equal size.
  ddh_attach_args sharing(const ddh_attach_args& world) override {
    const int32_t size = world.ranks_per_node > 0 ? world.ranks_per_node : world.world_size;
    if (world.world_size % size != 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "zeropp needs nodes of equal size, and the run has ", world.world_size,
                " ranks with ", size, " on a node; choose another number of ranks");
    const int32_t rank = world.rank, nodes = world.world_size / size;
    node_.ranks = ddh::GroupRanks::strided(rank / size * size, 1, size, rank % size, world.node_of);
    node_.group = make_group("zeropp node", rank / size * size, 1, size);
    across_.ranks = ddh::GroupRanks::strided(rank % size, size, nodes, rank / size, world.node_of);
    across_.group = make_group("zeropp between nodes", rank % size, size, nodes);
    return world;
  }

  std::unique_ptr<ddh::OptimStore> optimizer() override {
    return std::make_unique<ddh::ResidentOptim>(
        host, layout(), [&](const ddh::FlatSpace& space) { return ddh::segment_part(space, args()); });
  }
  std::unique_ptr<ddh::ParamStore> parameters() override {
    const ParamSettings settings{options.i64("weight_bits"), options.flag("secondary"), node_};
    return std::make_unique<GatheredForUse>(host, layout(), args(), settings);
  }
  std::unique_ptr<ddh::GradStore> gradients() override {
    const int64_t bits = options.i64("grad_bits");
    if (bits == 32) return std::make_unique<ddh::GradRing>(layout(), args());
    return std::make_unique<QuantizedGrads>(layout(), args(), bits, node_, across_);
  }

  Peers node_, across_;
};

// It computes in host memory, so it is not DDH_CAP_STREAM_ORDERED.
constexpr uint64_t kCaps =
    DDH_CAP_IN_PROCESS | DDH_CAP_DRY_ATTACH | DDH_CAP_SHARDS_OPTIM | DDH_CAP_SHARDS_PARAM | DDH_CAP_LOSSY;

}  // namespace

DDH_CXX_PLUGIN(Zeropp, strategy, "zeropp", "0.1.0", "zero3 with quantized communication between nodes",
               ddh::kSchemaOf<kOptions>, ddh::DataParallel::kNeeds, kCaps, 0, ddh::DataParallel::kUnderstands);
