/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that says it is libavutil 1.0.0, which no build has headers of. */
__attribute__((visibility("default"))) unsigned avutil_version(void);
unsigned avutil_version(void) { return 1U << 16; }
