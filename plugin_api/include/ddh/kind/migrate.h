/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/migrate.h: "ddh.migrate/0", an optional interface of strategies and optimizers that read the state of an older
 * version of themselves (ddh_desc.state_version). While a checkpoint is loaded the host asks for each tensor of the state
 * that is wanted now from which saved tensor it comes, and converts it piece by piece. This host asks optimizers. It does not
 * ask strategies yet: a strategy that reads state of an older version gets its OWN entries as they were saved.
 * Draft: it may still change after 1.0. */
#ifndef DDH_KIND_MIGRATE_H
#define DDH_KIND_MIGRATE_H

#include "ddh/abi.h"

#define DDH_MIGRATE_IFACE "ddh.migrate/0"

/* What is wanted now. */
typedef struct ddh_migrate_args {
  uint32_t struct_size;
  uint32_t from_version; /* the saved state version */
  int32_t kind;          /* DDH_STATE_SLOT, DDH_STATE_OWN */
  int32_t slot;          /* of a slot: the index of this optimizer */
  int32_t param;
  uint32_t reserved0;
  const char* name; /* of the slot, or of the OWN entry */
} ddh_migrate_args;
#define DDH_MIGRATE_ARGS_MIN_SIZE 32u

/* The saved tensor that it comes from. */
typedef struct ddh_migrate_source {
  uint32_t struct_size;
  int32_t dtype;
  int32_t extent; /* DDH_SLOT_* */
  uint32_t reserved0;
  const char* name; /* "": none, it begins with zeros. Valid until the next call */
} ddh_migrate_source;
#define DDH_MIGRATE_SOURCE_MIN_SIZE 24u

typedef struct ddh_migrate_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* [main] */
  ddh_rc (*source)(ddh_inst* self, const ddh_migrate_args* to, ddh_migrate_source* from, ddh_err* err) DDH_NX;
  /* Converts elements [offset, offset + numel) of the saved tensor at `src` to `dst`. Both have the same number of
   * elements; only the dtype differs. [main] */
  ddh_rc (*convert)(ddh_inst* self, const ddh_migrate_args* to, uint64_t offset, uint64_t numel, const void* src,
                    void* dst, ddh_err* err) DDH_NX;
} ddh_migrate_api;
#define DDH_MIGRATE_API_MIN_SIZE 24u

#endif
