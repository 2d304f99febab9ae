// SPDX-License-Identifier: Apache-2.0
#include "engine/services/comm/layered_comm.hpp"

#include <algorithm>
#include <numeric>

#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

using layers::Core;
using layers::Piece;
using layers::SumOrder;

// Less than this goes in one exchange of all ranks, which waits less often.
constexpr uint64_t kSmallBytes = uint64_t{1} << 14;

uint64_t width_of(const ddh_coll& c) {
  const uint64_t width = ddh_dtype_bytes(c.dtype);
  if (width == 0) ddh::fail(DDH_UNIMPLEMENTED, "dtype ", c.dtype, " is unknown; use one of ddh/abi.h");
  return width;
}

uint64_t sum_of(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

}  // namespace

// The transport's keys must not meet those of other hosts.
InitInside::InitInside(const ddh_comm_init& run, const Nodes& nodes)
    : node_of_(static_cast<size_t>(nodes.sizes()[static_cast<size_t>(run.node)])), init_(run) {
  init_.rank = run.local_rank;
  init_.world_size = static_cast<int32_t>(node_of_.size());
  init_.run_id = ddh::fnv1a(ddh::str(run.run_id, " host ", run.node));
  init_.node = 0;
  init_.ranks_per_node = 0;
  init_.n_nodes = 1;
  init_.node_of = node_of_.data();
  init_.address = nullptr;
  init_.addresses = nullptr;
  init_.first_rank = run.rank - run.local_rank;
}

bool LayeredComm::is_inside(const Nodes& nodes, const int32_t* ranks, uint32_t n) {
  return std::all_of(ranks, ranks + n, [&](int32_t rank) { return nodes.node(rank) == nodes.node(*ranks); });
}

SumOrder LayeredComm::order_of(const Nodes& nodes, uint32_t reduce_block) {
  const std::vector<int32_t> sizes = nodes.sizes();
  const auto block = static_cast<int32_t>(reduce_block);
  const auto all = [&](auto&& holds) { return std::all_of(sizes.begin(), sizes.end(), holds); };
  if (all([&](int32_t size) { return size == block; })) return SumOrder::kBlocks;
  return all([&](int32_t size) { return size % block == 0; }) ? SumOrder::kChain : SumOrder::kFlat;
}

std::string LayeredComm::order_text() const {
  const std::string block = ddh::str("train.reduce_block=", reduce_block_);
  if (core_ == nullptr) return "collectives of all ranks take the transport between hosts alone, because " + lack_;
  if (!lack_.empty()) return "sums take the transport between hosts alone, because " + lack_;
  switch (order_) {
    case SumOrder::kBlocks:
      return ddh::str("hosts add their sums, because ", block, " is the ranks of each host");
    case SumOrder::kChain:
      return ddh::str("sums go on from host to host, because ", block, " divides the ranks of each host");
    case SumOrder::kFlat:
      break;
  }
  return ddh::str("sums take the transport between hosts alone, because ", block,
                  " does not divide the ranks of each host");
}

uint64_t LayeredComm::bytes(const Nodes& nodes, int32_t rank) {
  return Core::scratch_bytes(layers::Places(nodes, rank));
}

LayeredComm::LayeredComm(const Transport& inside, const Transport& between, const Nodes& nodes, int32_t rank,
                         uint32_t reduce_block, Clock& clock, Memory& memory)
    : inside_(inside),
      between_(between),
      places_(nodes, rank),
      reduce_block_(reduce_block),
      order_(order_of(nodes, reduce_block)),
      clock_(clock),
      memory_(memory),
      pack_region_(nullptr, DestroyRegion{inside}) {
  groups_.push_back({{between.inst, between.backend, between.backend->world(between.inst)}, /*is_world=*/true});
  inside_world_ = {inside.inst, inside.backend, inside.backend->world(inside.inst)};
  lack_ = missing_for_sums();
  if (!lack_.empty()) order_ = SumOrder::kFlat;
  make_core();
}

std::string LayeredComm::missing_for_sums() const {
  int32_t local_rank = 0, size = 0;
  uint32_t caps = 0;
  ddh::call(inside_.backend->group_info, inside_.inst, inside_world_.group, &local_rank, &size, &caps);
  if (order_ == SumOrder::kFlat) return "";
  if ((caps & DDH_COMM_ORDERED_SUM) == 0) return "comm.inside does not sum in the order of ranks";
  if (order_ == SumOrder::kChain && (caps & DDH_COMM_INITIAL) == 0)
    return "comm.inside does not go on from an earlier sum";
  return "";
}

