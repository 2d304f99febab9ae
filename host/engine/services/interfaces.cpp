// SPDX-License-Identifier: Apache-2.0
//
// Tables of log, alloc, kv, metrics, params and optim, and the list of all interfaces.
#include "engine/services/interfaces.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>

namespace ddhost {
namespace {

using ddh::guard;
using detail::required;
using detail::seat_of;
using detail::services_of;

const ddh_log_api kLogTable = {sizeof(ddh_log_api), 0, [](void* h, int32_t level, const char* text) noexcept {
                                 const auto to = level <= DDH_LOG_DEBUG  ? spdlog::level::debug
                                                 : level == DDH_LOG_INFO ? spdlog::level::info
                                                 : level == DDH_LOG_WARN ? spdlog::level::warn
                                                                         : spdlog::level::err;
                                 services_of(h).log->log(to, "{}: {}", seat_of(h).name, text);
                               }};

// ---- alloc ---------------------------------------------------------------------------------------------------------

const ddh_alloc_api kAllocTable = {
    sizeof(ddh_alloc_api),
    0,
    [](void* h, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
      return guard(err, [&] { *out = services_of(h).memory.allocate(detail::checked(args)); });
    },
    [](void* h, void* p) noexcept { services_of(h).memory.release(p); },
    [](void* h, int32_t tag, int64_t bytes) noexcept {
      guard(nullptr, [&] { services_of(h).memory.account(tag, bytes, false); });
    },
    [](void* h, int32_t tag, uint64_t* now_bytes, uint64_t* peak_bytes, ddh_err* err) noexcept {
      return guard(err, [&] {
        const TagUsage usage = services_of(h).memory.usage(tag);
        *now_bytes = usage.now_bytes;
        *peak_bytes = usage.peak_bytes;
      });
    },
};

// ---- kv ------------------------------------------------------------------------------------------------------------

const ddh_kv_api kKvTable = {
    sizeof(ddh_kv_api),
    0,
    [](void* h, const char* key, const void* value, uint64_t bytes, ddh_err* err) noexcept {
      return guard(err, [&] {
        services_of(h).seat.kv.set(seat_of(h).name + "/" + key, std::string(static_cast<const char*>(value), bytes));
      });
    },
    [](void* h, const char* key, void* value, uint64_t* bytes, uint32_t timeout_ms, ddh_err* err) noexcept {
      return guard(err, [&] {
        const std::string got =
            services_of(h).seat.kv.get(seat_of(h).name + "/" + key, std::chrono::milliseconds(timeout_ms));
        const uint64_t capacity = std::exchange(*bytes, got.size());
        if (got.size() > capacity)
          ddh::fail(DDH_OUT_OF_RANGE, "the value of '", key, "' has ", got.size(), " bytes, there is room for ",
                    capacity);
        got.copy(static_cast<char*>(value), got.size());
      });
    },
};

// ---- metrics, params
// -------------------------------------------------------------------------------------------------

const ddh_metrics_api kMetricsTable = {
    sizeof(ddh_metrics_api),
    0,
    [](void* h, const char* name, uint64_t add) noexcept {
      guard(nullptr, [&] { services_of(h).clock.count(name, add); });
    },
    [](void* h, int32_t kind, const char*) noexcept { guard(nullptr, [&] { services_of(h).clock.begin(kind); }); },
    [](void* h) noexcept { guard(nullptr, [&] { services_of(h).clock.end(); }); },
};

void init_range(RankServices& s, int32_t param, uint64_t offset, uint64_t numel, float* dst) {
  const ParamInit& params = required(s.params, "ddh.params");
  const uint64_t bytes = numel * sizeof(float);
  if (s.memory.is_host_memory(dst)) {
    s.device->touch(dst, bytes, DDH_ACCESS_WRITE, "first values of parameters");
    return params.init_range(param, offset, numel, dst);
  }
  void* const host = s.staging->begin(dst, bytes);
  params.init_range(param, offset, numel, static_cast<float*>(host));
  s.staging->store(dst, host, bytes, nullptr);
  s.device->synchronize(nullptr);
}

const ddh_params_api kParamsTable = {
    sizeof(ddh_params_api),
    0,
    [](void* h, int32_t param, uint64_t offset, uint64_t numel, float* dst, ddh_err* err) noexcept {
      return guard(err, [&] { init_range(services_of(h), param, offset, numel, dst); });
    },
};

// ---- optim
// -----------------------------------------------------------------------------------------------------------

Step& step_of(void* h) { return required(services_of(h).step, "ddh.optim"); }
const Optimizers& optimizers_of(void* h) { return step_of(h).optimizers(); }

// A call that belongs to a step. A strategy that goes on after it was refused is found when its step returns.
template <class Body>
ddh_rc in_step(void* h, ddh_err* err, Body&& body) noexcept {
  return guard(err, [&] {
    Step& step = step_of(h);
    try {
      body(step);
    } catch (const std::exception& error) {
      step.note_refusal(error.what());
      throw;
    }
  });
}

ddh_optim_shard checked_shard(const ddh_optim_shard* shard) {
  const ddh_optim_shard mine = detail::checked(shard);
  detail::check_ranges(mine.ranges, mine.n_ranges);
  return mine;
}

const ddh_optim_api kOptimTable = {
    sizeof(ddh_optim_api),
    0,
    [](void* h) noexcept -> uint32_t {
      uint32_t n = 0;
      guard(nullptr, [&] { n = optimizers_of(h).slot_count(); });
      return n;
    },
    [](void* h, uint32_t index, ddh_slot_desc* out, ddh_err* err) noexcept {
      return guard(err, [&] { ddh::copy_out(optimizers_of(h).slot(index), *out); });
    },
    [](void* h, int32_t param) noexcept -> int32_t {
      int32_t needs = DDH_NEEDS_NOTHING;
      guard(nullptr, [&] { needs = optimizers_of(h).needs(param); });
      return needs;
    },
    [](void* h, const float* grad, const ddh_range* ranges, uint32_t n_ranges, ddh_err* err) noexcept {
      return in_step(h, err, [&](Step& step) {
        detail::check_ranges(ranges, n_ranges);
        step.check_own_sums();
        step.account().check_ranges(ranges, n_ranges);
        if (grad == nullptr && n_ranges > 0) ddh::fail(DDH_INVALID_ARGUMENT, "add_gradient got no gradient (NULL)");
        uint64_t end = 0;
        for (uint32_t i = 0; i < n_ranges; ++i) end = std::max(end, ranges[i].flat_offset + ranges[i].numel);
        const void* values = services_of(h).staging->readable(grad, end * sizeof(float), nullptr);
        step.add_gradient(static_cast<const float*>(values), 0, end, {ranges, n_ranges});
      });
    },
    [](void* h, const ddh_step_block** out, ddh_err* err) noexcept {
      return in_step(h, err, [&](Step& step) { *out = &step.decide(); });
    },
    [](void* h, const ddh_optim_shard* shard, ddh_stream* stream, ddh_err* err) noexcept {
      return in_step(h, err, [&](Step& step) { step.update(checked_shard(shard), stream); });
    },
    [](void* h, const ddh_optim_shard* shard, int32_t replica_index, int32_t replica_count, ddh_stream* stream,
       ddh_err* err) noexcept {
      return in_step(h, err, [&](Step& step) {
        if (replica_count < 1 || replica_index < 0 || replica_index >= replica_count)
          ddh::fail(DDH_OUT_OF_RANGE, "replica ", replica_index, " of ", replica_count, " makes no sense; give 0 of 1");
        step.prepare(checked_shard(shard), replica_index, replica_count, stream);
      });
    },
    [](void* h, ddh_err* err) noexcept { return in_step(h, err, [](Step& step) { step.sum_norms(); }); },
    [](void* h, uint32_t index, int32_t param) noexcept -> int32_t {
      int32_t used = 1;
      guard(nullptr, [&] { used = optimizers_of(h).slot_used(index, param) ? 1 : 0; });
      return used;
    },
};

}  // namespace

void detail::check_ranges(const ddh_range* ranges, uint32_t n_ranges) {
  for (uint32_t i = 0; i < n_ranges; ++i)
    if (ranges[i].reserved0 != 0)
      ddh::fail(DDH_UNIMPLEMENTED, "ddh_range.reserved0 is ", ranges[i].reserved0, " in range ", i,
                "; it is reserved and must be 0");
}

const void* host_interface(const char* id) {
  struct Entry {
    std::string_view id;
    const void* table;
  };
  static constexpr std::array<Entry, 12> kAll = {{{DDH_LOG_IFACE, &kLogTable},
                                                  {DDH_CONFIG_IFACE, &detail::kConfigTable},
                                                  {DDH_ALLOC_IFACE, &kAllocTable},
                                                  {DDH_STREAM_IFACE, &detail::kStreamTable},
                                                  {DDH_COPY_IFACE, &detail::kCopyTable},
                                                  {DDH_FLATOPS_IFACE, &detail::kFlatopsTable},
                                                  {DDH_COMM_IFACE, &detail::kCommTable},
                                                  {DDH_WINDOW_IFACE, &detail::kWindowTable},
                                                  {DDH_OPTIM_IFACE, &kOptimTable},
                                                  {DDH_KV_IFACE, &kKvTable},
                                                  {DDH_METRICS_IFACE, &kMetricsTable},
                                                  {DDH_PARAMS_IFACE, &kParamsTable}}};
  for (const Entry& entry : kAll) {
    if (entry.id == id) return entry.table;
  }
  return nullptr;
}

PluginSeat::PluginSeat(RankServices& rank_services, std::string plugin_name, const std::string& options_section)
    : services(rank_services),
      name(std::move(plugin_name)),
      kind(name.substr(0, name.find(':'))),
      section(options_section.empty() ? kind : options_section),
      is_model(kind == "model"),
      host_{sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this,
            [](void*, const char* id) noexcept -> const void* { return host_interface(id); }} {}

}  // namespace ddhost
