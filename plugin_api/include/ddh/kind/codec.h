/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/codec.h: "ddh.codec/0", compression of gradients on their way between ranks.
 *
 *   created --attach--> attached --(encode, sum of messages, decode)*--> destroyed
 *
 * Each rank has one instance (--codec NAME, section "codec"). Strategies get it as the service "ddh.codecs/0" with the same
 * calls, so a codec works under each strategy that asks for it, as a communication hook of PyTorch's DDP does.
 * For each parameter with rounds above 0, once the rank's gradient of it is complete:
 *
 *   for round 0 .. rounds - 1:  encode(round) on each rank
 *                               the strategy sums the messages over the ranks, in rank order, on every rank
 *                               decode(round) with the sum
 *
 * Rounds of several parameters may interleave, so what passes from one round to the next is kept for each parameter. A
 * parameter's calls keep their order.
 * After the last decode `grad` is the decoded sum over all ranks, equal to the bit on all ranks. The strategy adds it as it
 * would add the sum of the ranks' gradients. Gradients are sums that are not divided by the number of ranks or targets.
 * A codec needs the whole gradient of a parameter in one array; strategies that shard gradients keep such arrays, and their
 * plan counts them.
 * Draft: it may still change after 1.0. */
#ifndef DDH_KIND_CODEC_H
#define DDH_KIND_CODEC_H

#include "ddh/abi.h"
#include "ddh/kind/model.h"

#define DDH_CODEC_IFACE "ddh.codec/0"
#define DDH_CODECS_IFACE "ddh.codecs/0"

typedef struct ddh_codec_args {
  uint32_t struct_size;
  int32_t rank;
  int32_t world_size;
  uint32_t reserved0;
  const ddh_model_desc* model; /* lives longer than the instance */
} ddh_codec_args;
#define DDH_CODEC_ARGS_MIN_SIZE 24u

/* State of a codec, for checkpoints: fp32 arrays in host memory. */
typedef struct ddh_codec_state {
  uint32_t struct_size;
  int32_t param;    /* -1: of no parameter */
  const char* name; /* "error": lower case, digits, '_' */
  float* data;      /* numel elements; does not change between steps; the host writes it when it loads a checkpoint */
  uint64_t numel;
  int32_t scope; /* DDH_SCOPE_* (ddh/kind/strategy.h): error feedback differs between ranks, so it is DDH_SCOPE_RANK */
  uint32_t reserved0;
} ddh_codec_state;
#define DDH_CODEC_STATE_MIN_SIZE 40u

typedef struct ddh_codec_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Gives the parameters. Allocates its state and scratch memory through ddh.alloc with DDH_TAG_COMM, not more than planned,
   * and sets first values. [main] */
  ddh_rc (*attach)(ddh_inst* self, const ddh_codec_args* args, ddh_err* err) DDH_NX;
  /* Bytes of state and scratch memory that attach allocates, without allocating them. Called once before attach; from then on
   * rounds, max_rounds and message_numel are called too. [main] */
  ddh_rc (*plan)(ddh_inst* self, const ddh_codec_args* args, uint64_t* bytes, ddh_err* err) DDH_NX;
  /* Rounds of a parameter in a step, equal on all ranks. 0: its gradient is reduced without a codec. [main] */
  uint32_t (*rounds)(ddh_inst* self, int32_t param, int64_t step) DDH_NX;
  /* The largest `rounds` of any step, for buffers. 0: the codec never takes this parameter. [main] */
  uint32_t (*max_rounds)(ddh_inst* self, int32_t param) DDH_NX;
  /* Elements of the message of a round. [main] */
  uint64_t (*message_numel)(ddh_inst* self, int32_t param, uint32_t round) DDH_NX;
  /* Writes this rank's message of message_numel elements. `grad` has the parameter's elements; the codec may overwrite it.
   * Both are in host memory. [step] */
  ddh_rc (*encode)(ddh_inst* self, int32_t param, uint32_t round, float* grad, float* message, ddh_err* err) DDH_NX;
  /* Takes the sum of all ranks' messages. In the last round it writes the decoded sum to `grad`. [step] */
  ddh_rc (*decode)(ddh_inst* self, int32_t param, uint32_t round, const float* message, float* grad,
                   ddh_err* err) DDH_NX;
  /* Number of state arrays; NULL = 0. [main] */
  uint32_t (*state_count)(ddh_inst* self) DDH_NX;
  /* State array `index`. NULL if state_count is NULL. [main] */
  ddh_rc (*state)(ddh_inst* self, uint32_t index, ddh_codec_state* out, ddh_err* err) DDH_NX;
} ddh_codec_api;
#define DDH_CODEC_API_MIN_SIZE 80u

/* The run's codec as a strategy sees it. NULL from get_interface: the run has no codec. A strategy that lists
 * DDH_CODECS_IFACE in `wants` applies it; the host refuses --codec with one that does not. */
typedef struct ddh_codecs_api {
  uint32_t struct_size;
  uint32_t reserved0;
  uint32_t (*rounds)(void* h, int32_t param, int64_t step) DDH_NX;          /* [main] */
  uint32_t (*max_rounds)(void* h, int32_t param) DDH_NX;                    /* [main] */
  uint64_t (*message_numel)(void* h, int32_t param, uint32_t round) DDH_NX; /* [main] */
  ddh_rc (*encode)(void* h, int32_t param, uint32_t round, float* grad, float* message,
                   ddh_err* err) DDH_NX; /* [step] */
  ddh_rc (*decode)(void* h, int32_t param, uint32_t round, const float* message, float* grad,
                   ddh_err* err) DDH_NX; /* [step] */
} ddh_codecs_api;
#define DDH_CODECS_API_MIN_SIZE 48u

#endif
