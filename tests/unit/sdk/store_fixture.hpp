// SPDX-License-Identifier: Apache-2.0
//
// tests/unit/sdk/store_fixture.hpp: a small model, and a rank of a world of threads with the host's memory, windows and
// transport, for tests of what a strategy stores. The optimizer is one whose results are easily calculated.
#pragma once

#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <map>
#include <set>

#include "config/config.hpp"
#include "ddh/sdk/params/layout.hpp"
#include "engine/calls/instance.hpp"
#include "engine/services/tables/tables.hpp"
#include "fixtures/harness/attach_args.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "launch/kv.hpp"
#include "launch/progress.hpp"
#include "unit/plugins/comm/same_host/comm_fixture.hpp"

namespace ddhost::test {

// Three units; the last one also uses the first parameter, and the second has one that is not trained.
struct StoreModel {
  int64_t shapes[5] = {35, 130, 200, 3, 50};
  ddh_param_desc params[5]{};
  const ddh_param_desc* param_list[5]{};
  int32_t uses[3][2] = {{0, 1}, {2, 3}, {4, 0}};
  ddh_unit_desc units[3] = {{sizeof(ddh_unit_desc), 2, "first", uses[0]},
                            {sizeof(ddh_unit_desc), 2, "second", uses[1]},
                            {sizeof(ddh_unit_desc), 2, "third", uses[2]}};
  const ddh_unit_desc* unit_list[3] = {&units[0], &units[1], &units[2]};
  int32_t order[3] = {0, 1, 2};
  ddh_program_desc program{};
  const ddh_program_desc* programs[1] = {&program};
  ddh_model_desc desc{};

  StoreModel() {
    const char* names[5] = {"tied", "vector", "wide", "frozen", "last"};
    const int32_t owners[5] = {0, 0, 1, 1, 2};
    for (size_t p = 0; p < 5; ++p) {
      params[p].struct_size = sizeof params[p];
      params[p].name = names[p];
      params[p].shape = &shapes[p];
      params[p].n_dims = 1;
      params[p].numel = static_cast<uint64_t>(shapes[p]);
      params[p].owner_unit = owners[p];
      param_list[p] = &params[p];
    }
    params[3].attributes = DDH_PARAM_FROZEN;
    params[1].grad_block = params[2].grad_block = DDH_GRID;  // for a Grouping with blocks
    program.struct_size = sizeof program;
    program.kind = DDH_PROGRAM_TRAIN;
    program.units = order;
    program.n_units = 3;
    desc = {sizeof desc, 5, param_list, unit_list, nullptr, programs, 3, 0, 1, 0, "test", nullptr, nullptr, 0, 0};
  }
  StoreModel(const StoreModel&) = delete;
  StoreModel& operator=(const StoreModel&) = delete;
};

// Initial values: small integers, which bf16 holds too.
inline float initial_value(int32_t param, uint64_t element) {
  return static_cast<float>((static_cast<uint64_t>(param) * 16 + element) % 128);
}

// The gradients that a rank counts in the norm of a step.
struct SeenNorm final : NormSink {
  std::map<int32_t, uint64_t> numel;  // per parameter
  double sum = 0;
  void add_gradient(const float* grad, uint64_t begin, uint64_t n, std::span<const ddh_range> ranges) override {
    for (const ddh_range& r : ranges) {
      const uint64_t from = std::max(begin, r.flat_offset), to = std::min(begin + n, r.flat_offset + r.numel);
      for (uint64_t i = from; i < to; ++i) sum += static_cast<double>(grad[i - begin]);
      if (from < to) numel[r.param] += to - from;
    }
  }
  [[nodiscard]] bool sums_on_device() const override { return false; }
  void add_device_gradient(const float*, uint64_t, uint64_t, std::span<const ddh_range>, ddh_stream*) override {
    ddh::fail(DDH_INTERNAL, "the device of this test has no memory of its own");
  }
};

// One rank: what a strategy gets from the host. The optimizer subtracts the gradient, and adds it to slot 0; slot 1 exists
// for parameters in `second_slot`, and is not written.
class DDH_HIDDEN StoreRank {
 public:
  // `copies`: windows never share pages.
  StoreRank(const CommRank& transport, bool copies, int32_t dtype = DDH_F32, uint32_t grad_accum_steps = 1,
            const ddh::Grouping& grouping = {})
      : rank(transport.rank),
        progress_(transport.size),
        record_(progress_, rank),
        seat_{rank, std::make_shared<Nodes>(transport.size, 0), kv_, record_, 7},
        services_(seat_, std::make_unique<Config>(),
                  std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>())),
        caller_(services_, *this),
        attach_(model_.desc, transport.size, dtype) {
    const ddh_module& cpu = cpu_module();
    device_ = Instance({&cpu, cpu.desc[0], "cpu"}, caller_.host(), "device");
    const auto& table = device_.require<ddh_device_api>(DDH_DEVICE_IFACE, DDH_DEVICE_API_MIN_SIZE);
    services_.device = std::make_unique<Device>(device_.get(), table, DDH_CAP_HOST_MEMORY, "cpu", 0);
    services_.memory.use(*services_.device);
    services_.staging = std::make_unique<Staging>(services_.memory);
    services_.comm = std::make_unique<Comm>(transport.inst, transport.backend, transport.shared, services_.clock);
    services_.windows = std::make_unique<Windows>(*services_.comm, services_.memory, *services_.staging,
                                                  WindowSettings{copies, false, 1, false});
    args = attach_.get();
    args.rank = rank;
    args.group = transport.world();
    args.grad_accum_steps = grad_accum_steps;
    host_ = {sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, static_cast<PluginSeat*>(&caller_), &get_interface};
    host.emplace(&host_);
    layout = ddh::ModelLayout(args, {}, grouping);
  }
  StoreRank(const StoreRank&) = delete;
  StoreRank& operator=(const StoreRank&) = delete;
  ~StoreRank() {
    services_.windows.reset();
    services_.staging.reset();
    services_.memory.release_all();
    services_.device.reset();
  }

