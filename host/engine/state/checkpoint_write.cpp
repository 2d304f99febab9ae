// SPDX-License-Identifier: Apache-2.0
#include "engine/state/checkpoint_tensors.hpp"

#include <algorithm>
#include <cstring>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/memory_folder.hpp"
#include "engine/services/comm/gather.hpp"
#include "engine/services/memory/staging.hpp"
#include "engine/state/codec_state.hpp"
#include "engine/state/part_moves.hpp"
#include "engine/state/piece_copy.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// `is_part`: other hosts have the rest, which takes no space here.
void make_files(const fs::path& folder, const CheckpointLayout& layout, bool is_part) {
  for (const CheckpointLayout::File& f : layout.files()) {
    const RangeFile file(folder / f.name, RangeFile::Mode::create);
    if (is_part)
      file.resize(f.bytes);
    else
      file.reserve(f.bytes);
    file.write_at(0, f.header.data(), f.header.size());
  }
}

void fill(Manifest& manifest, const CheckpointLayout& layout, const std::vector<uint64_t>& sums) {
  manifest.layouts = layout.of_other_programs();
  for (const CheckpointLayout::File& f : layout.files())
    manifest.files.push_back({f.name, f.bytes, f.header.size(), sum_of(f.header.data(), f.header.size())});
  for (const StoredTensor& t : layout.tensors()) {
    const auto first = sums.begin() + static_cast<std::ptrdiff_t>(t.first_chunk);
    manifest.tensors.push_back({t, {first, first + static_cast<std::ptrdiff_t>(t.chunks())}});
    if (t.kind == TensorKind::param) manifest.param_names.push_back(t.name);
  }
}

// The size of a copy of all that this rank writes.
uint64_t copy_bytes_of_rank(const std::vector<StatePiece>& pieces, const ddh_model_desc& model,
                            const CheckpointLayout& layout, bool is_first) {
  CopyPlaces places(layout);
  for (const StatePiece& piece : pieces)
    if (piece.is_first_replica()) places.take(piece.tensor, stored_begin(piece, layout), stored_bytes(piece, layout));
  for (uint32_t b = 0; is_first && b < model.n_buffers; ++b)
    places.take(layout.buffer(b), 0, bytes_of(*model.buffers[b]));
  return places.used();
}

// Whether a chunk is filled by several pieces, on any rank. [collective]
bool chunks_are_shared(const std::vector<StatePiece>& pieces, const CheckpointLayout& layout, const Comm& comm) {
  const char mine = std::any_of(pieces.begin(), pieces.end(), [&](const StatePiece& piece) {
    const uint64_t begin = stored_begin(piece, layout), end = begin + stored_bytes(piece, layout);
    return begin % kChunkBytes != 0 || (end % kChunkBytes != 0 && end != layout.tensors()[piece.tensor].bytes);
  });
  std::string all(static_cast<size_t>(comm.world_size()), '\0');
  comm.all_gather_bytes(&mine, all.data(), 1, "checkpoint: shared chunks");
  return all.find('\1') != std::string::npos;
}

// The bytes of the copy that is written behind training; the DoubleBuffer follows it.
uint64_t copy_bytes(const SaveSettings& settings, const std::vector<StatePiece>& pieces, const ddh_model_desc& model,
                    const CheckpointLayout& layout, bool is_first) {
  if (!settings.in_background) return 0;
  const uint64_t all = copy_bytes_of_rank(pieces, model, layout, is_first);
  const uint64_t bytes = settings.most_bytes == 0 ? all : std::min(all, settings.most_bytes);
  return (bytes + DirectFile::kBlockBytes - 1) / DirectFile::kBlockBytes * DirectFile::kBlockBytes;
}

}  // namespace

uint64_t copy_buffer_bytes() { return DoubleBuffer::kBytes + DirectFile::kBlockBytes; }

void reserve_copy(CopyMemory& memory, const SaveSettings& settings, const StateSource& source,
                  const CheckpointLayout& layout, bool is_first_rank) {
  const std::vector<StatePiece> pieces = state_pieces(source, layout);
  memory.at_least(copy_bytes(settings, pieces, source.model, layout, is_first_rank) + DoubleBuffer::kBytes);
}

uint64_t written_bytes(const StateSource& source, const CheckpointLayout& layout, bool is_first_rank) {
  return copy_bytes_of_rank(state_pieces(source, layout), source.model, layout, is_first_rank);
}

