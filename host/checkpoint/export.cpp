// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "checkpoint/safetensors.hpp"

namespace ddhost {
namespace {

class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0)
      ddh::fail(DDH_PERMISSION_DENIED, "cannot open '", path, "' for writing: ", std::strerror(errno),
                "; give another file");
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(fd_); }

  void write_at(uint64_t offset, const void* data, uint64_t bytes) const {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = pwrite(fd_, from, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail_write();
      from += n;
      offset += static_cast<uint64_t>(n);
      bytes -= static_cast<uint64_t>(n);
    }
  }
  void reserve(uint64_t bytes) const {
    const int rc = posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
    if (rc != 0) {
      errno = rc;
      fail_write();
    }
  }
  void sync() const {
    if (fsync(fd_) != 0) fail_write();
  }

 private:
  [[noreturn]] void fail_write() const {
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "cannot write '", path_, "': ", std::strerror(errno),
              "; free some space or give another file");
  }
  std::string path_;
  int fd_;
};

// Runs a rank's part; all ranks throw when one of them has failed.
template <class Body>
void together(const Comm& comm, const char* label, Body&& body) {
  std::array<char, 512> failure{};
  try {
    body();
  } catch (const std::exception& e) {
    std::snprintf(failure.data(), failure.size(), "%s", e.what());
  }
  std::vector<std::array<char, 512>> all(static_cast<size_t>(comm.world_size()));
  comm.all_gather_bytes(failure.data(), all.data(), failure.size(), label);
  for (const auto& text : all) {
    if (text[0] != '\0') ddh::fail(DDH_RESOURCE_EXHAUSTED, text.data());
  }
}

std::vector<ddh_state_entry> state_of(ddh_inst* strategy, const ddh_strategy& table) {
  uint32_t n = 0;
  ddh::call(table.state, strategy, nullptr, sizeof(ddh_state_entry), &n);
  std::vector<ddh_state_entry> entries(n);
  ddh::call(table.state, strategy, entries.data(), sizeof(ddh_state_entry), &n);
  return entries;
}

}  // namespace

void export_params(const std::string& path, const ddh_model_desc& model, ddh_inst* strategy,
                   const ddh_strategy& strategy_table, const Comm& comm) {
  std::vector<SafetensorsPlan::Item> items;
  for (uint32_t p = 0; p < model.n_params; ++p) {
    const ddh_param_desc& d = *model.params[p];
    items.push_back({d.name, DDH_F32, {d.shape, d.shape + d.n_dims}});
  }
  const SafetensorsPlan plan(items, {{"format", "pt"}});
  const std::string part = path + ".part";
  try {
    together(comm, "export: make the file", [&] {
      if (comm.rank() != 0) return;
      const File file(part, O_WRONLY | O_CREAT | O_TRUNC);
      file.reserve(plan.file_bytes);
      file.write_at(0, plan.header.data(), plan.header.size());
    });
    together(comm, "export: write", [&] {
      const File file(part, O_WRONLY);
      for (const ddh_state_entry& e : state_of(strategy, strategy_table)) {
        if (e.kind != DDH_STATE_PARAM || e.replica_index != 0) continue;
        file.write_at(plan.file_offsets[static_cast<size_t>(e.param)] + e.offset * sizeof(float), e.data,
                      e.numel * sizeof(float));
      }
      file.sync();
    });
    together(comm, "export: name the file", [&] {
      if (comm.rank() == 0 && std::rename(part.c_str(), path.c_str()) != 0) {
        ddh::fail(DDH_PERMISSION_DENIED, "cannot rename '", part, "' to '", path, "': ", std::strerror(errno));
      }
    });
  } catch (...) {
    if (comm.rank() == 0) std::remove(part.c_str());
    throw;
  }
}

}  // namespace ddhost
