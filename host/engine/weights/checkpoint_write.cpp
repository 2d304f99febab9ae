// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/checkpoint_write.hpp"

#include <algorithm>
#include <cstring>

#include "engine/services/buffer_values.hpp"
#include "engine/weights/checkpoint_folder.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// Only one rank has the checksum of a chunk and the others have 0, so the sum over the ranks is the checksum.
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

void fill(Manifest& manifest, const CheckpointLayout& layout, const std::vector<uint64_t>& sums) {
  for (const CheckpointLayout::File& f : layout.files())
    manifest.files.push_back({f.name, f.bytes, f.header.size(), sum_of(f.header.data(), f.header.size())});
  for (const StoredTensor& t : layout.tensors()) {
    const auto first = sums.begin() + static_cast<std::ptrdiff_t>(t.first_chunk);
    manifest.tensors.push_back({t, {first, first + static_cast<std::ptrdiff_t>(t.chunks())}});
    if (t.kind == TensorKind::param) manifest.param_names.push_back(t.name);
  }
}

uint64_t bytes_of_piece(const StatePiece& piece, const CheckpointLayout& layout) {
  return piece.numel * ddh_dtype_bytes(layout.tensors()[piece.tensor].dtype);
}

// What this rank writes.
uint64_t bytes_of_rank(const std::vector<StatePiece>& pieces, const ddh_model_desc& model,
                       const CheckpointLayout& layout, bool is_first) {
  uint64_t bytes = 0;
  for (const StatePiece& piece : pieces)
    if (piece.is_first_replica) bytes += bytes_of_piece(piece, layout);
  for (uint32_t b = 0; is_first && b < model.n_buffers; ++b) bytes += bytes_of(*model.buffers[b]);
  return bytes;
}

}  // namespace

CheckpointSave::CheckpointSave(SaveSettings settings, Manifest manifest, const StateSource& source,
                               const CheckpointLayout& layout, const Comm& comm, Staging& staging, Memory& memory)
    : settings_(std::move(settings)), manifest_(std::move(manifest)), layout_(layout), comm_(comm), memory_(memory) {
  try {
    std::vector<StatePiece> pieces;
    together(comm, "checkpoint: make the files", [&] {
      staging.device().synchronize(nullptr);  // the last updates
      pieces = state_pieces(source, layout);
      if (comm.rank() == 0) make_files(begin_checkpoint(settings_.run_dir, step()), layout);
    });
    check_pieces_once(pieces, source, layout, comm);
    together(comm, "checkpoint: copy", [&] {
      writer_.emplace(partial_folder(settings_.run_dir, step()), layout);
      copy_or_write(source, staging, pieces);
    });
    if (settings_.in_background) {
      thread_ = std::thread([this] {
        copy_rest();
        write_copy();
      });
    } else {
      is_copied_ = true;
      write_copy();
    }
  } catch (...) {
    drop();
    throw;
  }
}

CheckpointSave::~CheckpointSave() { drop(); }

void CheckpointSave::drop() noexcept {
  if (thread_.joinable()) thread_.join();
  release_copy();
  if (!committed_ && comm_.rank() == 0) drop_checkpoint(settings_.run_dir, step());
}

void CheckpointSave::copy_or_write(const StateSource& source, Staging& staging, const std::vector<StatePiece>& pieces) {
  const bool is_first = comm_.rank() == 0;
  if (settings_.in_background) {
    const uint64_t all = bytes_of_rank(pieces, source.model, layout_, is_first);
    copy_bytes_ = settings_.most_bytes == 0 ? all : std::min(all, settings_.most_bytes);
    copy_.reset(new char[copy_bytes_]);  // without zeros, which would be written twice
    memory_.account(DDH_TAG_COMM, static_cast<int64_t>(copy_bytes_), /*alias=*/false);
  }
  PieceAccess access(source, layout_, staging);
  for (const StatePiece& piece : pieces) {
    if (!piece.is_first_replica || copy_later(piece, staging)) continue;
    const uint64_t width = ddh_dtype_bytes(layout_.tensors()[piece.tensor].dtype);
    take(piece.tensor, piece.offset * width, piece.numel * width,
         [&](uint64_t at, uint64_t bytes) { return access.read(piece, at / width - piece.offset, bytes / width); });
  }
  for (uint32_t b = 0; is_first && b < source.model.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *source.model.buffers[b];
    if (buffer.numel == 0) continue;
    const auto* const values = static_cast<const char*>(buffer_values(buffer, staging));
    take(layout_.buffer(b), 0, bytes_of(buffer), [&](uint64_t at, uint64_t) { return values + at; });
  }
}

// Writes bytes of a tensor to the copy, or to the file if the copy has no room. `read(at, bytes)` returns them.
template <class Read>
void CheckpointSave::take(size_t tensor, uint64_t begin, uint64_t bytes, Read&& read) {
  if (copy_ == nullptr || bytes > copy_bytes_ - copy_used_) return writer_->write(tensor, begin, begin + bytes, read);
  copied_.push_back({tensor, begin, bytes, copy_used_, nullptr});
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t n = std::min(kChunkBytes, bytes - done);
    std::memcpy(copy_.get() + copy_used_ + done, read(begin + done, n), n);
    done += n;
  }
  copy_used_ += bytes;
}

// Whether the thread copies this piece: it lies in memory, in the dtype of the file, and the copy has room for it.
bool CheckpointSave::copy_later(const StatePiece& piece, const Staging& staging) {
  const int32_t dtype = layout_.tensors()[piece.tensor].dtype;
  if (copy_ == nullptr || piece.data == nullptr || piece.dtype != dtype || !staging.is_here(piece.data)) return false;
  const uint64_t width = ddh_dtype_bytes(dtype), bytes = piece.numel * width;
  if (bytes > copy_bytes_ - copy_used_) return false;
  copied_.push_back({piece.tensor, piece.offset * width, bytes, copy_used_, static_cast<const char*>(piece.data)});
  copy_used_ += bytes;
  return true;
}

void CheckpointSave::copy_rest() {
  for (const Copied& part : copied_)
    if (part.from != nullptr) std::memcpy(copy_.get() + part.place, part.from, part.bytes);
  is_copied_.store(true, std::memory_order_release);
  is_copied_.notify_all();
}

void CheckpointSave::write_copy() {
  failure_ = failure_of([&] {
    for (const Copied& part : copied_)
      writer_->write(part.tensor, part.begin, part.begin + part.bytes,
                     [&](uint64_t at, uint64_t) { return copy_.get() + part.place + (at - part.begin); });
    writer_->sync();
  });
  written_.store(true, std::memory_order_release);
}

void CheckpointSave::release_copy() {
  if (copy_ == nullptr) return;
  memory_.account(DDH_TAG_COMM, -static_cast<int64_t>(copy_bytes_), /*alias=*/false);
  copy_.reset();
}

void CheckpointSave::finish() {
  if (thread_.joinable()) thread_.join();
  release_copy();
  const FailureText first = first_failure(comm_, failure_, "checkpoint: write");
  if (first[0] != '\0') ddh::fail(DDH_RESOURCE_EXHAUSTED, first.data());
  together(comm_, "checkpoint: checksums", [&] { writer_->sum_shared_chunks(); });
  const std::vector<uint64_t> sums = of_all_ranks(writer_->sums(), comm_);
  together(comm_, "checkpoint: commit", [&] {
    if (comm_.rank() != 0) return;
    fill(manifest_, layout_, sums);
    commit_checkpoint(settings_.run_dir, manifest_);
  });
  committed_ = true;
}

}  // namespace ddhost