void LayeredComm::make_core() {
  if (between_.backend->all_to_all == nullptr) lack_ = "it has no all_to_all";
  if (inside_.backend->reduce_scatter == nullptr) lack_ = "comm.inside has no reduce_scatter";
  if (between_.backend->all_to_all == nullptr || inside_.backend->reduce_scatter == nullptr) return;
  layers::Layer lane = groups_.front().layer;
  if (places_.are_equal()) {
    const std::vector<int32_t> column = places_.column();
    ddh::call(lane.api->group_create, lane.inst, "lane", column.data(), static_cast<uint32_t>(column.size()),
              &lane.group);
  }
  const uint64_t bytes = Core::pack_bytes(places_);
  std::byte* pack = nullptr;
  if (inside_.shared != nullptr) {  // the ranks of the host then read each other's values in place
    void* base = nullptr;
    ddh_region* region = nullptr;
    const auto n = static_cast<uint64_t>(places_.size(places_.host()));
    ddh::call(inside_.shared->region_create, inside_.inst, inside_world_.group, "sums over hosts", n * bytes, &base,
              &region);
    pack_region_.reset(region);
    pack = static_cast<std::byte*>(base) + static_cast<uint64_t>(places_.local(places_.rank())) * bytes;
  } else {
    own_pack_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    pack = own_pack_.get();
  }
  core_ = std::make_unique<Core>(places_, inside_world_, lane, pack);
  memory_.account(DDH_TAG_COMM, static_cast<int64_t>(Core::scratch_bytes(places_)), false);
}

LayeredComm::~LayeredComm() {
  if (core_ != nullptr) memory_.account(DDH_TAG_COMM, -static_cast<int64_t>(Core::scratch_bytes(places_)), false);
}

ddh_group* LayeredComm::group_create(const char* name, const int32_t* ranks, uint32_t n) {
  const bool here = n > 0 && is_inside(places_.nodes(), ranks, n);
  const Transport& transport = here ? inside_ : between_;
  std::vector<int32_t> members(ranks, ranks + n);
  if (here)
    for (int32_t& rank : members) rank -= places_.first(places_.host());
  Group group{{transport.inst, transport.backend, nullptr}};
  ddh::call(transport.backend->group_create, transport.inst, name, members.data(), n, &group.layer.group);
  return handle(groups_.emplace_back(group));
}

void LayeredComm::group_info(ddh_group* group, int32_t& rank, int32_t& size, uint32_t& caps) {
  const layers::Layer& layer = of(group).layer;
  ddh::call(layer.api->group_info, layer.inst, layer.group, &rank, &size, &caps);
  if (layer.inst != inside_.inst || inside_.shared == nullptr) caps &= ~DDH_COMM_SHARED_VIEW;
}

std::vector<uint64_t> LayeredComm::counts_of(const ddh_coll& c) const {
  const auto n = static_cast<size_t>(places_.world_size());
  return c.counts != nullptr ? std::vector<uint64_t>(c.counts, c.counts + n) : std::vector<uint64_t>(n, c.count);
}

bool LayeredComm::is_layered_sum(const ddh_coll& c, uint64_t count) const {
  const bool is_sum = c.dtype == DDH_F32 && c.op == DDH_SUM;
  return core_ != nullptr && order_ != SumOrder::kFlat && is_sum && count * sizeof(float) > kSmallBytes;
}

void LayeredComm::count(uint64_t wire_bytes) {
  if (wire_bytes > 0) clock_.count("comm.wire_bytes", wire_bytes);
}
void LayeredComm::count_layers() { count(core_->sent_bytes() - std::exchange(counted_, core_->sent_bytes())); }

void LayeredComm::sum(const layers::SumCall& call) {
  if (order_ == SumOrder::kBlocks)
    core_->blocks(call);
  else
    core_->chain(call);
  count_layers();
}

