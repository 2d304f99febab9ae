// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/checkpoint_write.hpp"

#include <algorithm>

#include "engine/services/buffer_values.hpp"
#include "engine/weights/checkpoint_folder.hpp"
#include "engine/weights/durable.hpp"
#include "engine/weights/state_pieces.hpp"
#include "engine/weights/together.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// A chunk that more than one piece fills: who wrote its first byte reads it again, when all have written.
struct SharedChunk {
  size_t tensor;
  uint64_t chunk;
};

class RankWriter {
 public:
  RankWriter(const fs::path& folder, const CheckpointLayout& layout) : layout_(layout), sums_(layout.chunks()) {
    for (const CheckpointLayout::File& file : layout.files())
      files_.emplace_back(folder / file.name, RangeFile::Mode::write);
  }

  // Bytes [begin, end) of a tensor, from `read(begin, bytes)`. Whole chunks are summed on the way.
  template <class Read>
  void write(size_t tensor, uint64_t begin, uint64_t end, Read&& read) {
    const StoredTensor& t = layout_.tensors()[tensor];
    for (uint64_t at = begin; at < end;) {
      const uint64_t chunk = at / kChunkBytes, chunk_begin = chunk * kChunkBytes;
      const uint64_t chunk_end = chunk_begin + t.chunk_bytes(chunk), stop = std::min(end, chunk_end);
      const char* const values = read(at, stop - at);
      files_[t.file].write_at(t.offset + at, values, stop - at);
      if (at == chunk_begin && stop == chunk_end) {
        sums_[t.first_chunk + chunk] = sum_of(values, stop - at);
      } else if (at == chunk_begin) {
        shared_.push_back({tensor, chunk});
      }
      at = stop;
    }
  }
  void sync() const {
    for (const RangeFile& file : files_) file.sync();
  }
  // When all ranks have written.
  void sum_shared_chunks() {
    std::vector<char> bytes(shared_.empty() ? 0 : kChunkBytes);
    for (const SharedChunk& s : shared_) {
      const StoredTensor& t = layout_.tensors()[s.tensor];
      files_[t.file].read_at(t.offset + s.chunk * kChunkBytes, bytes.data(), t.chunk_bytes(s.chunk));
      sums_[t.first_chunk + s.chunk] = sum_of(bytes.data(), t.chunk_bytes(s.chunk));
    }
  }
  // Of the chunks that this rank summed; 0 elsewhere.
  [[nodiscard]] const std::vector<uint64_t>& sums() const { return sums_; }

 private:
  const CheckpointLayout& layout_;
  std::vector<RangeFile> files_;
  std::vector<uint64_t> sums_;
  std::vector<SharedChunk> shared_;
};

// One rank has summed each chunk, so that the sum over the ranks is it.
std::vector<uint64_t> of_all_ranks(const std::vector<uint64_t>& mine, const Comm& comm) {
  constexpr size_t kPiece = 1 << 14;  // so that no rank needs room for the sums of all others at once
  const auto world_size = static_cast<size_t>(comm.world_size());
  std::vector<uint64_t> out(mine.size()), gathered;
  for (size_t begin = 0; begin < mine.size(); begin += kPiece) {
    const size_t n = std::min(kPiece, mine.size() - begin);
    gathered.resize(n * world_size);
    comm.all_gather_bytes(&mine[begin], gathered.data(), n * sizeof(uint64_t), "checkpoint: checksums");
    for (size_t i = 0; i < gathered.size(); ++i) out[begin + i % n] += gathered[i];
  }
  return out;
}

void make_files(const fs::path& folder, const CheckpointLayout& layout) {
  for (const CheckpointLayout::File& f : layout.files()) {
    const RangeFile file(folder / f.name, RangeFile::Mode::create);
    file.reserve(f.bytes);
    file.write_at(0, f.header.data(), f.header.size());
  }
}

void write_pieces(RankWriter& writer, const std::vector<StatePiece>& pieces, PieceAccess& access,
                  const CheckpointLayout& layout) {
  for (const StatePiece& piece : pieces) {
    if (!piece.is_first_replica) continue;
    const uint64_t width = ddh_dtype_bytes(layout.tensors()[piece.tensor].dtype), first = piece.offset * width;
    writer.write(piece.tensor, first, first + piece.numel * width,
                 [&](uint64_t at, uint64_t bytes) { return access.read(piece, (at - first) / width, bytes / width); });
  }
}

void write_buffers(RankWriter& writer, const ddh_model_desc& model, const CheckpointLayout& layout, Staging& staging) {
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model.buffers[b];
    if (buffer.numel == 0) continue;
    const auto* const values = static_cast<const char*>(buffer_values(buffer, staging));
    writer.write(layout.buffer(b), 0, bytes_of(buffer), [&](uint64_t at, uint64_t) { return values + at; });
  }
}

void fill(Manifest& manifest, const CheckpointLayout& layout, const std::vector<uint64_t>& sums) {
  for (const CheckpointLayout::File& f : layout.files())
    manifest.files.push_back({f.name, f.bytes, f.header.size(), sum_of(f.header.data(), f.header.size())});
  for (const StoredTensor& t : layout.tensors()) {
    const auto first = sums.begin() + static_cast<std::ptrdiff_t>(t.first_chunk);
    manifest.tensors.push_back({t, {first, first + static_cast<std::ptrdiff_t>(t.chunks())}});
    if (t.kind == TensorKind::param) manifest.param_names.push_back(t.name);
  }
}

}  // namespace

void write_checkpoint(const fs::path& run_dir, Manifest manifest, const StateSource& source,
                      const CheckpointLayout& layout, const Comm& comm, Staging& staging) {
  const int64_t step = manifest.progress.step;
  const bool is_first = comm.rank() == 0;
  try {
    std::vector<StatePiece> pieces;
    together(comm, "checkpoint: make the files", [&] {
      staging.device().synchronize(nullptr);  // the last updates
      pieces = state_pieces(source, layout);
      if (is_first) make_files(begin_checkpoint(run_dir, step), layout);
    });
    check_pieces_once(pieces, source, layout, comm);
    std::optional<RankWriter> writer;
    together(comm, "checkpoint: write", [&] {
      writer.emplace(partial_folder(run_dir, step), layout);
      PieceAccess access(source, layout, staging);
      write_pieces(*writer, pieces, access, layout);
      if (is_first) write_buffers(*writer, source.model, layout, staging);
      writer->sync();
    });
    together(comm, "checkpoint: checksums", [&] { writer->sum_shared_chunks(); });
    const std::vector<uint64_t> sums = of_all_ranks(writer->sums(), comm);
    together(comm, "checkpoint: commit", [&] {
      if (!is_first) return;
      fill(manifest, layout, sums);
      commit_checkpoint(run_dir, manifest);
    });
  } catch (...) {
    if (is_first) drop_checkpoint(run_dir, step);
    throw;
  }
}

}  // namespace ddhost
