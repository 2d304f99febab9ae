// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/import/mapped_file.hpp: a file mapped for reading.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddhost {

class MappedFile {
 public:
  // Throws ddh::Error naming the file.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::string_view bytes() const { return {static_cast<const char*>(base_), bytes_}; }

 private:
  void* base_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace ddhost
