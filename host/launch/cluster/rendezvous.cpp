// SPDX-License-Identifier: Apache-2.0
//
// The file has one line: address:port, token, host, process, machine, and the time at which that process began.
#include "launch/cluster/rendezvous.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/cluster.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

struct Line {
  std::string at, token, host;
  int process = 0;
  std::string machine, began;  // of the process
};

// The time at which a process of this machine began; "": there is none.
std::string begin_of(int process) {
  std::ifstream file(ddh::str("/proc/", process, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return field;
}

std::string machine_word() {
  std::string word = own_identity().machine;
  std::replace(word.begin(), word.end(), ' ', '-');
  return word;
}

Line parsed(const std::string& text) {
  Line line;
  std::istringstream(text) >> line.at >> line.token >> line.host >> line.process >> line.machine >> line.began;
  return line;
}

// Of a file that only this user may read.
std::optional<std::string> secret_text(const fs::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0) {
    if (errno == ENOENT) return std::nullopt;
    ddh::fail(DDH_PERMISSION_DENIED, "'", path.string(), "' can't be opened: ", std::strerror(errno));
  }
  struct stat info {};
  ::fstat(file.get(), &info);
  if (info.st_uid != ::geteuid())
    ddh::fail(DDH_PERMISSION_DENIED, "'", path.string(),
              "' belongs to another user, so it is not trusted; remove it, or set ",
              "launch.rendezvous to a path of your own");
  if ((info.st_mode & 077) != 0)
    ddh::fail(DDH_PERMISSION_DENIED, "'", path.string(), "' holds the token of a run and others may read it (mode ",
              (info.st_mode >> 6) & 7, (info.st_mode >> 3) & 7, info.st_mode & 7,
              "); remove it, and start the run again");
  std::array<char, 1024> text{};
  const ssize_t n = ::read(file.get(), text.data(), text.size());
  return std::string(text.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
}

// Whether the process that wrote the line has ended. On another host it can't be known.
bool is_dead(const Line& line) {
  return line.machine == machine_word() && line.process > 0 && begin_of(line.process) != line.began;
}

}  // namespace

std::optional<Meeting> meeting_of_variables() {
  const char* const at = std::getenv("DDHOST_RENDEZVOUS");
  const char* const file = std::getenv("DDHOST_TOKEN_FILE");
  if (at == nullptr && file == nullptr) return std::nullopt;
  if (at == nullptr || file == nullptr)
    ddh::fail(DDH_INVALID_ARGUMENT, "DDHOST_RENDEZVOUS and DDHOST_TOKEN_FILE belong together, and only ",
              at == nullptr ? "the second" : "the first", " is set; set both, or neither");
  const std::optional<std::string> token = secret_text(file);
  if (!token) ddh::fail(DDH_NOT_FOUND, "DDHOST_TOKEN_FILE='", file, "' does not exist");
  return Meeting{parse_endpoint(at, "DDHOST_RENDEZVOUS"), Token::from_hex(token->substr(0, token->find('\n')))};
}

fs::path rendezvous_path(const std::string& option, const std::string& job) {
  if (!option.empty()) return option;
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    ddh::fail(DDH_FAILED_PRECONDITION,
              "HOME is not set, so the tasks of the run have no place to meet; set launch.rendezvous ",
              "to a file in a folder that all hosts share");
  return fs::path(home) / ".ddhost" / job;
}

RendezvousFile::RendezvousFile(fs::path path, const Meeting& meeting) : path_(std::move(path)), owner_(::getpid()) {
  std::error_code ec;
  if (!path_.parent_path().empty()) fs::create_directories(path_.parent_path(), ec);
  if (const std::optional<std::string> old = secret_text(path_)) {
    const Line line = parsed(*old);
    if (!is_dead(line))
      ddh::fail(DDH_ALREADY_EXISTS, "'", path_.string(), "' announces a run of process ", line.process, " on host ",
                plain_text(line.host, 100), "; if that run has ended, remove the file, else set launch.rendezvous");
    fs::remove(path_, ec);
  }
  // Whole or absent: it gets its name when it is complete.
  const std::string hidden = ddh::str(path_.string(), ".", host_name(), ".", owner_);
  const Fd file(::open(hidden.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string text = ddh::str(meeting.at.text(), " ", meeting.token.hex(), " ", host_name(), " ", owner_, " ",
                                    machine_word(), " ", begin_of(owner_), "\n");
  const bool is_written =
      file.get() >= 0 && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool is_named = is_written && ::link(hidden.c_str(), path_.c_str()) == 0;
  const int problem = errno;
  ::unlink(hidden.c_str());
  if (!is_named)
    ddh::fail(DDH_PERMISSION_DENIED, "the rendezvous file '", path_.string(),
              "' can't be written: ", std::strerror(problem),
              "; set launch.rendezvous to a file in a folder that all hosts share");
}

RendezvousFile::~RendezvousFile() {
  if (::getpid() == owner_) ::unlink(path_.c_str());
}

std::optional<Meeting> read_rendezvous(const fs::path& path) {
  const std::optional<std::string> text = secret_text(path);
  if (!text) return std::nullopt;
  const Line line = parsed(*text);
  if (is_dead(line)) return std::nullopt;  // of a run that was killed: its successor replaces it
  return Meeting{parse_endpoint(line.at, path.string()), Token::from_hex(line.token)};
}

}  // namespace ddhost
