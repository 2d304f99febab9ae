// SPDX-License-Identifier: Apache-2.0
#include "engine/record/step_count.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr int kWidth = 159;  // of the line, so that a shorter one leaves nothing of a longer one

[[noreturn]] void fail_write(const std::filesystem::path& path) {
  ddh::fail(DDH_RESOURCE_EXHAUSTED, "cannot write '", path.string(), "': ", std::strerror(errno),
            "; free some space or give another run.dir");
}

}  // namespace

std::optional<StepNumbers> read_step_numbers(const std::filesystem::path& run_dir) {
  std::ifstream in(run_dir / kRunLock);
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  StepNumbers out;
  const std::array<std::pair<const char*, int64_t*>, 3> fields = {
      {{"begun", &out.begun}, {"steps", &out.steps}, {"saved", &out.saved}}};
  for (const auto& [name, number] : fields) {
    if (!json.is_object() || !json.contains(name) || !json[name].is_number_integer()) return std::nullopt;
    *number = json[name];
  }
  if (json.contains("first_run") && json["first_run"].is_number_unsigned()) out.first_run = json["first_run"];
  return out;
}

StepCount::StepCount(const std::filesystem::path& run_dir, const StepNumbers& start)
    : path_(run_dir / kRunLock),
      numbers_{start.begun, start.steps, read_step_numbers(run_dir).value_or(StepNumbers{}).saved, start.first_run},
      fd_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail_write(path_);
  try {
    write();
    // Without it the memory of other hosts can't be used after a power cut here.
    if (numbers_.first_run != 0 && ::fdatasync(fd_) != 0) fail_write(path_);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

StepCount::~StepCount() { ::close(fd_); }

void StepCount::done(int64_t step) {
  numbers_.steps = step;
  write();
}

void StepCount::saved(int64_t step) {
  if (step == numbers_.saved) return;
  numbers_.saved = step;
  write();
}

bool StepCount::has_file() const {
  struct stat info {};
  return ::fstat(fd_, &info) == 0 && info.st_nlink > 0;
}

// In place, so that a crash leaves the old numbers or the new ones. Called in each step, so it allocates nothing.
void StepCount::write() {
  std::array<char, kWidth + 1> line;
  line.fill(' ');
  const int length = std::snprintf(line.data(), line.size(),
                                   "{\"begun\": %" PRId64 ", \"steps\": %" PRId64 ", \"saved\": %" PRId64
                                   ", \"first_run\": %" PRIu64 "}",
                                   numbers_.begun, numbers_.steps, numbers_.saved, numbers_.first_run);
  line[static_cast<size_t>(length)] = ' ';  // instead of the end of a text
  line.back() = '\n';
  for (size_t done = 0; done < kWidth + 1;) {
    const ssize_t n = ::pwrite(fd_, line.data() + done, kWidth + 1 - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_write(path_);
    done += static_cast<size_t>(n);
  }
}

}  // namespace ddhost
