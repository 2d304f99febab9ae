// SPDX-License-Identifier: Apache-2.0
#include "engine/state/final_weights.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>

#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// An abstract socket address, which is no file. The folder counts by its inode, so a link to it is the same folder.
sockaddr_un address_of(const fs::path& file, socklen_t& bytes) {
  struct stat folder {};
  if (::stat(file.parent_path().c_str(), &folder) != 0)
    ddh::fail(DDH_NOT_FOUND, "the folder of '", file.string(), "' can't be read: ", std::strerror(errno),
              "; give another file");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  char* const name = address.sun_path + 1;  // after a NUL: abstract
  const int length = std::snprintf(
      name, sizeof address.sun_path - 1, "ddhost-%llx-%llx-%zx", static_cast<unsigned long long>(folder.st_dev),
      static_cast<unsigned long long>(folder.st_ino), std::hash<std::string>{}(file.filename().string()));
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  return address;
}

}  // namespace

NameClaim::NameClaim(const fs::path& file) {
  socklen_t bytes = 0;
  const sockaddr_un address = address_of(file, bytes);
  fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd_ >= 0 && ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return;
  const int error = errno;
  if (fd_ >= 0) ::close(fd_);
  if (error == EADDRINUSE)
    ddh::fail(DDH_ALREADY_EXISTS, "'", file.string(),
              "' is the train.save_final of a run that has not ended; give another name or wait until it ends");
  ddh::fail(DDH_RESOURCE_EXHAUSTED, "the name '", file.string(), "' can't be reserved: ", std::strerror(error));
}

NameClaim::~NameClaim() {
  if (fd_ >= 0) ::close(fd_);
}

FinalWeights::FinalWeights(const fs::path& target, const fs::path& run_dir)
    : target_(target),
      in_run_dir_(run_dir / target.filename()),
      claim_(target),
      file_(target.parent_path(), target),
      spare_(run_dir, in_run_dir_) {}

const RangeFile& FinalWeights::data(Place place) const { return place == Place::target ? file_.data() : spare_.data(); }

std::vector<fs::path> FinalWeights::hidden() const {
  std::vector<fs::path> out;
  for (const NewFile* file : {&file_, &spare_})
    if (!file->hidden().empty()) out.push_back(file->hidden());
  return out;
}

FinalWeights::Named FinalWeights::publish(Place written) const {
  if (written == Place::run_dir) return {spare_.publish_beside(in_run_dir_), ""};
  std::string problem;
  try {
    const fs::path path = file_.publish_beside(target_);
    if (path != target_)
      problem =
          ddh::str("'", target_.string(), "' was created during the run by another program, and is not overwritten");
    return {path, problem};
  } catch (const ddh::Error& error) {
    problem = error.what();
  }
  try {
    return {publish_in_run_dir(), problem};
  } catch (const ddh::Error& error) {
    ddh::fail(DDH_DATA_LOSS, "the weights are lost: ", problem, "; ", error.what());
  }
}

// On one disk the file only gets a name there.
fs::path FinalWeights::publish_in_run_dir() const {
  try {
    return file_.publish_beside(in_run_dir_);
  } catch (const ddh::Error&) {
    spare_.copy(file_);
  }
  return spare_.publish_beside(in_run_dir_);
}

}  // namespace ddhost
