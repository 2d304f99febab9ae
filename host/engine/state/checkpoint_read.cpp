// SPDX-License-Identifier: Apache-2.0
#include "engine/state/checkpoint_tensors.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <span>

#include "checkpoint/chunk_reader.hpp"
#include "engine/services/comm/together.hpp"
#include "engine/services/memory/staging.hpp"
#include "engine/state/state_pieces.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

bool is_same(const StoredTensor& a, const StoredTensor& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape;
}

// A piece, and the hash of what was written to it.
struct Written {
  StatePiece piece;
  uint64_t hash = 0;
};
using Pieces = std::span<Written>;

constexpr uint64_t kLeastBytesOfTwo = uint64_t{64} << 20;  // below, a second thread does not pay

class PieceReader {
 public:
  PieceReader(const fs::path& folder, const Manifest& manifest, const StateSource& source,
              const CheckpointLayout& layout, Staging& staging)
      : folder_(folder), manifest_(manifest), source_(source), layout_(layout), staging_(staging) {}

  // While one thread copies values to their place, the other one waits for the disk. [main]
  ReadCount read() {
    std::vector<Written>& pieces = written_;
    for (const StatePiece& piece : state_pieces(source_, layout_)) pieces.push_back({piece});
    // Only the main thread may write where state_write or a device is needed.
    const auto in_memory = std::stable_partition(pieces.begin(), pieces.end(), [&](const Written& w) {
      return w.piece.data == nullptr || !staging_.is_here(w.piece.data);
    });
    const auto second = pieces.begin() + static_cast<std::ptrdiff_t>(half_of(pieces, in_memory - pieces.begin()));
    if (second == pieces.end()) return read(pieces);
    std::future<ReadCount> other = std::async([&] { return read({second, pieces.end()}); });
    const ReadCount mine = read({pieces.begin(), second}), theirs = other.get();
    return {mine.needed + theirs.needed, mine.read + theirs.read};
  }

  // Called after state_commit: the strategy's state must have the values that were read. [main]
  void require_written() {
    std::stable_sort(written_.begin(), written_.end(), [](const Written& a, const Written& b) {
      return a.piece.tensor != b.piece.tensor ? a.piece.tensor < b.piece.tensor : a.piece.offset < b.piece.offset;
    });
    const std::vector<StatePiece> now = state_pieces(source_, layout_);
    if (now.size() != written_.size()) fail(written_.empty() ? now.front() : written_.front().piece);
    PieceAccess access(source_, layout_, staging_);
    for (size_t i = 0; i < now.size(); ++i) {
      const StatePiece& before = written_[i].piece;
      if (now[i].tensor != before.tensor || now[i].offset != before.offset || now[i].numel != before.numel ||
          now[i].dtype != before.dtype)
        fail(before);
      uint64_t hash = 0;
      for_each_part(now[i], [&](uint64_t begin, uint64_t n) {
        hash += place_hash(access.read_kept(now[i], begin, n), now[i].offset + begin, n, ddh_dtype_bytes(now[i].dtype));
      });
      if (hash != written_[i].hash) fail(before);
    }
  }

 private:
  [[noreturn]] void fail(const StatePiece& piece) const {
    source_.strategy.caller().blame(PluginCall::kStateCommit, {}, "has other values of '",
                                    layout_.tensors()[piece.tensor].name, "' in its state than the checkpoint '",
                                    folder_.string(),
                                    "', which was written to the entries of state; they must be the values that the ",
                                    "strategy trains, not a copy");
  }

  // The first of the pieces that the second thread reads, not before `least`.
  size_t half_of(Pieces pieces, std::ptrdiff_t least) const {
    uint64_t all = 0, seen = 0;
    for (const Written& w : pieces) all += stored_bytes(w.piece, layout_);
    if (all < kLeastBytesOfTwo) return pieces.size();
    size_t at = 0;
    while (at < pieces.size() && (seen < all / 2 || at < static_cast<size_t>(least)))
      seen += stored_bytes(pieces[at++].piece, layout_);
    return at;
  }

  ReadCount read(Pieces pieces) const {
    try {
      return read_all(pieces);
    } catch (...) {
      has_failed_ = true;
      throw;
    }
  }

