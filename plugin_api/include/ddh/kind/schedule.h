/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/schedule.h: "ddh.schedule/0", the learning rate of every step.
 *
 *   created --attach--> attached --(lr, step_done, observe)*--> destroyed
 *
 * Each rank has one instance for each optimizer of the run, and the same again for each phase of train.phases that
 * has its own lr or schedule. The host gets the rate of a step, runs the step, and reports the result. The arguments
 * of all calls are equal on all ranks, so an instance that uses nothing else gives the same rates on every rank. The
 * host ends a run in which the ranks have different rates.
 * Draft: it may still change after 1.0. */
#ifndef DDH_KIND_SCHEDULE_H
#define DDH_KIND_SCHEDULE_H

#include "ddh/abi.h"

#define DDH_SCHEDULE_IFACE "ddh.schedule/0"

/* ddh_desc.caps of schedules. The rate depends on losses. The host calls observe only if this bit is set, and then
 * refuses a run that does not have exactly one loss. */
#define DDH_CAP_READS_LOSS (UINT64_C(1) << 16)

typedef struct ddh_schedule_args {
  uint32_t struct_size;
  uint32_t reserved0;
  double lr;     /* of the phase, else option "lr" of this instance's optimizer */
  int64_t steps; /* number of steps that this instance counts; the first is 1 */
} ddh_schedule_args;
#define DDH_SCHEDULE_ARGS_MIN_SIZE 24u

/* A number of the schedule's state, which a checkpoint must save. */
typedef struct ddh_schedule_number {
  uint32_t struct_size;
  uint32_t reserved0;
  const char* name; /* unique in the instance; both pointers stay valid until destroy */
  double* value;    /* finite. The host reads it between steps, and writes it when it loads a checkpoint */
} ddh_schedule_number;
#define DDH_SCHEDULE_NUMBER_MIN_SIZE 24u

typedef struct ddh_schedule_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Checks the options against each other. [main] */
  ddh_rc (*attach)(ddh_inst* self, const ddh_schedule_args* args, ddh_err* err) DDH_NX;
  /* The rate of step `step`, finite and not negative. Does not change the instance. In a resumed run the
   * first call has a step greater than 1. [main] */
  ddh_rc (*lr)(ddh_inst* self, int64_t step, double* out, ddh_err* err) DDH_NX;
  /* Called after every step. `skipped` is 1 if no parameter was updated, else 0. May be NULL. [main] */
  ddh_rc (*step_done)(ddh_inst* self, int64_t step, int32_t skipped, ddh_err* err) DDH_NX;
  /* With DDH_CAP_READS_LOSS: gives the loss of each evaluation. In a run without evaluations, gives the loss of each
   * step that was not skipped, after step_done. May be NULL without that bit. [main] */
  ddh_rc (*observe)(ddh_inst* self, double loss, ddh_err* err) DDH_NX;
  /* Number of state variables. NULL = 0: the rate depends only on the step. [main] */
  uint32_t (*number_count)(ddh_inst* self) DDH_NX;
  /* State variable `index`. NULL if number_count is NULL. [main] */
  ddh_rc (*number)(ddh_inst* self, uint32_t index, ddh_schedule_number* out, ddh_err* err) DDH_NX;
} ddh_schedule_api;
#define DDH_SCHEDULE_API_MIN_SIZE 56u

#endif