CheckpointSave::CheckpointSave(SaveSettings settings, Manifest manifest, const StateSource& source,
                               const CheckpointLayout& layout, const Comm& comm, Staging& staging, CopyMemory& memory)
    : settings_(std::move(settings)), manifest_(std::move(manifest)), layout_(layout), comm_(comm), memory_(memory) {
  try {
    std::vector<StatePiece> pieces;
    together(comm, "checkpoint: make the files", [&] {
      staging.device().synchronize(nullptr);  // the last updates
      comm.require_healthy();
      pieces = state_pieces(source, layout);
      if (!makes_files()) return;
      const fs::path& memory_of = settings_.memory_of;  // somebody may have removed the folder
      if (!memory_of.empty() && make_memory_folder(memory_of) && settings_.by_host)
        claim_memory_folder(memory_of, settings_.by_host->run_id);
      make_files(begin_checkpoint(settings_.run_dir, step()), layout, /*is_part=*/settings_.by_host.has_value());
    });
    check_pieces_once(pieces, source, layout, comm);
    shared_sums_begun_ = settings_.by_host || !chunks_are_shared(pieces, layout, comm);
    together(comm, "checkpoint: copy", [&] {
      writer_.emplace(partial_folder(settings_.run_dir, step()), layout,
                      settings_.by_host ? RankWriter::Sums::of_ranges : RankWriter::Sums::of_chunks);
      copy_or_write(source, staging, pieces);
      if (settings_.codec != nullptr)
        save_codec_state(*settings_.codec, partial_folder(settings_.run_dir, step()), comm.rank());
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
  if (!committed_ && makes_files()) drop_checkpoint(settings_.run_dir, step());
}

void CheckpointSave::copy_or_write(const StateSource& source, Staging& staging, const std::vector<StatePiece>& pieces) {
  const bool is_first = comm_.rank() == 0;
  const uint64_t copied = copy_bytes(settings_, pieces, source.model, layout_, is_first);
  char* const memory = memory_.at_least(copied + DoubleBuffer::kBytes);
  if (copied > 0) copy_.emplace(layout_, memory, copied);
  DoubleBuffer past_copy(layout_, memory + copied, *writer_);
  PieceAccess access(source, layout_, staging);
  for (const StatePiece& piece : pieces) {
    if (!piece.is_first_replica() || copy_later(piece, staging)) continue;
    const uint64_t width = ddh_dtype_bytes(layout_.tensors()[piece.tensor].dtype);
    take(past_copy, piece.tensor, piece.offset * width, piece.numel * width,
         [&](uint64_t at, uint64_t bytes) { return access.read(piece, at / width - piece.offset, bytes / width); });
  }
  for (uint32_t b = 0; is_first && b < source.model.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *source.model.buffers[b];
    if (buffer.numel == 0) continue;
    const auto* const values = static_cast<const char*>(buffer_values(buffer, staging));
    take(past_copy, layout_.buffer(b), 0, bytes_of(buffer), [&](uint64_t at, uint64_t) { return values + at; });
  }
  past_copy.finish();
}

// Copies bytes of a tensor. What the copy has no room for goes through `past_copy`. `read(at, bytes)` returns them.
template <class Read>
void CheckpointSave::take(DoubleBuffer& past_copy, size_t tensor, uint64_t begin, uint64_t bytes, Read&& read) {
  const bool is_copied = copy_ && copy_->has_room(tensor, begin, bytes);
  for (uint64_t at = begin, end = begin + bytes; at < end;) {
    const uint64_t n = std::min(end, (at / kChunkBytes + 1) * kChunkBytes) - at;  // to the end of a chunk
    std::memcpy(is_copied ? copy_->add(tensor, at, n) : past_copy.add(tensor, at, n), read(at, n), n);
    at += n;
  }
}

// Whether the thread copies this piece: it lies in memory, in the dtype of the file, and the copy has room for it.
bool CheckpointSave::copy_later(const StatePiece& piece, const Staging& staging) {
  const int32_t dtype = layout_.tensors()[piece.tensor].dtype;
  if (!copy_ || piece.data == nullptr || piece.dtype != dtype || !staging.is_here(piece.data)) return false;
  const uint64_t begin = stored_begin(piece, layout_), bytes = stored_bytes(piece, layout_);
  if (!copy_->has_room(piece.tensor, begin, bytes)) return false;
  later_.push_back({copy_->add(piece.tensor, begin, bytes), static_cast<const char*>(piece.data), bytes});
  return true;
}

void CheckpointSave::copy_rest() {
  for (const LaterCopy& part : later_) std::memcpy(part.to, part.from, part.bytes);
  is_copied_.store(true, std::memory_order_release);
  is_copied_.notify_all();
}

void CheckpointSave::write_copy() {
  failure_ = failure_of([&] {
    if (copy_) copy_->write_to(*writer_);
    writer_->sync();
  });
  written_.store(true, std::memory_order_release);
}

bool CheckpointSave::begin_shared_sums() {
  if (shared_sums_begun_) return false;
  shared_sums_begun_ = true;
  if (thread_.joinable()) thread_.join();
  written_.store(false, std::memory_order_release);
  thread_ = std::thread([this] {
    if (failure_[0] == '\0') failure_ = failure_of([&] { writer_->sum_shared_chunks(); });
    written_.store(true, std::memory_order_release);
  });
  return true;
}

void CheckpointSave::require_usable(const std::string& reason) const {
  std::vector<UnusableValue> all(static_cast<size_t>(comm_.world_size()));
  comm_.all_gather_bytes(&writer_->unusable(), all.data(), sizeof(UnusableValue), "checkpoint: finite values");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].tensor < 0) continue;
    const StoredTensor& tensor = layout_.tensors()[static_cast<size_t>(all[rank].tensor)];
    ddh::fail(DDH_DATA_LOSS, "the checkpoint of step ", step(),
              " is not saved: ", unusable_text(tensor, all[rank].element), " (rank ", rank,
              "): ", tensor.kind == TensorKind::buffer ? kUnusableBufferReason : reason);
  }
}

