// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include <gloo/transport/device.h>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);  // of waits for messages
};

}  // namespace gloo