  ReadCount read_all(Pieces pieces) const {
    ReadCount count;
    ChunkReader reader(folder_, manifest_, ChunkReader::Values::usable);
    PieceAccess access(source_, layout_, staging_);
    for (Written& written : pieces) {
      if (has_failed_) break;
      const StatePiece& piece = written.piece;
      const StoredTensor& stored = layout_.tensors()[piece.tensor];
      const uint64_t width = ddh_dtype_bytes(stored.dtype);
      const auto take = [&](uint64_t at, const char* values, uint64_t bytes) {
        const uint64_t begin = at / width - piece.offset, numel = bytes / width;
        const char* const kept = access.write(piece, begin, numel, values);
        written.hash += place_hash(kept, piece.offset + begin, numel, ddh_dtype_bytes(piece.dtype));
      };
      reader.for_each_part(*manifest_.find(stored.name), stored_begin(piece, layout_), stored_bytes(piece, layout_),
                           take);
      count.needed += stored_bytes(piece, layout_);
    }
    count.read = reader.bytes_read();
    return count;
  }

  const fs::path& folder_;
  const Manifest& manifest_;
  const StateSource& source_;
  const CheckpointLayout& layout_;
  Staging& staging_;
  std::vector<Written> written_;
  mutable std::atomic<bool> has_failed_ = false;  // one of the threads: the other one stops
};

void read_buffers(const fs::path& folder, const Manifest& manifest, const ddh_model_desc& model, Staging& staging,
                  ReadCount& count) {
  // The model says which buffers may hold any value: manifests of earlier versions do not.
  ChunkReader usable(folder, manifest, ChunkReader::Values::usable);
  std::optional<ChunkReader> any;
  for (uint32_t b = 0; b < model.n_buffers; ++b) {
    const ddh_buffer_desc& buffer = *model.buffers[b];
    if (buffer.numel == 0) continue;
    std::vector<char> values(bytes_of(buffer));
    count.needed += values.size();
    const bool takes_any = buffer.sync == DDH_SYNC_NEVER;
    if (takes_any && !any) any.emplace(folder, manifest);
    (takes_any ? *any : usable).read(*manifest.find(buffer.name), 0, values.size(), values.data());
    set_buffer_values(buffer, values.data(), staging);
  }
  count.read += usable.bytes_read() + (any ? any->bytes_read() : 0);
}

}  // namespace

void check_same_tensors(const Manifest& manifest, const CheckpointLayout& needed, const CheckpointLayout& whole,
                        const std::string& checkpoint) {
  for (const StoredTensor& wanted : needed.tensors()) {
    const Manifest::Tensor* const found = manifest.find(wanted.name);
    if (found == nullptr && wanted.kind == TensorKind::slot)
      ddh::fail(
          DDH_FAILED_PRECONDITION, "checkpoint '", checkpoint, "' has no optimizer state '", wanted.name,
          "', which this run needs; it belongs to another model or optimizer, or it was saved when no later phase ",
          "needed this state: resume with train.cycles=1, or from an earlier checkpoint");
    if (found == nullptr)
      ddh::fail(DDH_FAILED_PRECONDITION, "checkpoint '", checkpoint, "' has no tensor '", wanted.name,
                "', which this run needs; it belongs to another model");
    if (!is_same(found->stored, wanted))
      ddh::fail(DDH_FAILED_PRECONDITION, "tensor '", wanted.name, "' of checkpoint '", checkpoint,
                "' has another shape or dtype than in this run; it belongs to another model or optimizer");
  }
  if (manifest.tensors.size() == needed.tensors().size()) return;
  for (const Manifest::Tensor& found : manifest.tensors) {
    const auto same_name = [&](const StoredTensor& t) { return t.name == found.stored.name; };
    if (std::none_of(whole.tensors().begin(), whole.tensors().end(), same_name))
      ddh::fail(DDH_FAILED_PRECONDITION, "checkpoint '", checkpoint, "' has the tensor '", found.stored.name,
                "', which this run does not have; it belongs to another model or optimizer");
  }
}

std::string read_checkpoint(const fs::path& folder, const Manifest& manifest, const StateSource& source,
                            const CheckpointLayout& layout, const Comm& comm, Staging& staging, ReadCount& count) {
  PieceReader reader(folder, manifest, source, layout, staging);
  std::string damage = first_damage(comm, "checkpoint: read", [&] {
    staging.device().synchronize(nullptr);  // initial values may still be in transfer
    count = reader.read();
    read_buffers(folder, manifest, source.model, staging, count);
  });
  if (!damage.empty()) return damage;
  source.strategy.call(PluginCall::kStateCommit, source.table.state_commit);
  staging.device().synchronize(nullptr);  // the strategy's copies
  reader.require_written();
  return "";
}

}  // namespace ddhost
