/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/monitor.h: "ddh.monitor/0", a plugin that records a run, for example in a file or a database.
 *
 *   created --begin--> recording --(row | event)*--> (end) --> destroyed
 *
 * Only rank 0 has an instance of each monitor of the run. Rows arrive in order; their steps never decrease. If a run
 * fails, instances get DDH_EVENT_FAILED and are destroyed without `end`; if rank 0 itself dies, they get nothing. An error
 * of a call ends the run with the monitor's message; that of DDH_EVENT_FAILED is a warning. Options: section "monitor.<id>".
 * Draft: it may still change after 1.0. */
#ifndef DDH_KIND_MONITOR_H
#define DDH_KIND_MONITOR_H

#include "ddh/abi.h"

#define DDH_MONITOR_IFACE "ddh.monitor/0"

typedef struct ddh_monitor_args {
  uint32_t struct_size;
  int32_t world_size;
  const char* run_dir; /* absolute; exists and is writable */
  const char* config;  /* the effective configuration: one JSON object of sections */
  /* Not 0: the run goes on after this step. What the monitor recorded in run_dir before stays, without rows of later
   * steps and without the summary; rows follow from the next step on. 0: a new run. */
  int64_t resumed_after;
} ddh_monitor_args;
#define DDH_MONITOR_ARGS_MIN_SIZE 32u

/* Kinds of rows. */
#define DDH_ROW_STEP 1 /* a step of training */
#define DDH_ROW_EVAL 2 /* an evaluation after a step; all names begin with "val_" */

/* One value of a row. Frozen: it has no struct_size. */
typedef struct ddh_row_value {
  const char* name;
  double value;     /* may be infinite or NaN */
  uint32_t is_flag; /* 1: `value` is 1 for true or 0 for false */
  uint32_t reserved0;
} ddh_row_value;

typedef struct ddh_row {
  uint32_t struct_size;
  int32_t kind;        /* DDH_ROW_* */
  int64_t step;        /* from 1 */
  const char* program; /* program of the model if several take turns; else NULL */
  const ddh_row_value* values;
  uint32_t n_values;
  uint32_t reserved0;
} ddh_row;
#define DDH_ROW_MIN_SIZE 40u

/* Kinds of events. */
#define DDH_EVENT_RESUMED 1    /* the run goes on after `step`; text: the folder of the checkpoint */
#define DDH_EVENT_CHECKPOINT 2 /* a checkpoint of `step` is complete; text: its folder */
#define DDH_EVENT_FAILED 3     /* the run ends by an error after `step`; text: its sentence. No call follows. */

typedef struct ddh_event {
  uint32_t struct_size;
  int32_t kind;     /* DDH_EVENT_* */
  int64_t step;     /* the last step that is complete, or that of the checkpoint; 0: none */
  const char* text; /* see above; UTF-8 */
} ddh_event;
#define DDH_EVENT_MIN_SIZE 24u

typedef struct ddh_monitor_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Called before the first step: opens the file or connection. [main] */
  ddh_rc (*begin)(ddh_inst* self, const ddh_monitor_args* args, ddh_err* err) DDH_NX;
  /* Records a row. It may be written later by a thread of the plugin, but before the next event or `end` returns. [main] */
  ddh_rc (*row)(ddh_inst* self, const ddh_row* row, ddh_err* err) DDH_NX;
  /* Called after the last row if the run did not fail. `summary` is one JSON object: memory, times, counters. [main] */
  ddh_rc (*end)(ddh_inst* self, const char* summary, ddh_err* err) DDH_NX;
  /* Records what happened between rows. May be NULL. [main] */
  ddh_rc (*event)(ddh_inst* self, const ddh_event* event, ddh_err* err) DDH_NX;
} ddh_monitor_api;
#define DDH_MONITOR_API_MIN_SIZE 40u

#endif
