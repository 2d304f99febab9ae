/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/abi.h: the base of the ddhost plugin ABI. Read this header first.
 *
 * Version 0: until the freeze at 1.0 a host loads only plugins that were built with its own headers
 * (DDH_HEADER_CHECKSUM). docs/compatibility.md says what is promised from 1.0 on.
 *
 * A plugin is a shared library that exports one function, ddh_plugin_entry_0. The host calls it once
 * per load and gets a module: descriptors of the plugins in the library, and functions that create,
 * query and destroy their instances. An instance belongs to one rank. Several ranks may share a process, so there is no
 * global state, and every call has its instance as an argument.
 *
 *   loaded --create--> created --(attach, kind specific)--> attached --...--> destroyed
 *
 * Names: `ddh_x_api` is a table of functions, `ddh_x` a struct of data or an opaque handle. An interface id ends in
 * its revision: "ddh.comm/1". Revision 0 marks a draft, which may still change after 1.0. The first comment of each
 * header says whether it is a draft. This header is to be frozen at 1.0.
 *
 * After a call into an instance has failed, only calls that end something follow on it: `destroy`, and before it `abort`,
 * `close`, and functions whose names end in `destroy` or `release`; of a device also `synchronize`. Others may follow where the
 * slot's comment gives the code a meaning, as DDH_UNIMPLEMENTED of an estimate. After DDH_UNAVAILABLE and DDH_ABORTED the host
 * may create new instances in the same process. A service that fails has done nothing, unless its comment says more, and the
 * plugin may go on; a strategy whose step goes on after a refused call is found out when `step` returns.
 *
 * Every function pointer has some of these tags:
 *   [main]            called on the rank's main thread, one call at a time
 *   [step]            like [main], but only while a program runs. In training this is from step_begin until step
 *                     returns. In an evaluation it is from the first acquire to the last release
 *   [serial]          callable from every thread of the rank, one call at a time
 *   [any]             callable from every thread, also while other calls run, even calls of the same slot
 *   [collective]      every rank of the group makes the call, in the same order
 *   [stream-ordered]  returns before the work is done; the work is ordered by the given stream
 *   [may-block]       may wait for another rank or for a device
 *
 * Rules of growth (docs/compatibility.md has the long form):
 *   1. Structs begin with struct_size, set by the side that allocates them, and grow only at their end; ddh_range,
 *      ddh_access and ddh_row_value never grow and have none; ddh_param_view comes with a stride instead. There is no
 *      tail padding. T_MIN_SIZE is its size at the first release and never changes. A reader tests a newer field with
 *      DDH_HAS. A missing field, 0 and NULL all mean the old behaviour. Bytes beyond the struct that the reader knows
 *      must be zero, and so must `reserved` fields; otherwise the reader returns DDH_UNIMPLEMENTED.
 *   2. Interfaces are tables of function pointers, fetched by name and revision ("ddh.comm/1"). Slots are
 *      appended within a revision; any other change is a new revision. NULL means absent, which is allowed only if the
 *      slot's comment says "may be NULL".
 *   3. Structs and signatures use only fixed-width integers, float, double and pointers: no bool, long or enum.
 *      Exceptions never cross the boundary.
 *   4. Constants are never renumbered. An unknown value is answered with DDH_UNIMPLEMENTED. Values from
 *      DDH_VENDOR_FIRST on, capability bits from DDH_CAP_VENDOR_FIRST on, and interface ids that do not begin with
 *      "ddh." (use a reversed domain name: "org.example.quantize/1") will never be defined by this project.
 *   5. The side that allocates memory frees it. A pointer argument is borrowed for the call unless its comment says
 *      otherwise.
 *   6. Strings are NUL-terminated UTF-8. A size named "bytes" counts bytes; one named "numel" counts elements.
 */
#ifndef DDH_ABI_H
#define DDH_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "ddh/checksum.h"

#define DDH_ABI_MAJOR 0
#define DDH_ABI_MINOR 3

#ifdef __cplusplus
#define DDH_NX noexcept
#define DDH_EXTERN_C extern "C"
#else
#define DDH_NX
#define DDH_EXTERN_C
#endif

