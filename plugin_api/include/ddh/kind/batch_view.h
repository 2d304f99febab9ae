/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/batch_view.h: "ddh.batch_view/0", what a model may offer so that a person can look at its data: the samples of
 * a batch exactly as a forward reads them, after decoding, augmentation and tokenization. `ddhost data peek` shows them.
 * Draft: it may still change after 1.0. */
#ifndef DDH_KIND_BATCH_VIEW_H
#define DDH_KIND_BATCH_VIEW_H

#include "ddh/abi.h"
#include "ddh/kind/model.h"

#define DDH_BATCH_VIEW_IFACE "ddh.batch_view/0"

/* Kinds of parts of a sample. */
#define DDH_VIEW_TEXT 1 /* UTF-8, shape[0] bytes: tokens or labels as a person reads them */
#define DDH_VIEW_PIXELS \
  2 /* bytes (frames, height, width, channels); channels is 1 or 3; values are scaled to 0 .. 255 */
#define DDH_VIEW_VALUES \
  3 /* fp32 (shape[0], shape[1], shape[2], shape[3]): numbers, such as points or a row of features */

/* A part of a sample: an image, its label, a prompt. Its memory is the model's and is valid during the call of the sink. */
typedef struct ddh_sample_part {
  uint32_t struct_size;
  int32_t kind;      /* DDH_VIEW_* */
  const char* name;  /* "image", "label", "tokens" */
  uint64_t shape[4]; /* unused dimensions are 1 */
  const void* data;
} ddh_sample_part;
#define DDH_SAMPLE_PART_MIN_SIZE 56u

/* Takes one part. An error ends the view, which returns it. */
typedef ddh_rc (*ddh_sample_sink)(void* context, const ddh_sample_part* part, ddh_err* err);

typedef struct ddh_batch_view_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* Gives the parts of the batch's sample with this index (0 .. n_samples-1), the first part first. [main] */
  ddh_rc (*view)(ddh_inst* self, const ddh_batch* batch, uint32_t sample, ddh_sample_sink sink, void* context,
                 ddh_err* err) DDH_NX;
} ddh_batch_view_api;
#define DDH_BATCH_VIEW_API_MIN_SIZE 16u

#endif
