/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin of another major version of the ABI (FAKE_ENTRY): another symbol, and (FAKE_NOTE) a note that says so. */
#include <stdint.h>

#ifndef FAKE_ENTRY
#define FAKE_ENTRY ddh_plugin_entry_2
#endif

__attribute__((visibility("default"))) int32_t FAKE_ENTRY(void);
int32_t FAKE_ENTRY(void) { return 0; }

#ifdef FAKE_NOTE
#define TEXT "{\"abi\":\"2.3\",\"plugins\":\"strategy:future\",\"torch\":30100}"
__attribute__((used, section(".note.ddhost"), aligned(4))) static const struct {
  uint32_t namesz, descsz, type;
  char name[8];
  char desc[sizeof TEXT];
} note = {7, sizeof TEXT, 1, "ddhost", TEXT};
#endif