/* Size of a struct up to and including a field, and the checks built on it. */
#define DDH_END(T, field) (offsetof(T, field) + sizeof(((T*)0)->field))
#define DDH_HAS(p, T, field) ((p)->struct_size >= DDH_END(T, field))
#define DDH_CAN(p, T, slot) (DDH_HAS(p, T, slot) && (p)->slot != NULL)

/* The first value of kinds, dtypes, tags and result codes that vendors may define. */
#define DDH_VENDOR_FIRST 0x40000000

/* Parameters start at multiples of this many elements in a flat space, and so do shards. */
#define DDH_GRID 64

/* ---- Result codes ------------------------------------------------------------------------------- */

typedef int32_t ddh_rc;
#define DDH_OK 0
#define DDH_CANCELLED 1           /* the run was asked to stop */
#define DDH_INVALID_ARGUMENT 3    /* the caller made a mistake */
#define DDH_DEADLINE_EXCEEDED 4   /* a wait timed out */
#define DDH_NOT_FOUND 5           /* no such id, file, key */
#define DDH_ALREADY_EXISTS 6      /* a duplicate */
#define DDH_PERMISSION_DENIED 7   /* the operating system refused */
#define DDH_RESOURCE_EXHAUSTED 8  /* memory, disk, handles */
#define DDH_FAILED_PRECONDITION 9 /* not possible in this state or configuration */
#define DDH_ABORTED 10            /* another rank ended the run */
#define DDH_OUT_OF_RANGE 11       /* an index or a value is out of range */
#define DDH_UNIMPLEMENTED 12      /* unknown constant, absent slot */
#define DDH_INTERNAL 13           /* a bug */
#define DDH_UNAVAILABLE 14        /* a peer or device is gone */
#define DDH_DATA_LOSS 15          /* torn or damaged data */

/* The error message of a failing call. The caller owns it; nothing is allocated. `msg` has msg_cap bytes. The callee
 * writes at most msg_cap - 1 bytes and a NUL, and sets msg_len. A message names the thing, says why it failed, and how
 * to fix it. */
typedef struct ddh_err {
  uint32_t struct_size;
  int32_t code;     /* the ddh_rc that the call returned */
  uint32_t msg_cap; /* bytes */
  uint32_t msg_len; /* bytes without the NUL */
  char* msg;
} ddh_err;
#define DDH_ERR_MIN_SIZE 24u

/* Fills `err` (which may be NULL) and returns `code`: `return ddh_fail(err, DDH_NOT_FOUND, "...");` */
static inline ddh_rc ddh_fail(ddh_err* err, ddh_rc code, const char* sentence) {
  if (err != NULL && err->struct_size >= DDH_ERR_MIN_SIZE) {
    uint32_t n = 0;
    err->code = code;
    if (err->msg != NULL && err->msg_cap > 0) {
      while (sentence[n] != '\0' && n + 1 < err->msg_cap) {
        err->msg[n] = sentence[n];
        ++n;
      }
      err->msg[n] = '\0';
    }
    err->msg_len = n;
  }
  return code;
}

/* ---- Data types and memory tags ------------------------------------------------------------------ */

#define DDH_F32 1
#define DDH_BF16 2
#define DDH_F16 3
#define DDH_F64 4
#define DDH_I32 5
#define DDH_I64 6
#define DDH_U8 7
#define DDH_U16 8

/* Bytes of one element, 0 for an unknown dtype. */
static inline uint64_t ddh_dtype_bytes(int32_t dtype) {
  switch (dtype) {
    case DDH_F32:
    case DDH_I32:
      return 4;
    case DDH_BF16:
    case DDH_F16:
    case DDH_U16:
      return 2;
    case DDH_F64:
    case DDH_I64:
      return 8;
    case DDH_U8:
      return 1;
    default:
      return 0;
  }
}

/* The purpose of an allocation. Memory is reported by tag. */
#define DDH_TAG_PARAM 0 /* values of parameters, in the dtype of the views */
#define DDH_TAG_GRAD 1
#define DDH_TAG_OPTIM 2 /* optimizer slots and fp32 master weights */
#define DDH_TAG_ACT 3   /* activations and the model's scratch memory */
#define DDH_TAG_COMM 4  /* staging buffers of transports */
#define DDH_TAG_DATA 5  /* batches */

/* ---- The host as a plugin sees it --------------------------------------------------------------- */

