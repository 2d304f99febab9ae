// SPDX-License-Identifier: Apache-2.0
#include "engine/state/checkpoint_tensors.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <set>
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

bool is_of_replica(const std::string& name) { return name.starts_with(kReplicaPrefix); }
// "replica.3/own/error" -> "own/error".
std::string without_replica(const std::string& name) {
  return is_of_replica(name) ? name.substr(name.find('/') + 1) : name;
}

// How many tensors of replicas there are of each tensor.
template <class Tensors, class NameOf>
std::map<std::string, size_t> replica_counts(const Tensors& tensors, const NameOf& name_of) {
  std::map<std::string, size_t> counts;
  for (const auto& tensor : tensors)
    if (is_of_replica(name_of(tensor))) ++counts[without_replica(name_of(tensor))];
  return counts;
}
std::map<std::string, size_t> replicas_in(const Manifest& manifest) {
  return replica_counts(manifest.tensors,
                        [](const Manifest::Tensor& t) -> const std::string& { return t.stored.name; });
}
std::map<std::string, size_t> replicas_in(const CheckpointLayout& layout) {
  return replica_counts(layout.tensors(), [](const StoredTensor& t) -> const std::string& { return t.name; });
}

size_t count_of(const std::map<std::string, size_t>& counts, const std::string& name) {
  const auto at = counts.find(name);
  return at == counts.end() ? 0 : at->second;
}

// The tensors of a checkpoint with which those of a run begin.
class Sources {
 public:
  Sources(const Manifest& manifest, const CheckpointLayout& layout)
      : manifest_(manifest), layout_(layout), saved_(replicas_in(manifest)), now_(replicas_in(layout)) {}

  // Whether the tensor is of a replica, and the checkpoint has another number of replicas.
  [[nodiscard]] bool begins_anew(const std::string& tensor) const {
    const std::string name = without_replica(tensor);
    return is_of_replica(tensor) && count_of(saved_, name) != count_of(now_, name);
  }
  // Whether the run has tensors of replicas of it.
  [[nodiscard]] bool differs_now(const std::string& name) const { return count_of(now_, name) > 0; }
  // nullptr: it begins with zeros.
  [[nodiscard]] const Manifest::Tensor* of(size_t tensor) const {
    const std::string& name = layout_.tensors()[tensor].name;
    if (!begins_anew(name)) return manifest_.find(name);
    const int64_t plain = layout_.plain(tensor);
    return plain < 0 ? nullptr : manifest_.find(layout_.tensors()[static_cast<size_t>(plain)].name);
  }

 private:
  const Manifest& manifest_;
  const CheckpointLayout& layout_;
  const std::map<std::string, size_t> saved_, now_;
};

// A piece, and the hash of what was written to it.
struct Written {
  StatePiece piece;
  uint64_t hash = 0;
};
using Pieces = std::span<Written>;

constexpr uint64_t kLeastBytesOfTwo = uint64_t{64} << 20;  // below, a second thread does not pay

class PieceReader {
 public:
  PieceReader(const fs::path& folder, const Manifest& manifest, const StateMigration& migration,
              const StateSource& source, const CheckpointLayout& layout, Staging& staging)
      : folder_(folder),
        manifest_(manifest),
        migration_(migration),
        source_(source),
        layout_(layout),
        staging_(staging),
        sources_(manifest, layout) {}

  // While one thread copies values to their place, the other one waits for the disk. [main]
  ReadCount read() {
    std::vector<Written>& pieces = written_;
    for (const StatePiece& piece : state_pieces(source_, layout_)) pieces.push_back({piece});
    // Only the main thread may write where state_write or a device is needed.
    const auto in_memory = std::stable_partition(pieces.begin(), pieces.end(), [&](const Written& w) {
      return w.piece.data == nullptr || !staging_.is_here(w.piece.data);
    });
    const auto second = pieces.begin() + static_cast<std::ptrdiff_t>(half_of(pieces, in_memory - pieces.begin()));
    if (second == pieces.end() || !migration_.is_empty()) return read(pieces);  // plugins convert on the main thread
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
        hash += place_hash(access.read_kept(now[i], begin, n), now[i].offset + begin, n, ddh_dtype_bytes(now[i].dtype),
                           layout_.tensors()[now[i].tensor].grid);
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
      // Elements [at, at + numel) of the tensor.
      const auto take = [&](uint64_t at, const char* values, uint64_t numel) {
        const char* const kept = access.write(piece, at - piece.offset, numel, values);
        written.hash += place_hash(kept, at, numel, ddh_dtype_bytes(piece.dtype), stored.grid);
      };
      if (const StateMigration::Origin* const origin = migration_.of(piece.tensor); origin != nullptr)
        read_older(*origin, piece, reader, take);
      else if (const Manifest::Tensor* const from = sources_.of(piece.tensor); from != nullptr)
        read_part(reader, *from, piece, take);
      else
        take_zeros(piece, ddh_dtype_bytes(stored.dtype), take);
      count.needed += stored_bytes(piece, layout_);
    }
    count.read = reader.bytes_read();
    return count;
  }

  // Calls take(at, values, numel) for the elements of a piece in a saved tensor.
  template <class Take>
  static void read_part(ChunkReader& reader, const Manifest::Tensor& saved, const StatePiece& piece, Take&& take) {
    const uint64_t width = ddh_dtype_bytes(saved.stored.dtype);
    reader.for_each_part(
        saved, piece.offset * width, piece.numel * width,
        [&](uint64_t at, const char* values, uint64_t bytes) { take(at / width, values, bytes / width); });
  }

  template <class Take>
  static void take_zeros(const StatePiece& piece, uint64_t width, Take&& take) {
    std::vector<char> zeros;
    for_each_part(piece, [&](uint64_t begin, uint64_t numel) {
      zeros.assign(numel * width, 0);
      take(piece.offset + begin, zeros.data(), numel);
    });
  }

  // The same for the state of an older version.
  template <class Take>
  void read_older(const StateMigration::Origin& origin, const StatePiece& piece, ChunkReader& reader,
                  Take&& take) const {
    const uint64_t width = ddh_dtype_bytes(layout_.tensors()[piece.tensor].dtype);
    std::vector<char> from, to;  // aligned
    if (origin.tensor.empty()) return take_zeros(piece, width, take);
    read_part(reader, *manifest_.find(origin.tensor), piece, [&](uint64_t at, const char* values, uint64_t numel) {
      from.assign(values, values + numel * ddh_dtype_bytes(origin.dtype));
      to.resize(numel * width);
      StateMigration::convert(origin, at, numel, from.data(), to.data());
      take(at, to.data(), numel);
    });
  }

  const fs::path& folder_;
  const Manifest& manifest_;
  const StateMigration& migration_;
  const StateSource& source_;
  const CheckpointLayout& layout_;
  Staging& staging_;
  const Sources sources_;
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

