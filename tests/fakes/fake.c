/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin that loads and does nothing, in plain C; the macros (tests/fakes/CMakeLists.txt) spoil one thing each. */
#include "ddh/ddh.h"

#ifndef FAKE_KIND
#define FAKE_KIND DDH_KIND_STRATEGY
#define FAKE_WORD "strategy"
#endif
#ifndef FAKE_ID
#define FAKE_ID "fake"
#endif
#ifndef FAKE_NEED
#define FAKE_NEED NULL
#endif
#ifndef FAKE_SCHEMA
#define FAKE_SCHEMA                                                                                             \
  "{\"properties\": {\"bucket_bytes\": {\"type\": \"integer\", \"default\": 1024, \"minimum\": 0, \"x-unit\": " \
  "\"bytes\", \"description\": \"size of a bucket\"}},"                                                         \
  "\"x-aliases\": {\"reduce_bucket_size\": {\"key\": \"bucket_bytes\", \"scale\": 4}}}"
#endif
#ifndef FAKE_MODULE_SIZE
#define FAKE_MODULE_SIZE sizeof(ddh_module)
#endif
#ifndef FAKE_CHECKSUM
#define FAKE_CHECKSUM DDH_HEADER_CHECKSUM
#endif

#ifndef FAKE_CAPS
#define FAKE_CAPS DDH_CAP_IN_PROCESS
#endif
#ifndef FAKE_USES
#define FAKE_USES 0
#endif
#ifndef FAKE_UNDERSTANDS
#define FAKE_UNDERSTANDS 0
#endif
#ifdef FAKE_TAIL
#define FAKE_TAIL_BYTES 8
#else
#define FAKE_TAIL 0
#define FAKE_TAIL_BYTES 0
#endif

static const char* const needs[] = {FAKE_NEED, NULL};
/* A descriptor of a newer version: what stands behind the known part is FAKE_TAIL. */
static const struct {
  ddh_desc known;
  uint64_t tail;
} desc = {{sizeof(ddh_desc) + FAKE_TAIL_BYTES, FAKE_KIND, FAKE_ID, "1.0.0", "does nothing", needs, NULL, FAKE_SCHEMA,
           FAKE_CAPS, FAKE_USES, FAKE_UNDERSTANDS},
          FAKE_TAIL};
#ifdef FAKE_SECOND_ID
static const ddh_desc second = {sizeof(ddh_desc),
                                FAKE_KIND,
                                FAKE_SECOND_ID,
                                "1.0.0",
                                "does nothing too",
                                NULL,
                                NULL,
                                NULL,
                                DDH_CAP_IN_PROCESS,
                                0,
                                0};
static const ddh_desc* const descs[] = {&desc.known, &second};
#define PLUGINS FAKE_WORD ":" FAKE_ID "," FAKE_WORD ":" FAKE_SECOND_ID
#else
static const ddh_desc* const descs[] = {&desc.known};
#define PLUGINS FAKE_WORD ":" FAKE_ID
#endif

struct ddh_inst {
  uint32_t table_size;
};

static ddh_inst the_one = {4}; /* struct_size of the table "ddh.short/1" */
static ddh_rc create(const ddh_create* args, ddh_inst** out, ddh_err* err) {
  (void)args;
  *out = &the_one;
#ifdef FAKE_CREATE_FAILS
  return ddh_fail(err, DDH_NOT_FOUND, "the tide is out; wait for the moon");
#else
  (void)err;
  return DDH_OK;
#endif
}
static int same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}
static const void* get_interface(ddh_inst* inst, const char* id) { return same(id, "ddh.short/1") ? inst : NULL; }
static void destroy(ddh_inst* inst) { (void)inst; }

static const ddh_build build = {sizeof(ddh_build), DDH_ABI_MAJOR,    DDH_ABI_MINOR,    DDH_MIN_HOST_MINOR,
                                DDH_TORCH_VERSION, DDH_CUDA_VERSION, DDH_NCCL_VERSION, FAKE_CHECKSUM};
static const ddh_module module = {
    FAKE_MODULE_SIZE, sizeof descs / sizeof descs[0], descs, &build, create, get_interface, destroy};

#ifdef FAKE_ENTRY_CRASHES
#include <stdlib.h>
DDH_NOTE(PLUGINS);
__attribute__((visibility("default"))) ddh_rc DDH_ENTRY_NAME(const ddh_host* host, const ddh_module** out,
                                                             ddh_err* err);
ddh_rc DDH_ENTRY_NAME(const ddh_host* host, const ddh_module** out, ddh_err* err) {
  (void)host, (void)err;
  *out = &module;
  abort();
}
#else
DDH_PLUGIN(module, PLUGINS);
#endif

#ifdef FAKE_FLUSHES_TO_ZERO
#include <xmmintrin.h>
/* What crtfastm.o of -ffast-math does. */
__attribute__((constructor)) static void flush_to_zero(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
#endif
#ifdef FAKE_CONSTRUCTOR_EXITS
#include <stdlib.h>
__attribute__((constructor)) static void end_the_process(void) { exit(0); }
#endif
#ifdef FAKE_CONSTRUCTOR_LOOPS
#include <unistd.h>
__attribute__((constructor)) static void loop(void) {
  for (;;) pause();
}
#endif
#ifdef FAKE_CONSTRUCTOR_PRINTS
#include <stdio.h>
__attribute__((constructor)) static void print(void) { puts("a library that talks"); }
#endif
#ifdef FAKE_LINKS_GONE
extern int ddh_gone(void);
__attribute__((visibility("hidden"))) int ddh_use_gone(void);
int ddh_use_gone(void) { return ddh_gone(); }
#endif
