// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/driver/api.hpp: what every function of the stand-in's API does first.
#pragma once

#include "driver/driver.hpp"

namespace standin {

// The GPU of this thread's context; -1: none.
int device_now();
// Whether this thread runs queued work: host functions on a stream must not call the driver.
bool is_inside_work();
struct InsideWork {
  InsideWork();
  InsideWork(const InsideWork&) = delete;
  InsideWork& operator=(const InsideWork&) = delete;
  ~InsideWork();
};

// Whether a call is ignored (DDHOST_STANDIN_IGNORES).
bool ignores(const char* call);

// With the driver's mutex held.
CUresult enter_result(bool needs_context);

template <class Body>
CUresult api(bool needs_context, Body&& body) {
  if (is_inside_work()) return CUDA_ERROR_NOT_PERMITTED;
  const std::lock_guard lock(Driver::get().mutex);
  const CUresult entered = enter_result(needs_context);
  return entered == CUDA_SUCCESS ? body() : entered;
}

}  // namespace standin
