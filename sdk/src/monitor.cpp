// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/monitor.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "ddh/sdk/files/input_file.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

const void* Monitor::interface(std::string_view id) const {
  static const ddh_monitor_api table = {
      sizeof(ddh_monitor_api),
      0,
      [](ddh_inst* i, const ddh_monitor_args* args, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Monitor>(i).begin(copy_of(args)); });
      },
      [](ddh_inst* i, const ddh_row* row, ddh_err* err) noexcept {
        return guard(err, [&] {
          const ddh_row mine = copy_of(row);
          if (mine.kind != DDH_ROW_STEP && mine.kind != DDH_ROW_EVAL)
            fail(DDH_UNIMPLEMENTED, "rows of kind ", mine.kind, " are unknown to this monitor");
          self_as<Monitor>(i).row(mine);
        });
      },
      [](ddh_inst* i, const char* summary, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Monitor>(i).end(summary); });
      },
      [](ddh_inst* i, const ddh_event* event, ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Monitor>(i).event(copy_of(event)); });
      },
  };
  return id == DDH_MONITOR_IFACE ? &table : nullptr;
}

namespace {

// A regular file, or a device such as /dev/null: a FIFO would wait for its reader.
std::FILE* open_output(const std::string& path, int flags, const char* mode) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
  struct stat info {};
  const bool known = fd >= 0 && ::fstat(fd, &info) == 0;
  // Two monitors that write one file would mix their rows. Not every file system has locks.
  if (known && S_ISREG(info.st_mode) && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd);
    fail(DDH_ALREADY_EXISTS, "'", path, "' is written by another monitor or program; give each a file of its own");
  }
  if (known && (S_ISREG(info.st_mode) || S_ISCHR(info.st_mode))) {
    std::FILE* const file = ::fdopen(fd, mode);
    // What could not be written must not wait in a buffer, from which fclose would write it.
    if (file != nullptr) std::setvbuf(file, nullptr, _IONBF, 0);
    return file;
  }
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (known || error == ENXIO)
    fail(DDH_INVALID_ARGUMENT, "'", path, "' is not a regular file; remove it, or give another run.dir");
  fail(DDH_PERMISSION_DENIED, "cannot write '", path, "': ", std::strerror(error), "; give another run.dir");
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)), file_(open_output(path_, O_WRONLY | O_CREAT, "wb")) {
  if (file_ != nullptr && ::ftruncate(fileno(file_.get()), 0) != 0 && errno != EINVAL)
    fail(DDH_PERMISSION_DENIED, "cannot write '", path_, "': ", std::strerror(errno), "; give another run.dir");
}

OutputFile OutputFile::continued(std::string path, const std::function<bool(std::string_view line)>& is_kept) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return OutputFile(std::move(path));
  OutputFile out;
  out.path_ = std::move(path);
  out.file_.reset(open_output(out.path_, O_RDWR, "r+b"));
  std::istringstream old(read_input(out.path_, {"file of records", "remove it, or give another run.dir"}));
  long kept = 0;
  for (std::string line; std::getline(old, line) && !old.eof() && is_kept(std::string_view(line));)
    kept += static_cast<long>(line.size()) + 1;
  if (out.file_ == nullptr || std::fseek(out.file_.get(), kept, SEEK_SET) != 0)
    fail(DDH_PERMISSION_DENIED, "cannot continue '", out.path_, "': ", std::strerror(errno), "; give another run.dir");
  out.has_more_ = true;
  return out;
}

void OutputFile::cut() {
  if (has_more_ && ::ftruncate(fileno(file_.get()), std::ftell(file_.get())) != 0)
    fail(DDH_PERMISSION_DENIED, "cannot continue '", path_, "': ", std::strerror(errno), "; give another run.dir");
  has_more_ = false;
}

void OutputFile::write(std::string_view bytes) {
  cut();
  const long whole = std::ftell(file_.get());
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return;
  const int error = errno;
  const bool cut = ::ftruncate(fileno(file_.get()), whole) == 0 && std::fseek(file_.get(), whole, SEEK_SET) == 0;
  fail(DDH_RESOURCE_EXHAUSTED, "cannot write '", path_, "': ", std::strerror(error),
       cut ? "" : " (it ends in half a row)", "; free some space or give another run.dir");
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