/* The root of the host's interfaces, frozen for ever; `h` is the first argument of every function in its tables. get_interface
 * gives a constant table that lives as long as the host, or NULL: the host lacks it, or the descriptor's `needs` and `wants`
 * do, or this kind of plugin does not get it (docs/compatibility.md; the log says so once). [any] */
typedef struct ddh_host {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;
  void* h;
  const void* (*get_interface)(void* h, const char* id)DDH_NX;
} ddh_host;
#define DDH_HOST_MIN_SIZE 24u

/* ---- The description of a library ---------------------------------------------------------------- */

#define DDH_KIND_STRATEGY 1
#define DDH_KIND_MODEL 2
#define DDH_KIND_OPTIMIZER 3
#define DDH_KIND_COMM 4
#define DDH_KIND_DEVICE 5
#define DDH_KIND_SCHEDULE 6
#define DDH_KIND_MONITOR 7
#define DDH_KIND_FORMAT 8
#define DDH_KIND_CODEC 9
/* All kinds: the word that users type, the number, the interface that a plugin of the kind offers (its header defines it). */
#define DDH_KINDS(AS)                                    \
  AS(strategy, DDH_KIND_STRATEGY, DDH_STRATEGY_IFACE)    \
  AS(model, DDH_KIND_MODEL, DDH_MODEL_IFACE)             \
  AS(optimizer, DDH_KIND_OPTIMIZER, DDH_OPTIMIZER_IFACE) \
  AS(comm, DDH_KIND_COMM, DDH_COMM_BACKEND_IFACE)        \
  AS(device, DDH_KIND_DEVICE, DDH_DEVICE_IFACE)          \
  AS(schedule, DDH_KIND_SCHEDULE, DDH_SCHEDULE_IFACE)    \
  AS(monitor, DDH_KIND_MONITOR, DDH_MONITOR_IFACE)       \
  AS(format, DDH_KIND_FORMAT, DDH_FORMAT_IFACE)          \
  AS(codec, DDH_KIND_CODEC, DDH_CODEC_IFACE)

/* ddh_desc.caps of every kind. Kind-specific bits begin at bit 16, vendor bits at bit 48. The host refuses other bits
 * that it does not know. */
#define DDH_CAP_VENDOR_FIRST (UINT64_C(1) << 48)
#define DDH_CAP_IN_PROCESS 1u /* several ranks of one process may each have an instance */
/* The plugin accesses device memory only in work on streams: copies, flat operations, ddh_stream.run, kernels.
 * Strategies and models without this bit run only on devices with DDH_CAP_HOST_MEMORY. */
#define DDH_CAP_STREAM_ORDERED 2u
/* Its numbers differ from ddp's on purpose: it communicates less or rounds more. The log says so at the start of a run, and
 * tests of equal bits do not apply to it. */
#define DDH_CAP_LOSSY 4u
/* A resumed run does not continue with the bits of an uninterrupted one, because the plugin has state that it does not save.
 * The log repeats it when a checkpoint is written or read. */
#define DDH_CAP_INEXACT_RESUME 8u

/* ddh_desc.uses and ddh_desc.understands: features that the strategy must support for correct results. A plugin sets
 * the bit in `uses` if it uses the feature, and in `understands` if it supports the feature. The host refuses a run in
 * which a model or an optimizer uses a feature that the strategy does not understand. It also refuses unknown bits of
 * `uses`, and ignores unknown bits of `understands`. */
#define DDH_FEATURE_POSITIONS (UINT64_C(1) << 0)    /* model: ddh_program_desc.position_flags */
#define DDH_FEATURE_UPDATES (UINT64_C(1) << 1)      /* model: programs of DDH_PROGRAM_UPDATE */
#define DDH_FEATURE_PARAM_DTYPES (UINT64_C(1) << 2) /* model: ddh_param_desc.compute_dtype */
#define DDH_FEATURE_OPTIMIZERS (UINT64_C(1) << 3)   /* model: ddh_program_desc.optimizer beyond 0 */

/* A library of another maker that a plugin was built with. The host names it where it is missing. Before it loads the plugins
 * of a run, it sets the variables of threads and limits that the user has not set; a library without an entry gets none. The
 * ELF note has the same data, readable without dlopen. */
/* Lists are words with blanks between them. "" or NULL: empty. No text has a quote, a backslash or a control character, because
 * the note holds them as JSON. Passed in arrays, so it never grows. */
