// SPDX-License-Identifier: Apache-2.0
#include "engine/services/tables/kind_services.hpp"

#include <algorithm>
#include <array>

#include "engine/services/tables/tables.hpp"

namespace ddhost {
namespace {

constexpr uint32_t of(int32_t kind) { return 1U << kind; }

constexpr uint32_t kStrategy = of(DDH_KIND_STRATEGY), kModel = of(DDH_KIND_MODEL), kOptimizer = of(DDH_KIND_OPTIMIZER),
                   kComm = of(DDH_KIND_COMM), kDevice = of(DDH_KIND_DEVICE), kCodec = of(DDH_KIND_CODEC);
constexpr uint32_t kEveryKind = ~0U;
// They compute in memory of the device.
constexpr uint32_t kComputing = kStrategy | kModel | kOptimizer | kComm;

// A schedule, an optimizer and a codec have no collectives, so that strategies decide alone when ranks wait for each other. A
// monitor exists on rank 0 alone, so a collective of it would never end.
constexpr std::array<ServiceEntry, 15> kServices = {{
    {DDH_CONFIG_IFACE, &detail::kConfigTable, kEveryKind},
    {DDH_LOG_IFACE, &detail::kLogTable, kEveryKind},
    {DDH_METRICS_IFACE, &detail::kMetricsTable, kEveryKind},
    {DDH_ALLOC_IFACE, &detail::kAllocTable, kComputing | kCodec},
    {DDH_STREAM_IFACE, &detail::kStreamTable, kComputing},
    {DDH_COPY_IFACE, &detail::kCopyTable, kComputing},
    {DDH_FLATOPS_IFACE, &detail::kFlatopsTable, kComputing},
    {DDH_KERNELS_IFACE, &detail::kKernelsTable, kComputing},
    {DDH_KV_IFACE, &detail::kKvTable, kStrategy | kModel | kComm | kDevice},
    {DDH_COMM_IFACE, &detail::kCommTable, kStrategy | kModel},
    {DDH_WINDOW_IFACE, &detail::kWindowTable, kStrategy},
    {DDH_OPTIM_IFACE, &detail::kOptimTable, kStrategy},
    {DDH_OWN_OPTIM_IFACE, &detail::kOwnOptimTable, kStrategy},
    {DDH_PARAMS_IFACE, &detail::kParamsTable, kStrategy},
    {DDH_CODECS_IFACE, &detail::kCodecsTable, kStrategy},
}};

}  // namespace

const ServiceEntry* find_service(std::string_view id) {
  const auto* const at =
      std::find_if(kServices.begin(), kServices.end(), [&](const ServiceEntry& entry) { return entry.id == id; });
  return at == kServices.end() ? nullptr : at;
}

}  // namespace ddhost
