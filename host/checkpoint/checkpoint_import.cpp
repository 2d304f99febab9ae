// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/whole_checkpoints.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "base/durable.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/checkpoint_layout.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/usable_values.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/numerics/kernels.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// Takes the tensors of a converted file for those of a manifest.
class ForeignSource {
 public:
  ForeignSource(const SafetensorsFile& file, const Manifest& manifest, std::string what)
      : tensors_(file.tensors()), what_(std::move(what)) {
    std::vector<FoundShape> shapes;
    for (const Manifest::Tensor& tensor : manifest.tensors)
      if (const auto at = tensors_.find(stored_name(tensor.stored, tensor.stored.name)); at != tensors_.end())
        shapes.push_back({tensor.stored.name, tensor.stored.shape, at->second.shape});
    layout_ = layout_shown(manifest.layouts, shapes);
  }

  // That of another program; without a name: none.
  [[nodiscard]] const StoredLayout& layout() const { return layout_; }

  [[nodiscard]] const std::string& what() const { return what_; }
  // Its values in the dtype of the checkpoint; valid until the next call.
  const char* values(const StoredTensor& wanted) {
    const ddh::FileTensor& found = find(wanted);
    const bool is_transposed = is_transposed_slot_or_weight(wanted) && is_transposed_shape(found.shape, wanted.shape);
    if (!is_transposed && found.shape != wanted.shape)
      ddh::fail(DDH_FAILED_PRECONDITION, "tensor '", wanted.name, "' of ", what_,
                " has another shape than in the run; it is of another model");
    if (!is_transposed && found.dtype == wanted.dtype) return static_cast<const char*>(found.data);
    const bool is_float = found.dtype == DDH_BF16 || found.dtype == DDH_F16 || found.dtype == DDH_F32;
    if (wanted.dtype != DDH_F32 || !is_float)
      ddh::fail(DDH_UNIMPLEMENTED, "tensor '", wanted.name, "' of ", what_, " has a dtype that the run does not take");
    converted_.resize(wanted.bytes);
    if (is_transposed) {
      read_transposed(found, 0, wanted.bytes / sizeof(float), reinterpret_cast<float*>(converted_.data()));
      return converted_.data();
    }
    std::vector<char> aligned(static_cast<const char*>(found.data), static_cast<const char*>(found.data) + found.bytes);
    kernels::cast(converted_.data(), DDH_F32, aligned.data(), found.dtype, wanted.bytes / sizeof(float));
    return converted_.data();
  }
  // Error: a tensor that the run has not.
  void require_no_surplus() const {
    for (const auto& [name, tensor] : tensors_)
      if (!used_.contains(name))
        ddh::fail(
            DDH_FAILED_PRECONDITION, what_, " has the tensor '", name.substr(name.find('/') + 1),
            "', which the run has not; it is of another model or optimizer, or holds more than a run keeps, such as ",
            "a mask: save it without the tensor, or give the weights alone as train.init_from, which may name it in ",
            "allow_surplus");
  }

 private:
  const ddh::FileTensor& find(const StoredTensor& wanted) {
    std::vector<std::string> names = {wanted.name};
    names.insert(names.end(), wanted.tied_names.begin(), wanted.tied_names.end());
    const ddh::FileTensor* found = nullptr;
    std::string found_as;
    for (const std::string& name : names) {
      const auto at = tensors_.find(stored_name(wanted, name));
      used_.insert(stored_name(wanted, name));
      if (at == tensors_.end()) continue;
      if (found != nullptr && !ddh::same_values(*found, at->second))
        ddh::fail(DDH_FAILED_PRECONDITION, what_, " has other values in '", name, "' than in '", found_as,
                  "', which are one parameter of the run; it is of another model");
      if (found == nullptr) found_as = name;
      if (found == nullptr) found = &at->second;
    }
    if (found == nullptr)
      ddh::fail(DDH_NOT_FOUND, what_, " has no tensor '", wanted.name,
                "', which the run needs; it is of another model or ", "optimizer");
    return *found;
  }

  // A slot is called "exp_avg/NAME" in a manifest.
  static std::string stored_name(const StoredTensor& of, const std::string& name) {
    return std::string(of.kind == TensorKind::slot ? kSlotPrefix : kWeightPrefix) + name;
  }
  [[nodiscard]] bool is_transposed_slot_or_weight(const StoredTensor& t) const {
    return layout_.transposed.contains(t.kind == TensorKind::slot ? t.name.substr(t.name.find('/') + 1) : t.name);
  }

  const std::map<std::string, ddh::FileTensor>& tensors_;
  const std::string what_;
  StoredLayout layout_;
  std::set<std::string> used_;
  std::vector<char> converted_;
};

// The name of the number with which a schedule counts its updates.
constexpr std::string_view kUpdates = "updates";

