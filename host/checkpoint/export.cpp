// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "checkpoint/safetensors.hpp"
#include "device/cpu/kernels.hpp"
#include "services/buffer_values.hpp"

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
    int rc = 0;
    do {
      rc = posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
    } while (rc == EINTR);
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

std::vector<ddh_state_entry> state_of(ddh_inst* strategy, const ddh_strategy_api& table) {
  uint32_t n = 0;
  ddh::call(table.state, strategy, nullptr, sizeof(ddh_state_entry), &n);
  std::vector<ddh_state_entry> entries(n);
  ddh::call(table.state, strategy, entries.data(), sizeof(ddh_state_entry), &n);
  return entries;
}

void check_entry(const ddh_state_entry& e, const ddh_model_desc& model) {
  const bool is_param = e.param >= 0 && static_cast<uint32_t>(e.param) < model.n_params;
  const bool is_there = e.data != nullptr || e.memory == DDH_MEM_FILE;
  const bool is_readable = is_there && (e.dtype == DDH_F32 || e.dtype == DDH_BF16 || e.dtype == DDH_F16);
  if (is_param && is_readable && e.offset <= model.params[e.param]->numel &&
      e.numel <= model.params[e.param]->numel - e.offset) {
    return;
  }
  ddh::fail(DDH_INTERNAL, "the strategy describes its state wrongly: elements ", e.offset, " to ", e.offset + e.numel,
            " of parameter ", e.param, ", dtype ", e.dtype, "; report this to the strategy's author");
}

// A parameter in the file.
struct Tensor {
  uint64_t offset;  // bytes, of its first element
  int32_t dtype;    // as the model stores it
  bool overflows = false;
};

// Of `values`, which are finite, some are too large for fp16.
bool overflows_f16(const float* values, const void* rounded, uint64_t numel) {
  std::array<float, cpu::kChunkNumel> back{};
  cpu::cast(back.data(), DDH_F32, rounded, DDH_F16, numel);
  return cpu::any_nonfinite(back.data(), numel) && !cpu::any_nonfinite(values, numel);
}

// In the tensor's dtype, whatever the rank keeps: rounded to nearest even.
void write_values(const File& file, Tensor& tensor, uint64_t first, const ddh_state_entry& e,
                  const char* entry_values) {
  const uint64_t bytes = ddh_dtype_bytes(tensor.dtype), at = tensor.offset + first * bytes;
  if (e.dtype == tensor.dtype) return file.write_at(at, entry_values, e.numel * bytes);
  std::array<float, cpu::kChunkNumel> values{}, rounded{};
  cpu::for_each_chunk(e.numel, [&](uint64_t begin, uint64_t numel) {
    cpu::cast(values.data(), DDH_F32, entry_values + begin * ddh_dtype_bytes(e.dtype), e.dtype, numel);
    cpu::cast(rounded.data(), tensor.dtype, values.data(), DDH_F32, numel);
    if (tensor.dtype == DDH_F16 && overflows_f16(values.data(), rounded.data(), numel)) tensor.overflows = true;
    file.write_at(at + begin * bytes, rounded.data(), numel * bytes);
  });
}

// One entry; what has no pointer comes through a buffer, piece by piece.
void write_entry(const File& file, Tensor& tensor, const ddh_state_entry& entry, uint32_t index, ddh_inst* strategy,
                 const ddh_strategy_api& table, Staging& staging) {
  if (entry.data != nullptr) {
    const uint64_t bytes = entry.numel * ddh_dtype_bytes(entry.dtype);
    return write_values(file, tensor, entry.offset, entry, staging.readable(entry.data, bytes, nullptr));
  }
  if (!DDH_CAN(&table, ddh_strategy_api, state_read))
    ddh::fail(DDH_UNIMPLEMENTED, "the strategy has state without a pointer, but no state_read; mend the plugin");
  constexpr uint64_t kPieceNumel = uint64_t{4} << 20;
  std::vector<char> values(std::min(kPieceNumel, entry.numel) * ddh_dtype_bytes(entry.dtype));
  ddh_state_entry piece = entry;
  piece.data = values.data();
  for (uint64_t done = 0; done < entry.numel; done += piece.numel) {
    piece.numel = std::min(kPieceNumel, entry.numel - done);
    ddh::call(table.state_read, strategy, index, done, piece.numel, piece.data);
    write_values(file, tensor, entry.offset + done, piece, values.data());
  }
}

