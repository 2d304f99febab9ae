// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/migrate.hpp: the table of ddh.migrate/0 for a plugin that reads the state of its older versions. The class has
//
//   ddh_migrate_source migrate_source(const ddh_migrate_args& to) const;   // the saved tensor; name "": begins with zeros
//   void migrate(const ddh_migrate_args& to, uint64_t offset, uint64_t numel, const void* src, void* dst) const;
//
//   const void* interface(std::string_view id) const override {
//     return id == DDH_MIGRATE_IFACE ? ddh::migrate_table<Mine>() : Optimizer::interface(id);
//   }
//
// and its descriptor the fields state_version and oldest_state_version (ddh::Traits).
#pragma once

#include "ddh/kind/migrate.h"
#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

DDH_STRUCT_RULE(ddh_migrate_args, DDH_MIGRATE_ARGS_MIN_SIZE, DDH_RESERVED(ddh_migrate_args));
DDH_STRUCT_RULE(ddh_migrate_source, DDH_MIGRATE_SOURCE_MIN_SIZE, DDH_RESERVED(ddh_migrate_source));

// A source, for migrate_source. `name` lives until the next call.
inline ddh_migrate_source saved_slot(const char* name, int32_t dtype, int32_t extent) {
  return {sizeof(ddh_migrate_source), dtype, extent, 0, name};
}

template <class Self>
const ddh_migrate_api* migrate_table() {
  static const ddh_migrate_api table = {
      sizeof(ddh_migrate_api),
      0,
      [](ddh_inst* i, const ddh_migrate_args* to, ddh_migrate_source* from, ddh_err* err) noexcept {
        return guard(err, [&] { copy_out(self_as<Self>(i).migrate_source(copy_of(to)), *from); });
      },
      [](ddh_inst* i, const ddh_migrate_args* to, uint64_t offset, uint64_t numel, const void* src, void* dst,
         ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Self>(i).migrate(copy_of(to), offset, numel, src, dst); });
      },
  };
  return &table;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