void CheckpointSave::finish(const std::string& reason) {
  if (thread_.joinable()) thread_.join();
  const FailureText first = first_failure(comm_, failure_, "checkpoint: write");
  if (first[0] != '\0') ddh::fail(DDH_RESOURCE_EXHAUSTED, first.data());
  require_usable(reason);
  if (settings_.by_host) return commit_parts();
  if (!shared_sums_begun_) together(comm_, "checkpoint: checksums", [&] { writer_->sum_shared_chunks(); });
  // Only one rank has the checksum of a chunk and the others have 0.
  const std::vector<uint64_t> sums = sums_over_ranks(comm_, writer_->sums(), "checkpoint: checksums");
  together(comm_, "checkpoint: commit", [&] {
    if (comm_.rank() != 0) return;
    fill(manifest_, layout_, sums);
    commit_checkpoint(settings_.run_dir, manifest_);
  });
  committed_ = true;
}

Part CheckpointSave::own_part(uint64_t manifest_sum, PartFiles& files) const {
  const int32_t rank = comm_.rank();
  const HostSave& of = *settings_.by_host;
  Part part{{of.run_id, of.first_run, step(), comm_.world_size(), rank, manifest_sum}, writer_->ranges()};
  const auto add_file = [&](uint32_t file) {
    for (const PartRange& range : files.ranges_of(file)) part.ranges.push_back(range);
  };
  for (uint32_t f = 0; rank == 0 && f < layout_.files().size(); ++f) {
    const std::string& header = layout_.files()[f].header;
    for (uint64_t at = 0; at < header.size(); at += kChunkBytes) {
      const uint64_t bytes = std::min(kChunkBytes, header.size() - at);
      part.ranges.push_back({f, 0, at, bytes, sum_of(header.data() + at, bytes)});
    }
  }
  if (settings_.codec == nullptr) return part;
  if (rank == 0) add_file(files.codec_file(-1));
  add_file(files.codec_file(rank));
  return part;
}

// A host keeps its older parts until all hosts have these, so that there is always one checkpoint of which all are there.
void CheckpointSave::commit_parts() {
  fill(manifest_, layout_, std::vector<uint64_t>(layout_.chunks()));
  std::string text = comm_.rank() == 0 ? manifest_text(manifest_) : "";
  broadcast_text(comm_, text, 0, "checkpoint: manifest");
  const fs::path folder = partial_folder(settings_.run_dir, step());
  together(comm_, "checkpoint: parts", [&] {
    if (makes_files()) write_durably(folder / kPartsManifest, text);
    PartFiles files(folder, manifest_);
    write_part(folder, own_part(sum_of(text.data(), text.size()), files));
  });
  if (settings_.by_host->copies > 1) {
    const std::string damage = move_parts(comm_, moves_to_next_host(*settings_.by_host->nodes), folder, manifest_);
    if (!damage.empty()) ddh::fail(DDH_RESOURCE_EXHAUSTED, damage);  // as where a rank can't write
  }
  together(comm_, "checkpoint: commit", [&] {
    if (makes_files()) publish_folder(folder, checkpoint_folder(settings_.run_dir, step()));
  });
  committed_ = true;
}

}  // namespace ddhost