void LayeredComm::reduce_scatter(const ddh_coll& c) {
  const Group& group = of(c.group);
  if (!group.is_world) return group.layer.call(&ddh_comm_backend_api::reduce_scatter, "reduce_scatter", c);
  const std::vector<uint64_t> counts = counts_of(c);
  if (is_layered_sum(c, sum_of(counts)))
    return sum({static_cast<const float*>(c.send), static_cast<float*>(c.recv), static_cast<const float*>(c.initial),
                c.label, core_->pieces(counts)});
  group.layer.call(&ddh_comm_backend_api::reduce_scatter, "reduce_scatter", c);
  count(ranks().pieces(counts, width_of(c)).between_nodes);
}

// In blocks the owners have the sums first; a chain ends on the last host, which sends them to all.
void LayeredComm::all_reduce(const ddh_coll& c) {
  const Group& group = of(c.group);
  if (!group.is_world || !is_layered_sum(c, c.count)) {
    group.layer.call(&ddh_comm_backend_api::all_reduce, "all_reduce", c);
    if (group.is_world) count(ranks().all_reduce(c.count, width_of(c)).between_nodes);
    return;
  }
  const auto *const send = static_cast<const float*>(c.send), *const initial = static_cast<const float*>(c.initial);
  auto* const recv = static_cast<float*>(c.recv);
  if (order_ == SumOrder::kChain) return sum({send, recv, initial, c.label, core_->even_pieces(c.count)});
  const std::vector<uint64_t> counts = layers::even_counts(c.count, places_.world_size());
  const uint64_t mine = std::accumulate(counts.begin(), counts.begin() + places_.rank(), uint64_t{0});
  sum({send, recv + mine, initial == nullptr ? nullptr : initial + mine, c.label, core_->pieces(counts)});
  gather(c, counts, recv + mine);
}

void LayeredComm::gather(const ddh_coll& c, const std::vector<uint64_t>& counts, const void* mine) {
  std::vector<uint64_t> bytes = counts;
  for (uint64_t& count : bytes) count *= width_of(c);
  core_->all_gather(static_cast<const std::byte*>(mine), static_cast<std::byte*>(c.recv), core_->pieces(bytes),
                    c.label);
  count_layers();
}

void LayeredComm::all_gather(const ddh_coll& c) {
  const Group& group = of(c.group);
  if (!group.is_world) return group.layer.call(&ddh_comm_backend_api::all_gather, "all_gather", c);
  const std::vector<uint64_t> counts = counts_of(c);
  if (core_ != nullptr && sum_of(counts) * width_of(c) > kSmallBytes) return gather(c, counts, c.send);
  group.layer.call(&ddh_comm_backend_api::all_gather, "all_gather", c);
  count(ranks().to_each(counts[static_cast<size_t>(places_.rank())] * width_of(c)).between_nodes);
}

void LayeredComm::broadcast(const ddh_coll& c) {
  const Group& group = of(c.group);
  if (!group.is_world) return group.layer.call(&ddh_comm_backend_api::broadcast, "broadcast", c);
  const uint64_t bytes = c.count * width_of(c);
  if (c.root < 0 || c.root >= places_.world_size())
    ddh::fail(DDH_OUT_OF_RANGE, "root ", c.root, " of a group of ", places_.world_size(), "; ranks count from 0");
  if (core_ != nullptr && bytes > kSmallBytes) {
    core_->broadcast(static_cast<const std::byte*>(c.send), static_cast<std::byte*>(c.recv), bytes, c.root, c.label);
    return count_layers();
  }
  group.layer.call(&ddh_comm_backend_api::broadcast, "broadcast", c);
  if (c.root == places_.rank()) count(ranks().to_each(bytes).between_nodes);
}

void LayeredComm::all_to_all(const ddh_coll& c) {
  const Group& group = of(c.group);
  group.layer.call(&ddh_comm_backend_api::all_to_all, "all_to_all", c);
  if (group.is_world) count(ranks().pieces(counts_of(c), width_of(c)).between_nodes);
}

void LayeredComm::point_to_point(Slot slot, const char* name, const ddh_coll& c, bool sends) {
  const Group& group = of(c.group);
  if (!group.is_world) return group.layer.call(slot, name, c);
  if (c.root < 0 || c.root >= places_.world_size())
    ddh::fail(DDH_OUT_OF_RANGE, "peer ", c.root, " of a group of ", places_.world_size(), "; ranks count from 0");
  ddh_coll copy = c;
  const bool here = places_.is_here(c.root);
  if (here) copy.root = places_.local(c.root);
  (here ? inside_world_ : group.layer).call(slot, name, copy);
  if (sends && !here) count(c.count * width_of(c));
}

