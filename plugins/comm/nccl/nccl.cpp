// SPDX-License-Identifier: Apache-2.0
//
// nccl: collectives between GPUs through NCCL. It takes memory of the device only; the host adds a transport for its own
// memory (comm.host).
//
//   library     libnccl.so.2, opened when the run begins
//   connecting  without blocking, to a deadline; two ranks on one GPU are refused by its UUID, except with comm.share_gpu
//   sums        fp32 in rank order, with the bits of every other transport (collectives.hpp)
//   failures    a thread watches for errors of peers and of the network, and aborts (watch.hpp)
//
// Has run on one GPU, with one rank and with up to four that share it (comm.share_gpu), and on the stand-in of
// tests/gpu/standin; not between several GPUs.
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "collectives.hpp"
#include "ddh/sdk/comm.hpp"
#include "ddh/sdk/comm_groups.hpp"
#include "ddh/sdk/options.hpp"
#include "watch.hpp"

namespace nccl DDH_HIDDEN {
namespace {

using Uuid = std::array<uint8_t, 16>;

std::string settings_of_nccl() {
  std::string text;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    if (std::strncmp(*variable, "NCCL_", 5) == 0) text += ddh::str(", ", *variable);
  return text;
}

class Nccl final : public ddh::CommBackend {
 public:
  explicit Nccl(const ddh_create& create)
      : CommBackend(create), watch_([this](const std::string& what) { host.log(DDH_LOG_INFO, what); }) {}
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;
  ~Nccl() override { watch_.stop(); }

  void init(const ddh_comm_init& args) override {
    init_ = ddh::copy_of(args);
    if (init_.device == nullptr || std::strcmp(init_.device->native_api, "cuda") != 0)
      ddh::fail(DDH_FAILED_PRECONDITION, "comm 'nccl' exchanges memory of NVIDIA GPUs; choose --device cuda, or ",
                "--comm shm");
    deadline_ms_ = static_cast<uint32_t>(options.i64("timeout_s")) * 1000;
    if (options.flag("share_gpu")) pretend_other_hosts();
    library_ = Library::open(options.text("library"));
    if (options.flag("symmetric_windows") && !library_.has_windows())
      ddh::fail(DDH_UNAVAILABLE, "comm.symmetric_windows needs NCCL 2.27 or newer, and '", options.text("library"),
                "' is ", library_.version_text(), "; install a newer one, or set comm.symmetric_windows=false");
    groups_.init(init_, deadline_ms_);
    if (!options.flag("share_gpu")) require_own_gpu();
    scratch_.emplace(host);
    world_ = &make_group(groups_.world(), {options.flag("ordered_sums"), init_.reduce_block});
    if (init_.rank == 0)
      host.log(DDH_LOG_INFO, "NCCL ", library_.version_text(), ", ", init_.world_size, " ranks, sums of fp32 in ",
               world_->is_ordered() ? "rank order" : "NCCL's order", settings_of_nccl());
  }

  ddh_group* world() override { return handle(*world_); }
  ddh_group* group_create(const char* name, const int32_t* ranks, uint32_t n) override {
    const uint32_t one_block = n;  // reduce_block applies to the group of all ranks
    return handle(make_group(groups_.place(name, {ranks, ranks + n}), {options.flag("ordered_sums"), one_block}));
  }
  void group_info(ddh_group* group, int32_t& rank, int32_t& size, uint32_t& caps) override {
    rank = of(group).communicator().rank();
    size = of(group).communicator().size();
    caps = DDH_COMM_INITIAL | (of(group).is_ordered() ? DDH_COMM_ORDERED_SUM : 0U);
  }
  void all_reduce(const ddh_coll& args) override { of(args.group).all_reduce(args); }
  void reduce_scatter(const ddh_coll& args) override { of(args.group).reduce_scatter(args); }
  void all_gather(const ddh_coll& args) override { of(args.group).all_gather(args); }
  void broadcast(const ddh_coll& args) override { of(args.group).broadcast(args); }
  void all_to_all(const ddh_coll& args) override { of(args.group).all_to_all(args); }
  void send_to(const ddh_coll& args) override { of(args.group).send(args); }
  void receive_from(const ddh_coll& args) override { of(args.group).recv(args); }
  void barrier(ddh_group*) override {
    ddh::fail(DDH_UNIMPLEMENTED, "comm 'nccl' has no barrier; the transport of comm.host has one");
  }
  void abort(const char* reason) override { watch_.abort_all(reason); }
  void check() override {
    for (const auto& group : groups_) group->communicator().require_healthy();
  }
  void finalize() override {
    check();
    watch_.stop();
    for (const auto& group : groups_) group->communicator().finalize();
  }
  void buffer_register(ddh_group* group, void* p, uint64_t bytes) override {
    if (!options.flag("register_buffers")) return;
    const std::string why = of(group).communicator().register_buffer(p, bytes);
    if (!why.empty() && !std::exchange(said_unregistered_, true))
      host.log(DDH_LOG_INFO, why, "; the run goes on and NCCL copies more, and comm.register_buffers=false hides this");
  }
  void buffer_unregister(ddh_group* group, void* p) override { of(group).communicator().unregister_buffer(p); }
  void* buffer_allocate(ddh_group* group, uint64_t bytes) override {
    return options.flag("symmetric_windows") ? of(group).communicator().allocate_window(bytes) : nullptr;
  }
  // Most windows are given back after finalize, which throws what failed until then.
  void buffer_release(ddh_group* group, void* p) override {
    const std::string why = of(group).communicator().free_window(p);
    if (!why.empty()) host.log(DDH_LOG_WARN, why, "; the memory of a window was not given back");
  }

