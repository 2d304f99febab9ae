/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/service/config.h: "ddh.config/1", typed reads of the effective configuration.
 *
 * The host has checked the values against the schemas and filled in the defaults, so every key of a schema exists. Keys
 * include the section: "model.n_layer", "data.path". Paths are absolute.
 *
 * A plugin may read the options of its own section (ddh_create.section) and these keys of the host:
 *   all kinds    run.seed, run.name, run.dir
 *   models       data.path, data.val_path, data.val_fraction, data.micro_batch, data.dummy_samples, precision.compute
 *   strategies   device.plugin
 *   transports   launch.max_restarts
 * Every other key gives DDH_PERMISSION_DENIED. The arguments of a plugin's calls have everything else that it needs.
 * To be frozen at 1.0. */
#ifndef DDH_SERVICE_CONFIG_H
#define DDH_SERVICE_CONFIG_H

#include "ddh/abi.h"

#define DDH_CONFIG_IFACE "ddh.config/1"

typedef struct ddh_config_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Each reads one value. DDH_NOT_FOUND: no such key. DDH_INVALID_ARGUMENT: another type (but f64 also reads an integer). A
   * boolean reads as 0 or 1. [any] */
  ddh_rc (*get_i64)(void* h, const char* key, int64_t* out, ddh_err* err) DDH_NX;
  ddh_rc (*get_f64)(void* h, const char* key, double* out, ddh_err* err) DDH_NX;
  /* The host owns `out`. It stays valid until the instance is destroyed, even if `agree` replaces the value. [any] */
  ddh_rc (*get_str)(void* h, const char* key, const char** out, ddh_err* err) DDH_NX;
  /* Reads at most `cap` numbers of an array; *n gets the array's length. [any] */
  ddh_rc (*get_f64s)(void* h, const char* key, double* out, uint32_t cap, uint32_t* n, ddh_err* err) DDH_NX;
  /* Writes a choice of the plugin (a matrix library, a path) into the effective configuration, as a string. Rank 0's
   * choice counts, and every rank gets it in `out` (as with get_str). Called before the first step, in the same order
   * on every rank. [main] [collective] */
  ddh_rc (*agree)(void* h, const char* key, const char* mine, const char** out, ddh_err* err) DDH_NX;
  /* Reads at most `cap` strings of an array, owned as with get_str; *n gets the array's length. [any] */
  ddh_rc (*get_strs)(void* h, const char* key, const char** out, uint32_t cap, uint32_t* n, ddh_err* err) DDH_NX;
} ddh_config_api;
#define DDH_CONFIG_API_MIN_SIZE 56u

#endif
