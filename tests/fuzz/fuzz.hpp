// SPDX-License-Identifier: Apache-2.0
//
// tests/fuzz/fuzz.hpp: what the fuzz targets share. A target reads bytes as the program would read a file. It may refuse
// them with ddh::Error; anything else that leaves it is a finding.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ddh/sdk/plugin.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

namespace ddhost::fuzz {

inline std::string text_of(const uint8_t* data, size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};  // a copy: reading beyond its end is noticed
}

template <class Body>
void may_refuse(Body&& body) {
  try {
    body();
  } catch (const ddh::Error& error) {
    if (std::string_view(error.what()).empty()) std::abort();  // an error has a sentence
  }
}

// A regular file without a folder, at path().
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
    if (fd_ < 0) throw std::runtime_error("memfd_create failed");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }
  void set(const uint8_t* data, size_t bytes) const {
    if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, data, bytes, 0) != static_cast<ssize_t>(bytes))
      throw std::runtime_error("a memory file can't be written");
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

}  // namespace ddhost::fuzz