 private:
  static Group& of(ddh_group* group) { return ddh::CommGroups<Group>::of(group); }
  static ddh_group* handle(Group& group) { return ddh::CommGroups<Group>::handle(group); }

  // NCCL refuses a second rank on a GPU of the same host (init.cc of 2.28), and reads these variables when the first ranks
  // connect. What the user has set stays.
  void pretend_other_hosts() const {
    const std::string host_id = ddh::str("rank-", init_.rank);
    const std::pair<const char*, const char*> variables[] = {{"NCCL_HOSTID", host_id.c_str()},
                                                             {"NCCL_NET", "Socket"},
                                                             {"NCCL_SOCKET_IFNAME", "lo"},
                                                             {"NCCL_MNNVL_ENABLE", "0"},
                                                             {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}};  // 2.30 and newer
    for (const auto& [name, value] : variables) setenv(name, value, /*overwrite=*/0);
    if (init_.rank == 0)
      host.log(DDH_LOG_WARN,
               "comm.share_gpu: ranks on one GPU exchange through sockets of this machine, which is slow");
  }

  // NCCL needs a GPU of its own for each rank. All ranks find the same pair.
  void require_own_gpu() const {
    Uuid mine{};
    std::copy(std::begin(init_.device->uuid), std::end(init_.device->uuid), mine.begin());
    groups_.set(ddh::str("GPU of rank ", init_.rank), mine);
    std::vector<Uuid> all;
    for (int32_t r = 0; r < init_.world_size; ++r) all.push_back(groups_.get<Uuid>(ddh::str("GPU of rank ", r)));
    for (size_t a = 0; a < all.size(); ++a) {
      const auto twin = std::find(all.begin() + static_cast<std::ptrdiff_t>(a) + 1, all.end(), all[a]);
      if (twin == all.end() || all[a] == Uuid{}) continue;
      ddh::fail(DDH_FAILED_PRECONDITION, "ranks ", a, " and ", twin - all.begin(),
                " use the same GPU, which NCCL does ",
                "not allow; give at most one rank for each GPU (--nproc, CUDA_VISIBLE_DEVICES), or choose --comm shm");
    }
  }

  Group& make_group(const ddh::GroupPlace& place, SumOrder order) {
    Membership membership;
    membership.name = place.name;
    membership.rank = place.rank;
    membership.size = place.size();
    membership.deadline = std::chrono::milliseconds(deadline_ms_);
    if (library_.version >= 22700 && options.i64("cta_policy") > 0)
      membership.cta_policy = static_cast<int>(options.i64("cta_policy"));
    const auto id = groups_.share<UniqueId>(place, [&] {
      UniqueId made{};
      const Result result = library_.GetUniqueId(&made);
      if (result != kSuccess)
        ddh::fail(DDH_UNAVAILABLE, "NCCL's ncclGetUniqueId failed: ", library_.text_of(result, nullptr));
      return made;
    });
    Group& group = groups_.add(std::make_unique<Group>(
        host, library_, *scratch_, order, std::make_unique<Communicator>(library_, std::move(membership), id)));
    watch_.add(group.communicator());
    return group;
  }

  ddh_comm_init init_{};
  uint32_t deadline_ms_ = 0;
  Library library_;
  std::optional<Scratch> scratch_;
  bool said_unregistered_ = false;
  ddh::CommGroups<Group> groups_{host};
  Group* world_ = nullptr;
  Watch watch_;  // ends before the groups
};

constexpr ddh::Option kOptions[] = {
    {"library", "string", R"("libnccl.so.2")", "", "library of NCCL; tests name another one"},
    {"timeout_s", "integer", "120", R"("minimum": 1, "maximum": 86400, "x-unit": "s")",
     "time in which all ranks must connect, and in which NCCL must queue a call"},
    {"ordered_sums", "boolean", "true", "",
     "sum fp32 in rank order, with the same bits in every run and on every transport; false: NCCL's own sums"},
    {"register_buffers", "boolean", "true", "",
     "tell NCCL the memory of windows and exchanges, so that it copies less"},
    {"symmetric_windows", "boolean", "false", "",
     "NCCL 2.27 and newer: windows and exchanges are in memory of NCCL's that all GPUs of a group can access"},
    {"share_gpu", "boolean", "false", "",
     "for tests: several ranks on one GPU, which NCCL then takes for GPUs of several machines; slow"},
    {"cta_policy", "integer", "0", R"("minimum": 0, "maximum": 2)",
     "NCCL 2.27 and newer: 0 its default, 1 fewer blocks of threads, 2 none where hardware copies"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_KV_IFACE,      DDH_STREAM_IFACE,
                                  DDH_ALLOC_IFACE,  DDH_FLATOPS_IFACE, nullptr};

}  // namespace
}  // namespace DDH_HIDDEN

DDH_CXX_PLUGIN(nccl::Nccl, comm, "nccl", "0.1.0", "NVIDIA's NCCL between GPUs (not run on several yet)",
               ddh::kSchemaOf<nccl::kOptions>, nccl::kNeeds, DDH_CAP_DEVICE_BUFFERS);