typedef struct ddh_library {
  const char* name;    /* "LibTorch" */
  const char* version; /* "2.11.0"; "": not known */
  const char* files;   /* list: how the names of its files begin, "libtorch libc10" */
  const char* folder;  /* environment variable that may name its folder, with the files in lib/; "": none */
  const char* cure;    /* what a user does where it is missing: "set DDHOST_LIBTORCH to the folder of a LibTorch" */
  const char*
      threads;        /* list: environment variables of its number of threads; the user's first counts for the others */
  const char* limits; /* list: what DDHOST_CPU=avx2 sets, so that it uses no newer instructions: "avx2:MKL_ISA=AVX2" */
} ddh_library;

typedef struct ddh_build {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* the version of the headers it was built with */
  uint32_t min_host_minor;       /* the lowest minor version of a host that can load it */
  uint32_t reserved0;
  uint64_t header_checksum;     /* DDH_HEADER_CHECKSUM */
  const ddh_library* libraries; /* the last has no name (NULL); NULL: none */
} ddh_build;
#define DDH_BUILD_MIN_SIZE 32u

/* One plugin. All pointers are static. */
typedef struct ddh_desc {
  uint32_t struct_size;
  int32_t kind;              /* DDH_KIND_* */
  const char* id;            /* what users type: lower case, digits, '_' */
  const char* version;       /* version of the plugin, "1.2.3" */
  const char* summary;       /* one line */
  const char* const* needs;  /* host interfaces it requires, NULL-terminated; NULL = none */
  const char* const* wants;  /* host interfaces it uses if present */
  const char* config_schema; /* JSON Schema (subset: docs/configuration.md) of its options; NULL = takes none */
  uint64_t caps;             /* DDH_CAP_* and the bits of its kind */
  uint64_t uses;             /* DDH_FEATURE_* */
  uint64_t understands;      /* DDH_FEATURE_* */
  /* A device: the native API of its streams and memory ("cuda"). A model: those that it computes with, beside the CPU. A
   * model whose list is not NULL runs on a device without host memory only if both name the same API, or if the model names
   * "host" and the device has DDH_CAP_HOST_REACHABLE. NULL-terminated; NULL: a device without one, a model for every device. */
  const char* const* native_apis;
  /* Who made it, as a reversed domain name ("org.example"), where to find it, and its licence as SPDX writes it. "" or NULL:
   * not said. */
  const char *vendor, *url, *license;
  /* Like `uses` and `understands`, for features of others: interface ids ("org.example.mesh/1"). The host refuses a run in
   * which a plugin uses an id that the strategy, and the transport, do not understand. NULL-terminated; NULL: none. */
  const char *const *uses_ids, *const *understands_ids;
  /* The version of the state that it saves, and the oldest that it can read (ddh/kind/migrate.h). A checkpoint with a state
   * version outside of this range is refused. 0 and 0: the state has had one form only. */
  uint32_t state_version, oldest_state_version;
} ddh_desc;
#define DDH_DESC_MIN_SIZE 136u

typedef struct ddh_inst ddh_inst; /* an instance; opaque, its type is the plugin's own */

typedef struct ddh_create {
  uint32_t struct_size;
  uint32_t reserved0;
  const ddh_host* host; /* this rank's host; lives longer than the instance */
  const char* id;       /* which plugin of the library */
  const char* section;  /* the section of its options: "optimizer" for the key "optimizer.lr" */
} ddh_create;
#define DDH_CREATE_MIN_SIZE 32u

typedef struct ddh_module {
  uint32_t struct_size;
  uint32_t n_desc;
  const ddh_desc* const* desc;
  const ddh_build* build;
  /* Creates an instance and reads its options. Makes no collective and no large allocation. [main] */
  ddh_rc (*create)(const ddh_create* args, ddh_inst** out, ddh_err* err) DDH_NX;
  /* The instance's tables: "ddh.strategy/1" and so on. NULL = absent. Valid until destroy. [any] */
  const void* (*get_interface)(ddh_inst* inst, const char* id)DDH_NX;
  /* Destroys the instance. Never fails; not a collective. [main] */
  void (*destroy)(ddh_inst* inst) DDH_NX;
} ddh_module;
#define DDH_MODULE_MIN_SIZE 48u

