// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/checkpoint_read.hpp"

#include <algorithm>

#include "engine/services/buffer_values.hpp"
#include "engine/weights/chunk_reader.hpp"
#include "engine/weights/state_pieces.hpp"
#include "engine/weights/together.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

bool is_same(const StoredTensor& a, const StoredTensor& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape;
}

void read_pieces(ChunkReader& reader, const Manifest& manifest, const StateSource& source,
                 const CheckpointLayout& layout, Staging& staging, ReadCount& count) {
  PieceAccess access(source, layout, staging);
  std::vector<char> values;
  for (const StatePiece& piece : state_pieces(source, layout)) {
    const StoredTensor& stored = layout.tensors()[piece.tensor];
    const Manifest::Tensor& tensor = *manifest.find(stored.name);
    const uint64_t width = ddh_dtype_bytes(stored.dtype), most = PieceAccess::kMostBytes / width;
    count.needed += piece.numel * width;
    for (uint64_t begin = 0; begin < piece.numel; begin += most) {
      const uint64_t numel = std::min(most, piece.numel - begin);
      values.resize(std::max<size_t>(values.size(), numel * width));
      reader.read(tensor, (piece.offset + begin) * width, numel * width, values.data());
      access.write(piece, begin, numel, values.data());
    }
  }
}

void read_buffers(ChunkReader& reader, const Manifest& manifest, const ddh_model_desc& model, Staging& staging,
                  ReadCount& count) {
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model.buffers[b];
    if (buffer.numel == 0) continue;
    std::vector<char> values(bytes_of(buffer));
    count.needed += values.size();
    reader.read(*manifest.find(buffer.name), 0, values.size(), values.data());
    set_buffer_values(buffer, values.data(), staging);
  }
}

}  // namespace

void check_same_tensors(const Manifest& manifest, const CheckpointLayout& layout, const std::string& checkpoint) {
  for (const StoredTensor& wanted : layout.tensors()) {
    const Manifest::Tensor* const found = manifest.find(wanted.name);
    if (found == nullptr)
      ddh::fail(DDH_FAILED_PRECONDITION, "checkpoint '", checkpoint, "' has no tensor '", wanted.name,
                "', which this run needs; it belongs to another model or optimizer");
    if (!is_same(found->stored, wanted))
      ddh::fail(DDH_FAILED_PRECONDITION, "tensor '", wanted.name, "' of checkpoint '", checkpoint,
                "' has another shape or dtype than in this run; it belongs to another model or optimizer");
  }
  if (manifest.tensors.size() == layout.tensors().size()) return;
  for (const Manifest::Tensor& found : manifest.tensors) {
    const auto same_name = [&](const StoredTensor& t) { return t.name == found.stored.name; };
    if (std::none_of(layout.tensors().begin(), layout.tensors().end(), same_name))
      ddh::fail(DDH_FAILED_PRECONDITION, "checkpoint '", checkpoint, "' has the tensor '", found.stored.name,
                "', which this run does not have; it belongs to another model or optimizer");
  }
}

std::string read_checkpoint(const fs::path& folder, const Manifest& manifest, const StateSource& source,
                            const CheckpointLayout& layout, const Comm& comm, Staging& staging, ReadCount& count) {
  const FailureText mine = failure_of([&] {
    staging.device().synchronize(nullptr);  // initial values may still be in transfer
    ChunkReader reader(folder, manifest);
    read_pieces(reader, manifest, source, layout, staging, count);
    read_buffers(reader, manifest, source.model, staging, count);
    count.read = reader.bytes_read();
  });
  const FailureText first = first_failure(comm, mine, "checkpoint: read");
  if (first[0] != '\0') return first.data();
  source.strategy.call(PluginCall::kStateCommit, source.table.state_commit);
  return "";
}

}  // namespace ddhost
