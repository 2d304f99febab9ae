// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/import/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

MappedFile::MappedFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) ddh::fail(DDH_NOT_FOUND, "cannot open '", path, "': ", std::strerror(errno), "; give an existing file");
  struct stat info {};
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) bytes_ = static_cast<uint64_t>(info.st_size);
  if (bytes_ > 0) base_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (base_ == nullptr || base_ == MAP_FAILED) {
    base_ = nullptr;
    ddh::fail(DDH_DATA_LOSS, "cannot read '", path, "': ", bytes_ == 0 ? "it is empty" : std::strerror(error));
  }
}

MappedFile::~MappedFile() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

}  // namespace ddhost
