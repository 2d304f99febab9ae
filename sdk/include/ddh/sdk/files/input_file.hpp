// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/files/input_file.hpp: opens the files that a user names. Only regular files are accepted: opening a FIFO
// would wait for its writer, and reading a device might never end.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// What a file is, and how to fix a wrong one; for error sentences.
struct InputWords {
  const char* what = "file";                   // "config file"
  const char* cure = "give an existing file";  // "check data.path"
};

class InputFile {
 public:
  // Error: it does not exist, can't be opened, or is not a regular file.
  explicit InputFile(std::string path, InputWords words = {});
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }  // when it was opened
  // The descriptor, which the caller closes.
  int release();
  // The content. Error: it has more than `most` bytes, or can't be read to its end.
  [[nodiscard]] std::string read(uint64_t most = std::numeric_limits<uint64_t>::max()) const;

 private:
  friend class MappedInput;
  std::string path_;
  InputWords words_;
  int fd_;
  uint64_t bytes_ = 0;
};

// A regular file, mapped for reading. If another program shortens it later, an access beyond its new end ends the
// process with SIGBUS; the host then names the file.
class MappedInput {
 public:
  // Error: as InputFile, or it can't be mapped. An empty file has no bytes.
  explicit MappedInput(const std::string& path, InputWords words = {});
  MappedInput(const MappedInput&) = delete;
  MappedInput& operator=(const MappedInput&) = delete;
  ~MappedInput();

  [[nodiscard]] std::string_view bytes() const { return {static_cast<const char*>(base_), bytes_}; }

 private:
  void* base_ = nullptr;
  uint64_t bytes_ = 0;
};

inline std::string read_input(const std::string& path, InputWords words = {},
                              uint64_t most = std::numeric_limits<uint64_t>::max()) {
  return InputFile(path, words).read(most);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
