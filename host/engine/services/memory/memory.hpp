// SPDX-License-Identifier: Apache-2.0
//
// engine/services/memory/memory.hpp: one rank's tagged memory. There are two counts of bytes by tag: addressable (all
// memory that the rank can access, as in the literature's formulas) and unique (without shared pages that another rank
// counts). Behind each block that the host can access are guard bytes, which are checked when it is released and at the
// end; they are not counted.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "ddh/ddh.h"
#include "ddh/sdk/memory/pages.hpp"
#include "engine/calls/misuse.hpp"
#include "engine/services/device.hpp"

namespace ddhost {

// Bytes behind a block of memory that nobody may write. If they have changed, someone wrote beyond the block's end.
inline constexpr uint64_t kGuardBytes = 256;

// Writes the guard at `end`, the end of a block.
void write_guard(void* end) noexcept;
// The same in memory that was zero-filled and that several ranks map. Each rank calls it, in any order. Bytes that
// are not zero any more stay as they are.
void write_shared_guard(void* end) noexcept;
// The distance of the first changed byte from the end of the block; nullopt: the guard is whole.
std::optional<uint64_t> changed_guard_byte(const void* end) noexcept;

inline constexpr size_t kTagCount = 6;
inline constexpr std::array<const char*, kTagCount> kTagNames = {"param", "grad", "optim", "act", "comm", "data"};

struct TagUsage {
  uint64_t now_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t unique_now_bytes = 0;
  uint64_t unique_peak_bytes = 0;
  bool operator==(const TagUsage&) const = default;
};

// Thread-safe: the data worker allocates concurrently with the main thread.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { release_all(); }

  // Allocates blocks of DDH_MEM_DEVICE and DDH_MEM_PINNED there. The device outlives this object, or release_all is
  // called.
  void use(Device& device) { device_ = &device; }
  // Where wrong releases, writes beyond a block and leaks are noted; it outlives this object. Without it they are not.
  void report_to(Misuse& misuse) { misuse_ = &misuse; }
  // Throws ddh::Error before use().
  [[nodiscard]] Device& device() const;

  // A 256-byte aligned block, zero-filled. Throws ddh::Error naming tag, bytes and `name`.
  void* allocate(int32_t tag, uint64_t bytes, const char* name, int32_t memory = DDH_MEM_DEVICE);
  // `owner`: who releases it, "strategy 'zero1'"; empty: the host.
  void* allocate(const ddh_alloc_args& args, const std::string& owner = "");
  void release(void* p);
  // A plugin's own call: notes it if the plugin has no such block.
  void release_for(const std::string& owner, void* p);
  // Notes the blocks of plugins. Called when the plugins are destroyed.
  void note_leaks();
  // Notes it if the guard bytes at `end` have changed, the end of `what`.
  void check_guard(const void* end, const std::string& what) const;
  void release_all();  // frees blocks that plugins have not released

  // Counts a block in memory of the device that a transport owns, until `forget`.
  void adopt(void* p, int32_t tag, uint64_t bytes);
  void forget(void* p);

  // Whether the host may access `p`: true except for blocks of a device with its own memory.
  [[nodiscard]] bool is_host_memory(const void* p) const { return kind_of(p) != DDH_MEM_DEVICE; }
  // DDH_MEM_DEVICE for memory that the host can't access; DDH_MEM_PINNED for such blocks; else DDH_MEM_HOST.
  [[nodiscard]] int32_t kind_of(const void* p) const;

  // Counts memory of another allocator. `alias`: a view of pages that a rank already counts as unique.
  void account(int32_t tag, int64_t bytes, bool alias);
  // The same for a plugin's own numbers: throws where the sum would fall below zero or exceed 2^50 bytes.
  void account_for_plugin(int32_t tag, int64_t bytes);

  [[nodiscard]] TagUsage usage(int32_t tag) const;
  // What `owner` ("strategy 'zero1'") will take by tag. Compared with it is all but the blocks of other plugins.
  using Plan = std::array<std::optional<uint64_t>, kTagCount>;
  void expect(const Plan& plan, const std::string& owner);
  // The peak of what the plan is for.
  [[nodiscard]] uint64_t planned_peak(int32_t tag) const;
  // The first block above the plan, "'gradients of h.3' (4096 bytes of tag grad)"; "": there was none.
  [[nodiscard]] std::string first_above_plan(int32_t tag) const;
  // Of all tags.
  using Usage = std::array<TagUsage, kTagCount>;
  [[nodiscard]] Usage usage() const;

 private:
  struct Block {
    int32_t tag;
    uint64_t bytes;
    int32_t memory;  // DDH_MEM_*
    bool guarded = false;
    std::string owner, name;
  };
  struct Released {
    const void* p;
    std::string owner, text;
  };
  void free_block(void* p, const Block& block);
  [[nodiscard]] std::optional<Block> take_out(void* p);  // from blocks_; nullopt: it has no such block
  [[nodiscard]] std::string held() const;                // for a sentence: bytes by tag
  [[nodiscard]] static std::string text_of(const Block& block);
  void note(const std::string& sentence) const;
  // What is wrong with a release of `p` by `owner`; empty: nothing. With mutex_ held.
  [[nodiscard]] std::string wrong_release(const std::string& owner, const void* p) const;
  // With mutex_ held. `what`: the block, if it has a name.
  void add(int32_t tag, int64_t bytes, bool alias, const Block* what = nullptr);

  Device* device_ = nullptr;
  ddh::Pages host_pages_;  // blocks of DDH_MEM_HOST
  mutable std::mutex mutex_;
  std::map<const char*, Block> blocks_;
  std::deque<Released> released_;  // the last ones of plugins, for sentences
  Misuse* misuse_ = nullptr;
  Usage usage_{};
  struct Planned {
    std::optional<uint64_t> bytes;
    uint64_t now_bytes = 0, peak_bytes = 0;
    std::string first_above;
  };
  std::array<Planned, kTagCount> planned_;
  std::string planner_;  // whose plan it is
};

// Throws unless `tag` is one of DDH_TAG_*.
void check_tag(int32_t tag);

}  // namespace ddhost
