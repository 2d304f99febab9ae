// SPDX-License-Identifier: Apache-2.0
//
// base/durable.hpp: files of weights and state, written so that a crash at any instant leaves the old content or
// the new one. Every function throws ddh::Error with a sentence that names the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace ddhost {

// A file in which several processes may read and write ranges at once.
class RangeFile {
 public:
  enum class Mode { read, write, create };
  RangeFile(std::filesystem::path path, Mode mode);
  // Takes an open descriptor, of a file that has no name yet; `path` is for errors.
  RangeFile(std::filesystem::path path, int fd);
  RangeFile(RangeFile&& other) noexcept;
  RangeFile(const RangeFile&) = delete;
  RangeFile& operator=(const RangeFile&) = delete;
  RangeFile& operator=(RangeFile&&) = delete;
  ~RangeFile();

  void write_at(uint64_t offset, const void* data, uint64_t bytes) const;
  // Exactly `bytes`; an earlier end of the file is an error.
  void read_at(uint64_t offset, void* data, uint64_t bytes) const;
  // Reserves the space on the disk.
  void reserve(uint64_t bytes) const;
  // Gives the file this size; what is not written is zeros that take no space.
  void resize(uint64_t bytes) const;
  // Gives up content and space.
  void clear() const;
  [[nodiscard]] uint64_t bytes() const;
  // What was written is on the disk when it returns.
  void sync() const;
  [[nodiscard]] int descriptor() const { return fd_; }
  // Throws the error of a write that failed with errno.
  [[noreturn]] void fail_write() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// The names in a folder are on the disk when it returns.
void sync_folder(const std::filesystem::path& folder);
// Writes a new file. Its content is on the disk when this returns; its name is on the disk after sync_folder.
void write_durably(const std::filesystem::path& file, std::string_view text);
// Replaces a file in the same way. The old content stays until the new content is complete.
void replace_durably(const std::filesystem::path& file, std::string_view text);
// Removes what a process left that was killed in replace_durably. No other process may be in it.
void drop_part_of(const std::filesystem::path& file);
// The same of a symbolic link to a name in the same folder.
void replace_link(const std::filesystem::path& link, const std::filesystem::path& target);
// Gives a folder its name. An older folder of that name is removed afterwards, never before.
void publish_folder(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes a folder. It is renamed first, so a crash leaves no partial folder under its name.
void remove_folder(const std::filesystem::path& folder);
// The whole text of a small file.
std::string read_whole(const std::filesystem::path& file);

// A file that gets its name when it is complete, and never takes the place of another file. It has no name until then
// (O_TMPFILE), so a process that dies leaves nothing behind. File systems without such files hold a hidden one, which the
// destructor removes. Ranks that are forked write through the same descriptor.
class NewFile {
 public:
  // A file on the disk of `folder`, which exists. `what` names the file in errors.
  // `is_hidden`: it has a name, so that other hosts can open it.
  NewFile(const std::filesystem::path& folder, const std::filesystem::path& what, bool is_hidden = false);
  // The hidden file of a NewFile of another host, which publishes and removes it.
  struct Elsewhere {
    std::filesystem::path hidden;
  };
  explicit NewFile(const Elsewhere& file);
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
