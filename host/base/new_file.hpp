// SPDX-License-Identifier: Apache-2.0
//
// base/new_file.hpp: a file that gets its name when it is complete, and never takes the place of another file.
#pragma once

#include <filesystem>

#include "base/durable.hpp"

namespace ddhost {

// The file has no name until then (O_TMPFILE), so a process that dies leaves nothing behind. File systems without such
// files hold a hidden one, which the destructor removes. Ranks that are forked write through the same descriptor.
class NewFile {
 public:
  // A file on the disk of `folder`, which exists. `what` names the file in errors.
  NewFile(const std::filesystem::path& folder, const std::filesystem::path& what);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  [[nodiscard]] const RangeFile& data() const { return data_; }
  // Its name until it is published, on a file system without unnamed files; empty: it has none.
  [[nodiscard]] const std::filesystem::path& hidden() const { return hidden_; }

  // Names the file. False: the name is taken, by whatever it is. Throws if the folder can't hold the name.
  [[nodiscard]] bool publish(const std::filesystem::path& path) const;
  // The same under the first free name of weights.st, weights-2.st, weights-3.st ...; returns it.
  [[nodiscard]] std::filesystem::path publish_beside(const std::filesystem::path& path) const;
  // Takes over the content of another file, which may be on another disk.
  void copy(const NewFile& other) const;

 private:
  std::filesystem::path hidden_;
  RangeFile data_;
};

}  // namespace ddhost