// What begins anew or is left out, in one sentence.
class Changes {
 public:
  void begins_anew(const StoredTensor& tensor, bool with_zeros) {
    (with_zeros ? zeros_ : first_).insert(short_name(without_replica(tensor.name)));
  }
  void is_left_out(const StoredTensor& tensor) { left_out_.insert(short_name(without_replica(tensor.name))); }

  [[nodiscard]] std::string text(const std::string& checkpoint, int32_t saved_by) const {
    std::string out;
    const auto add = [&](const char* what, const std::set<std::string>& names) {
      if (names.empty()) return;
      std::string list;
      for (const std::string& name : names) list += (list.empty() ? "'" : ", '") + name + "'";
      out += (out.empty() ? "" : "; ") + std::string(what) + ": " + list;
    };
    add("on every rank these begin with the values of rank 0", first_);
    add("these begin with zeros", zeros_);
    add("these are left out, because this run's strategy has none of them", left_out_);
    if (out.empty()) return out;
    return ddh::str("checkpoint '", checkpoint, "', of ", saved_by,
                    " ranks, holds values that differ between ranks or ", "belong to its strategy: ", out);
  }

 private:
  // "own/error/h.0.weight" -> "error", "exp_avg/h.0.weight" -> "exp_avg", "h.0.weight" -> "parameters".
  static std::string short_name(const std::string& name) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos) return "parameters";
    if (name.substr(0, slash) != "own") return name.substr(0, slash);
    return name.substr(slash + 1, name.find('/', slash + 1) - slash - 1);
  }
  std::set<std::string> zeros_, first_, left_out_;
};

}  // namespace

std::string check_same_tensors(const Manifest& manifest, const StateMigration& migration,
                               const CheckpointLayout& needed, const CheckpointLayout& whole,
                               const std::string& checkpoint) {
  Changes changes;
  const Sources sources(manifest, needed);
  for (size_t i = 0; i < needed.tensors().size(); ++i) {
    StoredTensor wanted = needed.tensors()[i];
    if (const StateMigration::Origin* const origin = migration.of(i); origin != nullptr) {
      if (origin->tensor.empty()) continue;
      wanted.name = origin->tensor;
      wanted.dtype = origin->dtype;
    }
    const Manifest::Tensor* const found = manifest.find(wanted.name);
    if (sources.begins_anew(wanted.name)) {
      changes.begins_anew(wanted, needed.plain(i) < 0);
      continue;
    }
    if (found == nullptr && wanted.kind == TensorKind::strategy)
      ddh::fail(
          DDH_FAILED_PRECONDITION, "checkpoint '", checkpoint, "' has no '", wanted.name, "', which the strategy of ",
          "this run needs to go on; it is of another strategy: begin a run from its weights with train.init_from");
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
  if (!migration.is_empty()) return changes.text(checkpoint, manifest.world_size);
  for (const Manifest::Tensor& found : manifest.tensors) {
    const std::string& name = found.stored.name;
    const auto is_in_run = [&](const std::string& wanted) {
      return std::any_of(whole.tensors().begin(), whole.tensors().end(),
                         [&](const StoredTensor& t) { return t.name == wanted; });
    };
    if (is_in_run(name)) continue;
    if (is_of_replica(name) && is_in_run(without_replica(name))) {
      changes.begins_anew(found.stored, /*with_zeros=*/false);
    } else if (found.stored.kind == TensorKind::strategy) {
      if (!sources.differs_now(without_replica(name))) changes.is_left_out(found.stored);
    } else {
      ddh::fail(DDH_FAILED_PRECONDITION, "checkpoint '", checkpoint, "' has the tensor '", name,
                "', which this run does not have; it belongs to another model or optimizer");
    }
  }
  return changes.text(checkpoint, manifest.world_size);
}

std::string read_checkpoint(const fs::path& folder, const Manifest& manifest, const StateMigration& migration,
                            const StateSource& source, const CheckpointLayout& layout, const Comm& comm,
                            Staging& staging, ReadCount& count) {
  PieceReader reader(folder, manifest, migration, source, layout, staging);
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
