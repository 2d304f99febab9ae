/* SPDX-License-Identifier: Apache-2.0
 *
 * A shared library that is no plugin; also what a plugin links that is not there when it is loaded. */
__attribute__((visibility("default"))) int ddh_gone(void);
int ddh_gone(void) { return 1; }
