/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/kind/format.h: "ddh.format/0", a plugin that reads weights, and the state of an optimizer, that another program
 * wrote.
 *
 *   created --matches--> created --open--> open --(tensor, read)*--> destroyed
 *
 * The host runs it once, before the ranks start, in a child process of its own, and writes what it reads into one
 * safetensors file, from which all ranks load. So a format knows no rank, no device and no model. The host limits the
 * child's memory (run.convert_memory): it maps files, or reads them in parts. It has the interface ddh.log, no other,
 * and takes no options. A crash, an endless call and a wrong size end the run with a sentence that names the call.
 * Draft: it may still change after 1.0. */
#ifndef DDH_KIND_FORMAT_H
#define DDH_KIND_FORMAT_H

#include "ddh/abi.h"

#define DDH_FORMAT_IFACE "ddh.format/0"

#define DDH_TENSOR_WEIGHT 1 /* a parameter or a buffer */
#define DDH_TENSOR_SLOT 2   /* what an optimizer keeps for a parameter */

typedef struct ddh_file_tensor {
  uint32_t struct_size;
  int32_t role;         /* DDH_TENSOR_* */
  const char* name;     /* of the weight: "transformer.h.0.ln_1.weight" */
  const char* slot;     /* of the optimizer, "exp_avg", without a slash; NULL of a weight */
  const int64_t* shape; /* n_dims sizes */
  uint32_t n_dims;
  int32_t dtype;  /* DDH_F32 ...; a tensor of another dtype is left out, with a line in the log */
  uint64_t bytes; /* numel * bytes of an element */
} ddh_file_tensor;
#define DDH_FILE_TENSOR_MIN_SIZE 48u

typedef struct ddh_format_info {
  uint32_t struct_size;
  uint32_t n_tensors;
  const char* what;           /* for messages: "a file of torch.save" */
  const char* meaning_of_ids; /* as in ddh_model_desc; NULL: not known */
  int64_t step;               /* updates that the optimizer has made; -1: it has no state here */
  /* A parameter that has had another number of updates than `step`; NULL: all have had the same. */
  const char* other_step;
} ddh_format_info;
#define DDH_FORMAT_INFO_MIN_SIZE 40u

/* Texts and arrays belong to the plugin and stay until destroy. */
typedef struct ddh_format_api {
  uint32_t struct_size;
  uint32_t reserved0;
  /* 1: the file or folder is of this format, judged by names and first bytes; 0: it is not. Never fails. [main] */
  int32_t (*matches)(ddh_inst* self, const char* path) DDH_NX;
  /* Reads what describes the tensors. Called once. An error names the file and the cure. [main] */
  ddh_rc (*open)(ddh_inst* self, const char* path, ddh_format_info* out, ddh_err* err) DDH_NX;
  /* Describes tensor `index` of n_tensors. Two tensors never have the same role, name and slot. [main] */
  ddh_rc (*tensor)(ddh_inst* self, uint32_t index, ddh_file_tensor* out, ddh_err* err) DDH_NX;
  /* Writes bytes [offset, offset + bytes) of the tensor, row-major and little-endian, to dst. Offsets of a tensor
   * ascend; the last call of a tensor ends at its last byte. [main] */
  ddh_rc (*read)(ddh_inst* self, uint32_t index, uint64_t offset, uint64_t bytes, void* dst, ddh_err* err) DDH_NX;
} ddh_format_api;
#define DDH_FORMAT_API_MIN_SIZE 40u

#endif