// The progress of a run after `step` steps like those that it has done.
void set_progress(TrainProgress& progress, int64_t step, const std::string& like) {
  const auto refuse = [&](const char* what) {
    ddh::fail(DDH_UNIMPLEMENTED, "'", like, "' has ", what, ", which an import can't set; take a run without, or give ",
              "the weights alone as train.init_from");
  };
  if (progress.step < 1)
    ddh::fail(DDH_FAILED_PRECONDITION, "'", like, "' is from before the first step; give a checkpoint of a later step");
  if (progress.phase != 0 || progress.phase_step != progress.step) refuse("phases");
  if (progress.optimizers.size() != 1) refuse("several optimizers");
  for (auto& schedule : progress.optimizers[0].schedules)
    for (auto& [name, value] : schedule) {
      if (name != kUpdates) refuse("a schedule with state of its own");
      value = static_cast<double>(step);
    }
  for (ProgramProgress& program : progress.programs) {
    const auto steps = static_cast<uint64_t>(progress.step);
    if (program.samples % steps != 0) refuse("steps of several sizes");
    program.samples = program.samples / steps * static_cast<uint64_t>(step);
  }
  for (int64_t& updates : progress.optimizers[0].param_steps) updates = updates == 0 ? 0 : step;
  progress.step = progress.phase_step = step;
  progress.evaluation_pending = false;
  progress.patience = {};
  progress.best.best = {};
}

void write_file(const fs::path& from, const fs::path& to, size_t index, Manifest& manifest, ForeignSource& source) {
  const Manifest::File& file = manifest.files[index];
  std::string header(file.header_bytes, '\0');  // the layout is the same
  RangeFile(from / file.name, RangeFile::Mode::read).read_at(0, header.data(), header.size());
  const RangeFile out(to / file.name, RangeFile::Mode::create);
  out.reserve(file.bytes);
  out.write_at(0, header.data(), header.size());
  for (Manifest::Tensor& tensor : manifest.tensors) {
    const StoredTensor& t = tensor.stored;
    if (t.file != index) continue;
    const char* const values = source.values(t);
    if (const std::optional<uint64_t> at = first_unusable(t, values, t.bytes))
      ddh::fail(DDH_DATA_LOSS, unusable_text(t, *at), " in ", source.what(),
                ", so no run can go on from it; import an earlier checkpoint");
    out.write_at(t.offset, values, t.bytes);
    for (uint64_t c = 0; c < t.chunks(); ++c) tensor.sums[c] = sum_of(values + c * kChunkBytes, t.chunk_bytes(c));
  }
  out.sync();
}

}  // namespace

ImportedCheckpoint import_checkpoint(const fs::path& from, const ConvertedFile& converted, const fs::path& like,
                                     const fs::path& run_dir) {
  Manifest manifest = open_checkpoint(like);
  const SafetensorsFile file(converted.path());
  const std::string what = "'" + from.string() + "'";
  if (converted.step < 0)
    ddh::fail(DDH_NOT_FOUND, what, ", ", converted.what,
              ", holds no optimizer state that is read (exp_avg and exp_avg_sq by ",
              "the names of parameters, and the step); give its weights as train.init_from");
  if (!converted.other_step.empty())
    ddh::fail(DDH_UNIMPLEMENTED, what, " has parameters with different numbers of updates, such as '",
              converted.other_step, "', which an import can't set; give its weights as train.init_from");
  for (const Manifest::Tensor& tensor : manifest.tensors)
    if (tensor.stored.kind == TensorKind::strategy)
      ddh::fail(DDH_UNIMPLEMENTED, "'", like.string(), "' holds state of its strategy, '", tensor.stored.name,
                "', which an import can't set; take a run of another strategy, or give the weights alone as ",
                "train.init_from");
  set_progress(manifest.progress, converted.step, like.string());
  const int64_t step = manifest.progress.step;
  ImportedCheckpoint out{checkpoint_folder(run_dir, step), {}};
  std::error_code ec;
  if (step < 1) ddh::fail(DDH_DATA_LOSS, what, " says that its optimizer has done ", step, " steps");
  if (fs::exists(out.folder, ec))
    ddh::fail(DDH_ALREADY_EXISTS, "'", out.folder.string(),
              "' exists already and is not overwritten; give another --out");
  try {
    const fs::path partial = begin_checkpoint(run_dir, step);
    ForeignSource source(file, manifest, what);
    if (!source.layout().name.empty()) out.notes.push_back(layout_note(what, source.layout()));
    for (size_t f = 0; f < manifest.files.size(); ++f) write_file(like, partial, f, manifest, source);
    source.require_no_surplus();
    commit_checkpoint(run_dir, manifest);
  } catch (...) {
    drop_checkpoint(run_dir, step);
    throw;
  }
  return out;
}

}  // namespace ddhost
