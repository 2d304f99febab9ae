// SPDX-License-Identifier: Apache-2.0
#include "engine/state/final_weights.hpp"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>

#include "checkpoint/safetensors.hpp"
#include "checkpoint/usable_values.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/numerics/kernels.hpp"
#include "engine/services/comm/together.hpp"
#include "engine/services/memory/staging.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

using Place = FinalWeights::Place;

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

// A parameter in the file.
struct Tensor {
  uint64_t offset;  // bytes, of its first element
  int32_t dtype;    // as the model stores it
  bool overflows = false;
};

// Whether some of the finite `values` are too large for fp16.
bool overflows_f16(const float* values, const void* rounded, uint64_t numel) {
  std::array<float, kernels::kChunkNumel> back{};
  kernels::cast(back.data(), DDH_F32, rounded, DDH_F16, numel);
  return kernels::any_nonfinite(back.data(), numel) && !kernels::any_nonfinite(values, numel);
}

// Writes entries in the dtypes of the file. Values that are not finite are never written to a file.
class EntryWriter {
 public:
  EntryWriter(const RangeFile& file, const StateSource& source, Staging& staging, int rank,
              const std::string& nonfinite_reason)
      : file_(file), source_(source), staging_(staging), rank_(rank), nonfinite_reason_(nonfinite_reason) {}

  // `index`: of the entry in the list. Entries without a pointer are read through a buffer, in pieces.
  void write(Tensor& tensor, const ddh_state_entry& entry, uint32_t index) const {
    const uint64_t width = ddh_dtype_bytes(entry.dtype);
    if (entry.data != nullptr)
      return write_values(tensor, entry, staging_.readable(entry.data, entry.numel * width, nullptr));
    if (!DDH_CAN(&source_.table, ddh_strategy_api, state_read))
      source_.strategy.caller().blame(PluginCall::kState, {},
                                      "has entries without a pointer, but there is no state_read");
    constexpr uint64_t kPieceNumel = uint64_t{4} << 20;
    std::vector<char> values(std::min(kPieceNumel, entry.numel) * width);
    ddh_state_entry piece = entry;
    piece.data = values.data();
    for (uint64_t done = 0; done < entry.numel; done += piece.numel) {
      piece.numel = std::min(kPieceNumel, entry.numel - done);
      piece.offset = entry.offset + done;
      source_.strategy.call(PluginCall::kStateRead, source_.table.state_read, index, done, piece.numel, piece.data);
      write_values(tensor, piece, values.data());
    }
  }

 private:
  // Rounded to nearest even if the tensor's dtype is shorter.
  void write_values(Tensor& tensor, const ddh_state_entry& e, const char* entry_values) const {
    const uint64_t bytes = ddh_dtype_bytes(tensor.dtype), at = tensor.offset + e.offset * bytes;
    std::array<float, kernels::kChunkNumel> values{}, rounded{};
    kernels::for_each_chunk(e.numel, [&](uint64_t begin, uint64_t numel) {
      const char* const from = entry_values + begin * ddh_dtype_bytes(e.dtype);
      const void* to_write = from;
      const float* as_floats = reinterpret_cast<const float*>(from);
      if (e.dtype != DDH_F32) {
        kernels::cast(values.data(), DDH_F32, from, e.dtype, numel);
        as_floats = values.data();
      }
      require_finite(e, begin, as_floats, numel);
      if (e.dtype != tensor.dtype) {
        kernels::cast(rounded.data(), tensor.dtype, as_floats, DDH_F32, numel);
        to_write = rounded.data();
        if (tensor.dtype == DDH_F16 && overflows_f16(as_floats, rounded.data(), numel)) tensor.overflows = true;
      }
      file_.write_at(at + begin * bytes, to_write, numel * bytes);
    });
  }
  void require_finite(const ddh_state_entry& e, uint64_t begin, const float* values, uint64_t numel) const {
    const std::optional<uint64_t> at = first_nonfinite(values, numel);
    if (!at) return;
    ddh::fail(DDH_DATA_LOSS, "the weights are not written: parameter ", param_text(source_.model, e.param),
              " is not finite from element ", e.offset + begin + *at, " on (rank ", rank_, "): ", nonfinite_reason_);
  }

  const RangeFile& file_;
  const StateSource& source_;
  Staging& staging_;
  const int rank_;
  const std::string& nonfinite_reason_;
};

// A reader of the file would read a hole as zeros.
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

void write_buffers(const RangeFile& file, const ddh_model_desc& model, const SafetensorsLayout& plan,
                   Staging& staging) {
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model.buffers[b];
    const void* const values = buffer_values(buffer, staging);
    if (const std::optional<uint64_t> at = first_unusable(buffer, values))
      ddh::fail(DDH_DATA_LOSS, "the weights are not written: buffer '", buffer.name, "' is not finite from element ",
                *at, " on (rank 0): ", kUnusableBufferReason);
    file.write_at(plan.file_offsets[model.n_params + b], values, bytes_of(buffer));
  }
}

SafetensorsLayout layout_of(const ddh_model_desc& model) {
  std::vector<SafetensorsLayout::Item> items;
  for (uint32_t p = 0; p < model.n_params; ++p) {
    const ddh_param_desc& d = *model.params[p];
    items.push_back({d.name, d.dtype, {d.shape, d.shape + d.n_dims}});
  }
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& d = *model.buffers[b];
    items.push_back({d.name, d.dtype, {d.shape, d.shape + d.n_dims}});
  }
  return {items, weights_metadata(meaning_of_ids(model))};
}

