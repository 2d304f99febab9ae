// SPDX-License-Identifier: Apache-2.0
//
// engine/services/initial_values.hpp: the interface behind ddh.params: initial values of parameters.
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
  // Sets the model's buffers from a file if it has values for them; others keep the model's values.
  virtual void init_buffers(Staging& staging) const = 0;
};

}  // namespace ddhost
