// SPDX-License-Identifier: Apache-2.0
//
// Transports that offer less, to test what the host does then: loop.so behind a table with fewer capabilities and calls.
//   ordered_comm   sums in rank order that start from no value; all_to_all; no shared pages
//   plain_comm     sums without a promised order; no all_to_all, no messages
#include <dlfcn.h>

#include <cstring>

#include "ddh/sdk/plugin.hpp"

namespace {

#ifdef DDH_LIMITED_IN_ORDER
constexpr const char* kId = "ordered_comm";
constexpr uint32_t kCaps = DDH_COMM_ORDERED_SUM;
#else
constexpr const char* kId = "plain_comm";
constexpr uint32_t kCaps = 0;
#endif

const ddh_module* inner = nullptr;
ddh_module module;
ddh_desc desc;
const ddh_desc* const kDescs[] = {&desc};
const ddh_build kBuild = DDH_BUILD_INIT;
const ddh_comm_backend_api* inner_table = nullptr;

ddh_rc group_info(ddh_inst* inst, ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps,
                  ddh_err* err) noexcept {
  const ddh_rc rc = inner_table->group_info(inst, group, rank, size, caps, err);
  *caps &= kCaps;
  return rc;
}

using Collective = ddh_rc (*)(ddh_inst*, const ddh_coll*, ddh_err*) noexcept;
template <Collective ddh_comm_backend_api::*slot>
ddh_rc without_start(ddh_inst* inst, const ddh_coll* c, ddh_err* err) noexcept {
  if (c->initial != nullptr) return ddh_fail(err, DDH_INTERNAL, "the sum has a start value, which is not offered");
  return (inner_table->*slot)(inst, c, err);
}

ddh_comm_backend_api limited(const ddh_comm_backend_api& all) {
  inner_table = &all;
  ddh_comm_backend_api table = all;
  table.group_info = group_info;
  table.all_reduce = without_start<&ddh_comm_backend_api::all_reduce>;
  table.reduce_scatter = without_start<&ddh_comm_backend_api::reduce_scatter>;
  if ((kCaps & DDH_COMM_ORDERED_SUM) == 0) {
    table.all_to_all = nullptr;
    table.send = nullptr;
    table.recv = nullptr;
  }
  return table;
}

const void* get_interface(ddh_inst* inst, const char* id) noexcept {
  if (std::strcmp(id, DDH_COMM_BACKEND_IFACE) != 0) return nullptr;  // no shared pages
  static const ddh_comm_backend_api table =
      limited(*static_cast<const ddh_comm_backend_api*>(inner->get_interface(inst, id)));
  return &table;
}

}  // namespace

DDH_NOTE("comm:limited");
extern "C" __attribute__((visibility("default"))) ddh_rc ddh_plugin_entry_0(const ddh_host* host,
                                                                            const ddh_module** out,
                                                                            ddh_err* err) noexcept;
ddh_rc ddh_plugin_entry_0(const ddh_host* host, const ddh_module** out, ddh_err* err) noexcept {
  void* const library = dlopen(DDHOST_BUILD_DIR "/plugins/loop.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return ddh_fail(err, DDH_NOT_FOUND, "plugins/loop.so is not there; build it");
  const auto entry = reinterpret_cast<ddh_plugin_entry_fn>(dlsym(library, DDH_ENTRY_SYMBOL));
  const ddh_rc rc = entry(host, &inner, err);
  if (rc != DDH_OK) return rc;
  desc = *inner->desc[0];
  desc.id = kId;
  desc.summary = "loop with less to offer, for tests";
  module = *inner;
  module.desc = kDescs;
  module.build = &kBuild;
  module.get_interface = get_interface;
  *out = &module;
  return DDH_OK;
}
