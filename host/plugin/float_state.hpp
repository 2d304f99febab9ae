// SPDX-License-Identifier: Apache-2.0
//
// plugin/float_state.hpp: the thread's floating-point control word. A library linked with -ffast-math switches it to
// flush-to-zero while it is loaded, which would change the numbers of every other plugin.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ddhost {

class FloatState {
 public:
  static FloatState current() { return FloatState(read()); }
  // True if the state has changed since; restores it.
  [[nodiscard]] bool restore_if_changed() const {
    if ((read() & kControl) == (word_ & kControl)) return false;
    write(word_);
    return true;
  }

 private:
  explicit FloatState(uint64_t word) : word_(word) {}
#if defined(__x86_64__)
  static constexpr uint64_t kControl = 0xffc0;  // without the sticky exception flags
  static uint64_t read() { return _mm_getcsr(); }
  static void write(uint64_t word) { _mm_setcsr(static_cast<unsigned>(word)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kControl = ~uint64_t{0};
  static uint64_t read() { return __builtin_aarch64_get_fpcr64(); }
  static void write(uint64_t word) { __builtin_aarch64_set_fpcr64(word); }
#endif

  uint64_t word_;
};

}  // namespace ddhost
