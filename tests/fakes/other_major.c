/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin of the next major version of the ABI: another symbol, and (FAKE_NOTE) a note that says so. */
#include <stdint.h>

__attribute__((visibility("default"))) int32_t ddh_plugin_entry_2(void);
int32_t ddh_plugin_entry_2(void) { return 0; }

#ifdef FAKE_NOTE
#define TEXT "{\"abi\":\"2.3\",\"plugins\":\"strategy:future\",\"torch\":30100}"
__attribute__((used, section(".note.ddhost"), aligned(4))) static const struct {
  uint32_t namesz, descsz, type;
  char name[8];
  char desc[sizeof TEXT];
} note = {7, sizeof TEXT, 1, "ddhost", TEXT};
#endif
