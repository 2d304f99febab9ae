// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/place.hpp: where the tests run. Without settings: on the stand-ins of this build. With DDHOST_GPU_TESTS=real:
// on this machine's own libcuda.so.1 and libnccl.so.2, or on those that DDHOST_GPU_DRIVER and DDHOST_GPU_NCCL name.
// DDHOST_GPU_FOLDER names another build folder, such as an unpacked archive of ./dev gpu --pack.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "fixtures/harness/setting.hpp"
#include "fixtures/harness/skip.hpp"

namespace ddhost::test {

inline std::string from_environment(const char* name, const std::string& otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr || *given == '\0' ? otherwise : given;
}

inline bool on_stand_ins() { return from_environment("DDHOST_GPU_TESTS", "") != "real"; }
inline std::string build_folder() { return from_environment("DDHOST_GPU_FOLDER", DDHOST_BUILD_DIR); }
inline std::string driver_file() {
  return on_stand_ins() ? build_folder() + "/tests/standin/libcuda.so.1"
                        : from_environment("DDHOST_GPU_DRIVER", "libcuda.so.1");
}
inline std::string nccl_file() {
  return on_stand_ins() ? build_folder() + "/tests/standin/libnccl.so.2"
                        : from_environment("DDHOST_GPU_NCCL", "libnccl.so.2");
}

// For a case that only the stand-ins can pass: if (needs_stand_ins("...")) return;
inline bool needs_stand_ins(const std::string& reason) {
  if (on_stand_ins()) return false;
  skip("for the stand-ins: " + reason);
  return true;
}

// The number of GPUs of the stand-in, for the duration of a test. A real machine has what it has.
class StandinGpus {
 public:
  explicit StandinGpus(int count) {
    if (on_stand_ins()) setting_.emplace("DDHOST_STANDIN_GPUS", std::to_string(count).c_str());
  }

 private:
  std::optional<Setting> setting_;
};

}  // namespace ddhost::test