  // Bytes under a tag, as the host counts them.
  [[nodiscard]] uint64_t bytes(int32_t tag) const { return services_.memory.usage(tag).now_bytes; }
  [[nodiscard]] uint64_t peak_bytes(int32_t tag) const { return services_.memory.usage(tag).peak_bytes; }
  // The space of a parameter.
  [[nodiscard]] size_t space_of(size_t param) const { return layout.place[param].space; }

  const int32_t rank;
  ddh_attach_args args{};
  std::optional<ddh::Host> host;
  ddh::ModelLayout layout;
  SeenNorm norm;
  std::set<int32_t> second_slot = {1};
  std::vector<int32_t> replica_counts;  // that prepare got

 private:
  struct Caller : PluginSeat {
    Caller(RankServices& rank_services, StoreRank& owner)
        : PluginSeat(rank_services, "strategy:stores"), store_rank(owner) {}
    StoreRank& store_rank;
  };
  static StoreRank& self(void* h) { return static_cast<Caller*>(static_cast<PluginSeat*>(h))->store_rank; }

  static const void* get_interface(void*, const char* id) noexcept {
    const std::string_view name = id;
    if (name == DDH_OPTIM_IFACE) return &optim_table();
    if (name == DDH_PARAMS_IFACE) return &params_table();
    return name == DDH_WINDOW_IFACE ? &window_table() : host_interface(id);
  }

  static const ddh_params_api& params_table() {
    static const ddh_params_api table = {
        sizeof(ddh_params_api), 0,
        [](void*, int32_t param, uint64_t offset, uint64_t numel, float* dst, ddh_err*) noexcept -> ddh_rc {
          for (uint64_t i = 0; i < numel; ++i) dst[i] = initial_value(param, offset + i);
          return DDH_OK;
        }};
    return table;
  }

  // The host's own, but for the norm of a reduction.
  static const ddh_window_api& window_table() {
    static const ddh_window_api table = [] {
      ddh_window_api t = *static_cast<const ddh_window_api*>(host_interface(DDH_WINDOW_IFACE));
      t.exchange_reduce = [](void* h, ddh_exchange* x, const ddh_reduce_args* reduce, ddh_stream* stream,
                             ddh_err* err) noexcept {
        return ddh::guard(err, [&] {
          x->set_ready(false);
          x->reduce(*reduce, self(h).norm, stream);
        });
      };
      return t;
    }();
    return table;
  }

  static void update(const ddh_optim_shard& shard) {
    for (uint32_t k = 0; k < shard.n_ranges; ++k) {
      const ddh_range& r = shard.ranges[k];
      for (uint64_t i = r.flat_offset; i < r.flat_offset + r.numel; ++i) {
        shard.master[i] -= shard.grads[0][i];
        static_cast<float*>(shard.slots[0])[i] += shard.grads[0][i];
        // All numbers of these tests are bf16 already: the upper half of the float.
        if (shard.lowp != nullptr)
          std::memcpy(static_cast<char*>(shard.lowp) + 2 * i, reinterpret_cast<const char*>(shard.master + i) + 2, 2);
      }
    }
  }

  static const ddh_optim_api& optim_table() {
    static const ddh_optim_api table = [] {
      ddh_optim_api t{};
      t.struct_size = sizeof t;
      t.slot_count = [](void*) noexcept -> uint32_t { return 2; };
      t.slot = [](void*, uint32_t index, ddh_slot_desc* out, ddh_err*) noexcept -> ddh_rc {
        *out = {sizeof *out, DDH_F32, index == 0 ? "sum" : "second", DDH_SLOT_PER_ELEMENT, 0};
        return DDH_OK;
      };
      t.slot_used = [](void* h, uint32_t index, int32_t param) noexcept -> int32_t {
        return index == 0 || self(h).second_slot.count(param) > 0 ? 1 : 0;
      };
      t.prepare = [](void* h, const ddh_optim_shard*, int32_t, int32_t count, ddh_stream*,
                     ddh_err*) noexcept -> ddh_rc {
        self(h).replica_counts.push_back(count);
        return DDH_OK;
      };
      t.update = [](void*, const ddh_optim_shard* shard, ddh_stream*, ddh_err*) noexcept -> ddh_rc {
        update(*shard);
        return DDH_OK;
      };
      return t;
    }();
    return table;
  }

  const StoreModel model_;
  KvLocal kv_;
  Progress progress_;
  ProgressOfRank record_;
  RankSeat seat_;
  Instance device_;
  RankServices services_;
  Caller caller_;
  const AttachArgs attach_;
  ddh_host host_{};
};

// Runs `body` on every rank of a world; what it throws fails the test.
inline void in_stores(int32_t world, const RankBody& body) { require_world(kLoop, world, body, {.reduce_block = 1}); }

}  // namespace ddhost::test