void LayeredComm::barrier(ddh_group* group) {
  const layers::Layer& layer = of(group).layer;
  ddh::call(layer.api->barrier, layer.inst, layer.group);
}

void LayeredComm::abort(const char* reason) {
  between_.backend->abort(between_.inst, reason);
  inside_.backend->abort(inside_.inst, reason);
}

void LayeredComm::finalize() {
  ddh::call(between_.backend->finalize, between_.inst);
  ddh::call(inside_.backend->finalize, inside_.inst);
}

const ddh_comm_backend_api& LayeredComm::table() {
  static const ddh_comm_backend_api layered = make_table();
  return layered;
}
const ddh_comm_shared_api& LayeredComm::shared_table() {
  static const ddh_comm_shared_api layered = make_shared_table();
  return layered;
}

ddh_comm_backend_api LayeredComm::make_table() {
  ddh_comm_backend_api t{};
  t.struct_size = sizeof t;
  t.world = [](ddh_inst* i) noexcept { return handle(of(i).groups_.front()); };
  t.group_create = [](ddh_inst* i, const char* name, const int32_t* ranks, uint32_t n, ddh_group** out,
                      ddh_err* err) noexcept {
    return ddh::guard(err, [&] { *out = of(i).group_create(name, ranks, n); });
  };
  t.group_info = [](ddh_inst* i, ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps,
                    ddh_err* err) noexcept {
    return ddh::guard(err, [&] { of(i).group_info(group, *rank, *size, *caps); });
  };
  t.all_reduce = call<&LayeredComm::all_reduce>;
  t.reduce_scatter = call<&LayeredComm::reduce_scatter>;
  t.all_gather = call<&LayeredComm::all_gather>;
  t.broadcast = call<&LayeredComm::broadcast>;
  t.all_to_all = call<&LayeredComm::all_to_all>;
  t.send = call<&LayeredComm::send>;
  t.recv = call<&LayeredComm::recv>;
  t.barrier = [](ddh_inst* i, ddh_group* group, ddh_err* err) noexcept {
    return ddh::guard(err, [&] { of(i).barrier(group); });
  };
  t.abort = [](ddh_inst* i, const char* reason) noexcept { of(i).abort(reason); };
  t.finalize = [](ddh_inst* i, ddh_err* err) noexcept { return ddh::guard(err, [&] { of(i).finalize(); }); };
  return t;
}

// Only groups inside a host have shared pages, so all calls are for the transport inside.
ddh_comm_shared_api LayeredComm::make_shared_table() {
  ddh_comm_shared_api t{};
  t.struct_size = sizeof t;
  t.region_create = [](ddh_inst* i, ddh_group* group, const char* name, uint64_t bytes, void** base, ddh_region** out,
                       ddh_err* err) noexcept {
    const Transport& to = of(i).inside_;
    return to.shared->region_create(to.inst, of(group).layer.group, name, bytes, base, out, err);
  };
  t.region_destroy = [](ddh_inst* i, ddh_region* region) noexcept {
    of(i).inside_.shared->region_destroy(of(i).inside_.inst, region);
  };
  t.marks_create = [](ddh_inst* i, ddh_group* group, uint32_t n, uint32_t* first, ddh_err* err) noexcept {
    const Transport& to = of(i).inside_;
    return to.shared->marks_create(to.inst, of(group).layer.group, n, first, err);
  };
  t.mark_set = [](ddh_inst* i, ddh_group* group, uint32_t mark, uint64_t value) noexcept {
    of(i).inside_.shared->mark_set(of(i).inside_.inst, of(group).layer.group, mark, value);
  };
  t.mark_wait = [](ddh_inst* i, ddh_group* group, int32_t peer, uint32_t mark, uint64_t value, const char* what,
                   ddh_err* err) noexcept {
    const Transport& to = of(i).inside_;
    return to.shared->mark_wait(to.inst, of(group).layer.group, peer, mark, value, what, err);
  };
  return t;
}

}  // namespace ddhost
