// SPDX-License-Identifier: Apache-2.0
//
// engine/services/initial_values.hpp: what ddh.params asks for: the values with which training starts.
#pragma once

#include <cstdint>

namespace ddhost {

class Staging;

class InitialValues {
 public:
  InitialValues() = default;
  InitialValues(const InitialValues&) = delete;
  InitialValues& operator=(const InitialValues&) = delete;
  virtual ~InitialValues() = default;

  // Elements [offset, offset + numel) of a parameter, in fp32. Error: no such parameter or elements.
  virtual void init_range(int32_t param, uint64_t offset, uint64_t numel, float* dst) const = 0;
  // Sets the model's buffers where a file has values for them; else they keep what the model gave them.
  virtual void init_buffers(Staging& staging) const = 0;
};

}  // namespace ddhost