// A hole would be read as zeros by whoever loads the file.
void check_complete(const Comm& comm, const ddh_model_desc& model, uint64_t mine) {
  std::vector<uint64_t> written(static_cast<size_t>(comm.world_size()));
  comm.all_gather_bytes(&mine, written.data(), sizeof mine, "export: count");
  uint64_t total = 0, expected = 0;
  for (const uint64_t n : written) total += n;
  for (uint32_t p = 0; p < model.n_params; ++p) expected += model.params[p]->numel;
  if (total == expected) return;
  ddh::fail(DDH_INTERNAL, "the strategy described ", total, " of ", expected,
            " elements of the parameters; the file is not written; report this to the strategy's author");
}

void write_buffers(const File& file, const ddh_model_desc& model, const SafetensorsPlan& plan, Staging& staging) {
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model.buffers[b];
    file.write_at(plan.file_offsets[model.n_params + b], buffer_values(buffer, staging), bytes_of(buffer));
  }
}

}  // namespace

std::vector<std::string> export_params(const std::string& path, const ddh_model_desc& model, ddh_inst* strategy,
                                       const ddh_strategy_api& strategy_table, const Comm& comm, Staging& staging) {
  std::vector<SafetensorsPlan::Item> items;
  for (uint32_t p = 0; p < model.n_params; ++p) {
    const ddh_param_desc& d = *model.params[p];
    items.push_back({d.name, d.dtype, {d.shape, d.shape + d.n_dims}});
  }
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& d = *model.buffers[b];
    items.push_back({d.name, d.dtype, {d.shape, d.shape + d.n_dims}});
  }
  const SafetensorsPlan plan(items, {{"format", "pt"}});
  const std::string part = path + ".part";
  uint64_t mine = 0;  // elements that this rank has written
  std::vector<std::string> warnings;
  try {
    together(comm, "export: make the file", [&] {
      if (comm.rank() != 0) return;
      const File file(part, O_WRONLY | O_CREAT | O_TRUNC);
      file.reserve(plan.file_bytes);
      file.write_at(0, plan.header.data(), plan.header.size());
    });
    together(comm, "export: write", [&] {
      const File file(part, O_WRONLY);
      staging.device().synchronize(nullptr);  // the last updates
      const std::vector<ddh_state_entry> entries = state_of(strategy, strategy_table);
      std::vector<Tensor> tensors;
      for (uint32_t p = 0; p < model.n_params; ++p) tensors.push_back({plan.file_offsets[p], model.params[p]->dtype});
      for (size_t i = 0; i < entries.size(); ++i) {
        const ddh_state_entry& e = entries[i];
        if (e.kind != DDH_STATE_PARAM || e.replica_index != 0) continue;
        check_entry(e, model);
        write_entry(file, tensors[static_cast<size_t>(e.param)], e, static_cast<uint32_t>(i), strategy, strategy_table,
                    staging);
        mine += e.numel;
      }
      for (uint32_t p = 0; p < model.n_params; ++p) {
        if (tensors[p].overflows)
          warnings.push_back(ddh::str("parameter '", model.params[p]->name, "' holds values beyond fp16, in which '",
                                      path, "' stores it: they are infinite there"));
      }
      if (comm.rank() == 0) write_buffers(file, model, plan, staging);
      file.sync();
    });
    check_complete(comm, model, mine);
    together(comm, "export: name the file", [&] {
      if (comm.rank() == 0 && std::rename(part.c_str(), path.c_str()) != 0) {
        ddh::fail(DDH_PERMISSION_DENIED, "cannot rename '", part, "' to '", path, "': ", std::strerror(errno));
      }
    });
  } catch (...) {
    if (comm.rank() == 0) std::remove(part.c_str());
    throw;
  }
  return warnings;
}

}  // namespace ddhost
