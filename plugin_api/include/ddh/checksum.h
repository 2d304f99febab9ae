/* SPDX-License-Identifier: Apache-2.0
 *
 * ddh/checksum.h: FNV-1a 64 over the code of all other headers of this folder in order of path, written by
 * `./dev checksum` and verified by a test. It detects a plugin that was built from changed headers of the same
 * version. */
#ifndef DDH_CHECKSUM_H
#define DDH_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define DDH_HEADER_CHECKSUM UINT64_C(0x6573252837c2134f)
#define DDH_HEADER_CHECKSUM_TEXT "6573252837c2134f"
#endif
