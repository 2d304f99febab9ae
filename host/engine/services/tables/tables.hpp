// SPDX-License-Identifier: Apache-2.0
//
// engine/services/tables/tables.hpp: the tables of host_interface, and code that their functions share. A table is defined in
// the file of its name: optim_table.cpp implements ddh/service/optim.h. Tables that forward to the device are in
// device_tables.cpp.
#pragma once

#include "engine/services/tables/interfaces.hpp"

namespace ddhost::detail {

inline PluginSeat& seat_of(void* h) { return *static_cast<PluginSeat*>(h); }
inline RankServices& services_of(void* h) { return seat_of(h).services; }

template <class T>
T& required(const std::unique_ptr<T>& service, const char* name) {
  if (service == nullptr) {
    ddh::fail(DDH_FAILED_PRECONDITION, name,
              " is not available yet; use it from attach or materialize on, not in create");
  }
  return *service;
}

// A plugin's arguments as this host's struct. Refuses NULL, structs that are too short, and unknown fields.
template <class T>
T checked(const T* args) {
  return ddh::copy_of(args);
}

// A string, a handle or an output of a plugin's call.
template <class T>
T* not_null(T* pointer, const char* name) {
  if (pointer == nullptr) ddh::fail(DDH_INVALID_ARGUMENT, name, " is NULL; pass a valid pointer");
  return pointer;
}

// The same for the ranges of a shard or a reduction. They are frozen, so only their reserved field is checked.
void check_ranges(const ddh_range* ranges, uint32_t n_ranges);

extern const ddh_log_api kLogTable;
extern const ddh_config_api kConfigTable;
extern const ddh_alloc_api kAllocTable;
extern const ddh_comm_api kCommTable;
extern const ddh_window_api kWindowTable;
extern const ddh_stream_api kStreamTable;
extern const ddh_copy_api kCopyTable;
extern const ddh_flatops_api kFlatopsTable;
extern const ddh_kernels_api kKernelsTable;
extern const ddh_optim_api kOptimTable;
extern const ddh_own_optim_api kOwnOptimTable;
extern const ddh_kv_api kKvTable;
extern const ddh_metrics_api kMetricsTable;
extern const ddh_params_api kParamsTable;
extern const ddh_codecs_api kCodecsTable;

}  // namespace ddhost::detail
