// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/errors.hpp: errors of LibTorch as sentences of this program, without LibTorch's lists of addresses. If it
// lacks memory of the GPU, the sentence is that of the device.
#pragma once

#include <c10/util/Exception.h>

#include <cmath>
#include <sstream>
#include <string>

#include "ddh/sdk/torch/warnings.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace detail {

// "... Tried to allocate 20.00 MiB. ..." -> bytes; 0: the text names none.
inline uint64_t wanted_bytes(const std::string& text) {
  static const std::string kWords = "Tried to allocate ";
  const size_t at = text.find(kWords);
  if (at == std::string::npos) return 0;
  std::istringstream in(text.substr(at + kWords.size()));
  double number = 0;
  std::string unit;
  if (!(in >> number >> unit)) return 0;
  const int power = unit.starts_with("KiB") ? 10 : unit.starts_with("MiB") ? 20 : unit.starts_with("GiB") ? 30 : 0;
  return static_cast<uint64_t>(std::ceil(std::ldexp(number, power)));
}

// The device is asked for the same memory: its refusal names the GPU, its free memory, what the rank holds by purpose, and
// the cure. It has the memory only if its free pieces are too small for LibTorch, or another program has just freed it.
[[noreturn]] inline void fail_for_memory(const Host& host, const std::string& text) {
  if (const uint64_t bytes = wanted_bytes(text); bytes > 0)
    const Buffer probe(host, DDH_TAG_ACT, bytes, "a tensor of LibTorch", 0);
  fail(DDH_RESOURCE_EXHAUSTED, text.substr(0, text.find(". ")), "; `ddhost plan --all-strategies` with the ",
       "words of this run shows what takes less, and --fit takes it");
}

}  // namespace detail

// Runs `body`, which calls LibTorch.
template <class Body>
void with_plain_errors(const Host& host, const Body& body) {
  try {
    body();
  } catch (const c10::OutOfMemoryError& e) {
    detail::fail_for_memory(host, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    fail(DDH_INTERNAL, "LibTorch fails: ", first_line(e.what_without_backtrace()));
  }
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