// Writes this rank's part and returns the number of elements of parameters in it. `tensors`: a record of each parameter.
uint64_t write_own(const EntryWriter& writer, const StateSource& source, std::vector<Tensor>& tensors) {
  uint64_t numel = 0;
  const std::vector<ddh_state_entry> entries = state_entries(source);
  for (size_t i = 0; i < entries.size(); ++i) {
    const ddh_state_entry& e = entries[i];
    if (e.kind != DDH_STATE_PARAM || e.replica_index != 0) continue;
    writer.write(tensors[static_cast<size_t>(e.param)], e, static_cast<uint32_t>(i));
    numel += e.numel;
  }
  return numel;
}

uint64_t weights_file_bytes(const ddh_model_desc& model) { return layout_of(model).file_bytes; }

struct Exported {
  std::string disk_failure;           // the disk refused the file, which is incomplete; the same on every rank
  std::vector<std::string> warnings;  // of this rank, about values that the stored dtype can't represent
};

// The part of save_final_weights that writes one file, through which all ranks write. [collective]
Exported export_params(const RangeFile& file, const StateSource& source, const Comm& comm, Staging& staging,
                       const std::string& nonfinite_reason) {
  const ddh_model_desc& model = source.model;
  const SafetensorsLayout plan = layout_of(model);
  std::vector<Tensor> tensors;
  for (uint32_t p = 0; p < model.n_params; ++p) tensors.push_back({plan.file_offsets[p], model.params[p]->dtype});
  uint64_t mine = 0;  // elements that this rank has written
  std::string disk;   // its error
  together(comm, "export: write", [&] {
    try {
      if (comm.rank() == 0) file.write_at(0, plan.header.data(), plan.header.size());
      staging.device().synchronize(nullptr);  // the last updates
      comm.require_healthy();
      mine = write_own(EntryWriter(file, source, staging, comm.rank(), nonfinite_reason), source, tensors);
      if (comm.rank() == 0) write_buffers(file, model, plan, staging);
      file.sync();
    } catch (const ddh::Error& error) {
      if (error.code() != DDH_RESOURCE_EXHAUSTED) throw;  // only those of the disk are worth a second try elsewhere
      disk = error.what();
    }
  });
  Exported out;
  out.disk_failure = first_failure(comm, text_of(disk), "export: disk").data();
  if (!out.disk_failure.empty()) return out;
  check_complete(comm, model, mine);
  for (uint32_t p = 0; p < model.n_params; ++p) {
    if (!tensors[p].overflows) continue;
    out.warnings.push_back(ddh::str("parameter '", model.params[p]->name,
                                    "' holds values outside the range of fp16, its dtype in the file of "
                                    "train.save_final: they are infinite there"));
  }
  return out;
}

// Room for two paths.
using LongText = std::array<char, 12288>;

// What rank 0 has done, on every rank.
std::string from_first_rank(const Comm& comm, const std::string& text, const char* label) {
  LongText mine{};
  std::snprintf(mine.data(), mine.size(), "%s", text.c_str());
  std::vector<LongText> all(static_cast<size_t>(comm.world_size()));
  comm.all_gather_bytes(mine.data(), all.data(), mine.size(), label);
  return all.front().data();
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

FinalWeights::FinalWeights(const fs::path& target, const fs::path& run_dir, bool is_shared)
    : target_(target),
      in_run_dir_(run_dir / target.filename()),
      claim_(std::make_unique<const NameClaim>(target)),
      file_(target.parent_path(), target, is_shared),
      spare_(run_dir, in_run_dir_, is_shared) {}

FinalWeights::FinalWeights(const fs::path& target, const fs::path& run_dir, const std::vector<fs::path>& hidden)
    : target_(target),
      in_run_dir_(run_dir / target.filename()),
      file_(NewFile::Elsewhere{hidden.at(0)}),
      spare_(NewFile::Elsewhere{hidden.at(1)}) {}

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

void reserve_final_weights(const FinalWeights& file, const ddh_model_desc& model, const Comm& comm) {
  together(comm, "room for the final weights", [&] {
    if (comm.rank() == 0) file.data(Place::target).reserve(weights_file_bytes(model));
  });
}

FinalSave save_final_weights(const FinalWeights& file, const StateSource& source, const RankServices& services,
                             const std::string& nonfinite_reason) {
  const Comm& comm = *services.comm;
  const auto write_to = [&](Place place) {
    Exported done = export_params(file.data(place), source, comm, *services.staging, nonfinite_reason);
    for (const std::string& warning : done.warnings) services.log->warn("{}", warning);
    return done.disk_failure;
  };
  Place place = Place::target;
  const std::string failure = write_to(place);
  if (!failure.empty()) {
    place = Place::run_dir;
    together(comm, "room for the final weights", [&] {
      if (comm.rank() != 0) return;
      file.data(Place::target).clear();
      file.data(place).reserve(weights_file_bytes(source.model));
    });
    const std::string again = write_to(place);
    if (!again.empty()) ddh::fail(DDH_DATA_LOSS, "the weights are lost: ", failure, "; ", again);
  }
  FinalWeights::Named named;
  together(comm, "name the final weights", [&] {
    if (comm.rank() == 0) named = file.publish(place);
  });
  const std::string problem = failure.empty() ? named.problem : failure;
  const std::string sentence =
      problem.empty() ? "" : ddh::str(problem, "; the weights are in '", named.path.string(), "'");
  return {named.path.string(), from_first_rank(comm, sentence, "where the final weights are")};
}

}  // namespace ddhost
