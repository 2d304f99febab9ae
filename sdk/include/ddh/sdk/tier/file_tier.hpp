// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/file_tier.hpp: a tier in a file, one for each rank. The file is unnamed (O_TMPFILE), so it always
// disappears when the run ends. Its blocks are allocated at the start (fallocate), so a full disk is an error at the
// start. It bypasses the page cache (O_DIRECT), so offloaded state takes no memory.
//
// A tile's checksum is computed when it is written, kept in memory, and verified when it is read. Damage is
// reported with the tensor's name and the folder, and never gives a wrong result.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ddh/sdk/tier/file_io.hpp"
#include "ddh/sdk/tier/tier.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Makes the engine for a file of a FileTier.
using IoEngineMaker = std::function<std::unique_ptr<IoEngine>(int fd, uint32_t depth)>;

struct FileTierSettings {
  std::string folder;
  std::string folder_option;  // the option to name in errors about the folder: "strategy.nvme_path"
  uint64_t tile_bytes = 0;
  uint32_t depth = 32;    // transfers in flight
  bool warns = true;      // warns about an unsuitable folder; one rank does it for all
  IoEngineMaker make_io;  // make_io_engine, except in tests
};

class FileTier final : public Tier {
 public:
  FileTier(const Host& host, FileTierSettings settings);
  FileTier(const FileTier&) = delete;
  FileTier& operator=(const FileTier&) = delete;
  ~FileTier() override;

  size_t add_cut(const std::string& name, int32_t, uint64_t bytes, uint64_t tensor_tile_bytes) override;

  // Each tensor takes its bytes, rounded up to kAlignment.
  [[nodiscard]] uint64_t file_bytes() const { return file_bytes_; }

  void reserve() override;

  // Called after reserve: buffers that will be used repeatedly.
  void register_buffers(std::span<const iovec> buffers) { engine_->register_buffers(buffers); }

  Handle begin_read(size_t tensor, uint64_t tile, void* buffer) override;

  Handle begin_write(size_t tensor, uint64_t tile, const void* buffer) override;

  void wait(Handle handle) override;

  [[nodiscard]] Traffic traffic() const override { return traffic_; }
  [[nodiscard]] std::string io_name() const { return engine_->name(); }
  [[nodiscard]] bool is_direct() const { return is_direct_; }
  [[nodiscard]] int fd() const { return fd_; }  // for tests, which damage it

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  static constexpr uint32_t kNoTag = UINT32_MAX;
  static constexpr int kEnded = -1;  // no errno: the file is shorter than it was

  struct Tensor {
    std::string name;
    uint64_t bytes, tile_bytes;
    size_t first_tile;
    uint64_t offset;  // in the file
  };
  struct TileRecord {
    uint64_t checksum = 0;
    bool written = false;
    Handle writer = kDone;  // the write in flight
  };
  struct Op {
    bool is_write;
    size_t tensor;
    uint64_t tile;
    char* buffer;
    uint64_t bytes, offset;  // of the tile
    uint64_t done = 0;       // bytes transferred, of the size rounded up
    uint32_t tag = kNoTag;   // while it is in flight
    int error = 0;           // errno or kEnded
    Time start{};
  };

  static double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }
  [[nodiscard]] size_t tile_index(const Op& op) const { return tensors_[op.tensor].first_tile + op.tile; }
  [[nodiscard]] uint64_t bytes_of(size_t tensor, uint64_t tile) const;

  void open_file();
  // For file systems without O_TMPFILE: creates a file and unlinks it at once.
  void open_named_file();

  Handle begin(bool is_write, size_t tensor, uint64_t tile, void* buffer);
  void start_rest(Op& op);
  // Waits for the oldest transfer. Its own wait reports its result.
  void make_tag_free();
  // Waits for the write in flight. Its own wait reports its result.
  void settle(Handle writer);

  void finish_io(Op& op);

  [[nodiscard]] std::string place_of(const Op& op) const;
  [[noreturn]] void fail_transfer(const Op& op) const;
  [[noreturn]] void fail_checksum(const Op& op) const;

  const Host& host_;
  const FileTierSettings settings_;
  int fd_ = -1;
  bool is_direct_ = false;
  std::unique_ptr<IoEngine> engine_;
  std::vector<Tensor> tensors_;
  std::vector<TileRecord> tiles_;  // of all tensors, in the order of the file
  uint64_t file_bytes_ = 0;
  std::map<Handle, Op> ops_;  // begun and not waited for
  Handle last_handle_ = kDone;
  std::vector<uint32_t> free_tags_;
  Traffic traffic_;
  Time busy_until_{};
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