/* The only exported symbol. It opens no device, starts no thread and reads no file. [main] */
typedef ddh_rc (*ddh_plugin_entry_fn)(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;
#define DDH_ENTRY_SYMBOL "ddh_plugin_entry_0"

/* ---- Entry, negotiation and the ELF note: used through DDH_PLUGIN -------------------------------- */

static inline void ddh_append_(char* text, uint32_t cap, const char* more) {
  uint32_t n = 0;
  while (n < cap && text[n] != '\0') ++n;
  while (*more != '\0' && n + 1 < cap) text[n++] = *more++;
  if (n < cap) text[n] = '\0';
}

/* Checks that this host supports every plugin of the module. On failure the message names what is missing. */
static inline ddh_rc ddh_negotiate(const ddh_host* host, const ddh_module* module, ddh_err* err) {
  char text[256];
  uint32_t i;
  const char* const* need;
  if (host == NULL || host->struct_size < DDH_HOST_MIN_SIZE || host->abi_major != DDH_ABI_MAJOR)
    return ddh_fail(err, DDH_FAILED_PRECONDITION,
                    "the plugin speaks another major version of the ddhost ABI; rebuild it with this host's SDK");
  if (host->abi_minor < module->build->min_host_minor)
    return ddh_fail(err, DDH_FAILED_PRECONDITION,
                    "the plugin needs a newer host (minor version of the ABI); update ddhost or rebuild the plugin");
  for (i = 0; i < module->n_desc; ++i) {
    need = module->desc[i]->needs;
    for (; need != NULL && *need != NULL; ++need) {
      if (host->get_interface(host->h, *need) != NULL) continue;
      text[0] = '\0';
      ddh_append_(text, sizeof text, "plugin '");
      ddh_append_(text, sizeof text, module->desc[i]->id);
      ddh_append_(text, sizeof text, "' needs the host interface '");
      ddh_append_(text, sizeof text, *need);
      ddh_append_(text, sizeof text, "', which this host lacks; update ddhost");
      return ddh_fail(err, DDH_FAILED_PRECONDITION, text);
    }
  }
  return DDH_OK;
}

#ifndef DDH_ENTRY_NAME /* to link a plugin statically: -DDDH_ENTRY_NAME=ddh_entry_zero1 */
#define DDH_ENTRY_NAME ddh_plugin_entry_0
#endif
#ifndef DDH_MIN_HOST_MINOR
#define DDH_MIN_HOST_MINOR 0
#endif
#define DDH_STR_(x) #x
#define DDH_STR(x) DDH_STR_(x)

/* Up to eight libraries of a plugin, each in the order of ddh_library's fields, defined before this header is included:
 *   #define DDH_LIBRARY_5 ("LibFast", "1.2", "libfast", "", "install libfast 1.2", "FAST_THREADS", "")
 * ddh_add_plugin of the SDK defines 1 for LibTorch and 2 for OpenMP. */
#ifdef DDH_LIBRARY_1
#define DDH_ROW_1_(AS) DDH_EXPAND_(AS DDH_LIBRARY_1)
#else
#define DDH_ROW_1_(AS)
#endif
#ifdef DDH_LIBRARY_2
#define DDH_ROW_2_(AS) DDH_EXPAND_(AS DDH_LIBRARY_2)
#else
#define DDH_ROW_2_(AS)
#endif
#ifdef DDH_LIBRARY_3
#define DDH_ROW_3_(AS) DDH_EXPAND_(AS DDH_LIBRARY_3)
#else
#define DDH_ROW_3_(AS)
#endif
#ifdef DDH_LIBRARY_4
#define DDH_ROW_4_(AS) DDH_EXPAND_(AS DDH_LIBRARY_4)
#else
#define DDH_ROW_4_(AS)
#endif
#ifdef DDH_LIBRARY_5
#define DDH_ROW_5_(AS) DDH_EXPAND_(AS DDH_LIBRARY_5)
#else
#define DDH_ROW_5_(AS)
#endif
#ifdef DDH_LIBRARY_6
#define DDH_ROW_6_(AS) DDH_EXPAND_(AS DDH_LIBRARY_6)
#else
#define DDH_ROW_6_(AS)
#endif
#ifdef DDH_LIBRARY_7
#define DDH_ROW_7_(AS) DDH_EXPAND_(AS DDH_LIBRARY_7)
#else
#define DDH_ROW_7_(AS)
#endif
#ifdef DDH_LIBRARY_8
#define DDH_ROW_8_(AS) DDH_EXPAND_(AS DDH_LIBRARY_8)
#else
#define DDH_ROW_8_(AS)
#endif
#define DDH_EXPAND_(...) __VA_ARGS__
#define DDH_ROWS_(AS) \
  DDH_ROW_1_(AS)      \
  DDH_ROW_2_(AS) DDH_ROW_3_(AS) DDH_ROW_4_(AS) DDH_ROW_5_(AS) DDH_ROW_6_(AS) DDH_ROW_7_(AS) DDH_ROW_8_(AS)
#define DDH_LIBRARY_STRUCT_(NAME, VERSION, FILES, FOLDER, CURE, THREADS, LIMITS) \
  {NAME, VERSION, FILES, FOLDER, CURE, THREADS, LIMITS},
#define DDH_LIBRARY_JSON_(NAME, VERSION, FILES, FOLDER, CURE, THREADS, LIMITS)                      \
  "{\"name\":\"" NAME "\",\"version\":\"" VERSION "\",\"files\":\"" FILES "\",\"folder\":\"" FOLDER \
  "\",\"cure\":\"" CURE "\",\"threads\":\"" THREADS "\",\"limits\":\"" LIMITS "\"},"

__attribute__((unused)) static const ddh_library ddh_libraries_[] = {
    DDH_ROWS_(DDH_LIBRARY_STRUCT_){NULL, NULL, NULL, NULL, NULL, NULL, NULL}};
#define DDH_BUILD_INIT \
  { sizeof(ddh_build), DDH_ABI_MAJOR, DDH_ABI_MINOR, DDH_MIN_HOST_MINOR, 0, DDH_HEADER_CHECKSUM, ddh_libraries_ }

/* The same facts as JSON in an ELF note (name "ddhost", type 1), for `ddhost inspect`, for what must be set before the
 * library is loaded, and for the error text when dlopen fails. PLUGINS is a literal such as "strategy:zero1" or
 * "optimizer:adamw,optimizer:sgd". */
#define DDH_NOTE_JSON(PLUGINS)                                                                      \
  "{\"abi\":\"" DDH_STR(DDH_ABI_MAJOR) "." DDH_STR(DDH_ABI_MINOR) "\",\"min_host_minor\":" DDH_STR( \
      DDH_MIN_HOST_MINOR) ",\"plugins\":\"" PLUGINS "\",\"headers\":\"" DDH_HEADER_CHECKSUM_TEXT    \
                          "\",\"libraries\":[" DDH_ROWS_(DDH_LIBRARY_JSON_) "{}]}"

#if defined(__ELF__)
#define DDH_NOTE(PLUGINS)                                                          \
  __attribute__((used, section(".note.ddhost"), aligned(4))) static const struct { \
    uint32_t namesz, descsz, type;                                                 \
    char name[8];                                                                  \
    char desc[sizeof(DDH_NOTE_JSON(PLUGINS))];                                     \
  } ddh_elf_note_ = {7, sizeof(DDH_NOTE_JSON(PLUGINS)), 1, "ddhost", DDH_NOTE_JSON(PLUGINS)}
#else /* other library formats have no such note; the host inspects such a plugin by loading it */
#define DDH_NOTE(PLUGINS) typedef int ddh_no_elf_note_
#endif

/* Defines the entry point and the note of a library whose `static const ddh_module` is MODULE. */
#define DDH_PLUGIN(MODULE, PLUGINS)                                                          \
  DDH_NOTE(PLUGINS);                                                                         \
  DDH_EXTERN_C __attribute__((visibility("default"))) ddh_rc DDH_ENTRY_NAME(                 \
      const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;                    \
  ddh_rc DDH_ENTRY_NAME(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX { \
    ddh_rc rc = ddh_negotiate(host, &(MODULE), err);                                         \
    if (rc != DDH_OK) return rc;                                                             \
    *out = &(MODULE);                                                                        \
    return DDH_OK;                                                                           \
  }                                                                                          \
  typedef int ddh_plugin_needs_a_semicolon_

#endif
