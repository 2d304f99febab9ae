// SPDX-License-Identifier: Apache-2.0
//
// A plugin whose author forgot the rule that no exception leaves: create throws, or (FAKE_ENTRY_THROWS) the entry.
#include <stdexcept>

#include "ddh/ddh.h"

namespace {

ddh_rc create(const ddh_create*, ddh_inst**, ddh_err*) { throw std::runtime_error("ouch"); }
const void* get_interface(ddh_inst*, const char*) noexcept { return nullptr; }
void destroy(ddh_inst*) noexcept {}

using Create = ddh_rc (*)(const ddh_create*, ddh_inst**, ddh_err*) noexcept;

const ddh_desc kDesc = {sizeof(ddh_desc), DDH_KIND_STRATEGY, "throws", "1.0.0", "throws", nullptr,
                        nullptr,          nullptr,           0,        0,       0};
const ddh_desc* const kDescs[] = {&kDesc};
const ddh_build kBuild = DDH_BUILD_INIT;
const ddh_module kModule = {
    sizeof(ddh_module), 1,      kDescs, &kBuild, reinterpret_cast<Create>(reinterpret_cast<void*>(create)),
    get_interface,      destroy};

}  // namespace

extern "C" __attribute__((visibility("default"))) ddh_rc ddh_plugin_entry_0(const ddh_host*, const ddh_module** out,
                                                                            ddh_err*);
ddh_rc ddh_plugin_entry_0(const ddh_host*, const ddh_module** out, ddh_err*) {
#ifdef FAKE_ENTRY_THROWS
  throw std::runtime_error("ouch");
#endif
  *out = &kModule;
  return DDH_OK;
}
