// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/nccl_fixture.hpp: ranks with a GPU and the transport nccl, called as the host calls it, on the libraries that
// place.hpp names.
#pragma once

#include <dlfcn.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "engine/calls/instance.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "gpu/cuda_fixture.hpp"
#include "launch/launch.hpp"
#include "plan/prepare.hpp"

namespace ddhost::test {

// One rank with a GPU and the transport, called as the host calls it.
class NcclRank {
 public:
  NcclRank(const PreparedRun& plan, const RankSeat& rank_seat, uint32_t reduce_block)
      : services_(rank_seat, plan.config.clone(),
                  std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::null_sink_mt>())),
        device_seat_(services_, "device:cuda"),
        comm_seat_(services_, "comm:nccl"),
        device_(plan.device, device_seat_.host(), "device"),
        rank(rank_seat.rank),
        world(rank_seat.world_size()) {
    services_.device = std::make_unique<Device>(
        device_.get(), device_.require<ddh_device_api>(DDH_DEVICE_IFACE, DDH_DEVICE_API_MIN_SIZE), uint64_t{0}, "cuda",
        rank_seat.local_rank());
    services_.memory.use(*services_.device);
    comm_ = Instance(plan.comm, comm_seat_.host(), "comm");
    table_ = &comm_.require<ddh_comm_backend_api>(DDH_COMM_BACKEND_IFACE, DDH_COMM_BACKEND_API_MIN_SIZE);
    const ddh_device_info info = services_.device->info();
    const ddh_comm_init init{sizeof init,
                             rank,
                             world,
                             reduce_block,
                             rank_seat.run_id,
                             0,
                             rank,
                             0,
                             1,
                             &info,
                             rank_seat.nodes->node_of().data(),
                             nullptr,
                             nullptr,
                             120'000,
                             0};
    try {
      ddh::call(table_->init, comm_.get(), &init);
    } catch (const ddh::Error&) {
      close();  // the destructor does not run
      throw;
    }
    group = table_->world(comm_.get());
  }
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;
  ~NcclRank() { close(); }

  template <class T>
  T* upload(const std::vector<T>& values) {
    auto* const p = static_cast<T*>(services_.memory.allocate(DDH_TAG_COMM, values.size() * sizeof(T), "a test"));
    device().copy(p, DDH_MEM_DEVICE, values.data(), DDH_MEM_HOST, values.size() * sizeof(T), nullptr);
    return p;
  }
  template <class T>
  std::vector<T> read(const T* p, uint64_t numel) {
    std::vector<T> out(numel);
    device().copy(out.data(), DDH_MEM_HOST, p, DDH_MEM_DEVICE, numel * sizeof(T), nullptr);
    device().synchronize(nullptr);
    return out;
  }
  ddh_coll coll(const void* send, void* recv, uint64_t count) const {
    return {sizeof(ddh_coll), DDH_F32, DDH_SUM, 0,      send,    recv,   count,
            nullptr,          group,   nullptr, "test", nullptr, nullptr};
  }
  void call(ddh_rc (*collective)(ddh_inst*, const ddh_coll*, ddh_err*) noexcept, const ddh_coll& c) {
    ddh::call(collective, comm_.get(), &c);
  }
  [[nodiscard]] const ddh_comm_backend_api& table() const { return *table_; }
  [[nodiscard]] ddh_inst* inst() const { return comm_.get(); }
  [[nodiscard]] Device& device() { return *services_.device; }

 private:
  // The device is closed while its plugin is there.
  void close() {
    comm_ = Instance();
    services_.memory.release_all();
    services_.device.reset();
  }

  RankServices services_;
  PluginSeat device_seat_, comm_seat_;
  Instance device_, comm_;
  const ddh_comm_backend_api* table_ = nullptr;

 public:
  const int32_t rank, world;
  ddh_group* group = nullptr;
};

// A rank that takes longer than `limit_s` is ended by SIGALRM: NCCL and a driver may hang. The launcher's watchdog sees
// only calls that the host makes, and here the test calls the plugin.
inline Outcome run_world(int world, const std::function<void(NcclRank&)>& body, std::vector<Override> settings = {},
                         uint32_t reduce_block = 2, unsigned limit_s = 60) {
  Registry registry(&host_interface, build_folder(), linked_plugins());
  settings.insert(settings.begin(), {{"comm.plugin", "nccl", "test"},
                                     {"comm.library", nccl_file(), "test"},
                                     {"device.plugin", "cuda", "test"},
                                     {"device.driver", driver_file(), "test"},
                                     {"model.plugin", build_folder() + "/tests/plugins/kernel_toy.so", "test"}});
  const PreparedRun plan =
      prepare_run(UserConfig::read("", settings), registry, {.device = {"cuda", "a test"}, .world_size = world});
  LaunchArgs args;
  args.world_size = world;
  return launch(args, [&](const RankSeat& seat) {
    alarm(limit_s);
    NcclRank rank(plan, seat, reduce_block);
    body(rank);
    rank.device().synchronize(nullptr);
    ddh::call(rank.table().finalize, rank.inst());
    return 0;
  });
}

// NCCL wants a GPU for each rank. The stand-in has as many as are asked for.
inline int gpus_for(int ranks) {
  static const int count = on_stand_ins() ? INT32_MAX : gpu_count();
  return std::min(ranks, count);
}
// Whether there are too few; then the case is skipped.
inline bool lacks_gpus_for(int ranks) {
  if (gpus_for(ranks) == ranks) return false;
  skip("NCCL with " + std::to_string(ranks) + " ranks needs as many GPUs");
  return true;
}

inline void expect(bool ok, const char* what, uint64_t numel) {
  if (!ok) ddh::fail(DDH_INTERNAL, what, " is wrong with ", numel, " elements");
}

// Values whose sum depends on the order; rank -1 is an initial value.
inline float value(int32_t rank, uint64_t i) {
  const int32_t kind = (rank + 3) % 3;
  const float magnitude = kind == 0 ? 1e7F : kind == 1 ? -1e7F : 1.0F;
  return magnitude * (1.0F + 1e-3F * static_cast<float>((i * 7 + static_cast<uint64_t>(rank + 1) * 13) % 101));
}
inline std::vector<float> values(int32_t rank, uint64_t n) {
  std::vector<float> out(n);
  for (uint64_t i = 0; i < n; ++i) out[i] = value(rank, i);
  return out;
}

// A window of a group of ranks; nullptr without comm.symmetric_windows.
inline float* window_of(NcclRank& r, uint64_t numel) {
  void* out = nullptr;
  ddh::call(r.table().buffer_allocate, r.inst(), r.group, numel * sizeof(float), &out);
  return static_cast<float*>(out);
}

}  // namespace ddhost::test
