// SPDX-License-Identifier: Apache-2.0
#include "engine/services/memory/memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace ddhost {
namespace {

// No byte is zero, and neighbours differ, so that a block of equal values is never taken for it.
constexpr std::array<unsigned char, kGuardBytes> kPattern = [] {
  std::array<unsigned char, kGuardBytes> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(0x5b + 7 * (i % 32));
  return bytes;
}();

}  // namespace

void write_guard(void* end) noexcept { std::memcpy(end, kPattern.data(), kPattern.size()); }

void write_shared_guard(void* end) noexcept {
  auto* const bytes = static_cast<unsigned char*>(end);
  for (size_t i = 0; i < kPattern.size(); ++i) {
    unsigned char expected = 0;
    std::atomic_ref(bytes[i]).compare_exchange_strong(expected, kPattern[i]);
  }
}

std::optional<uint64_t> changed_guard_byte(const void* end) noexcept {
  const auto* const bytes = static_cast<const unsigned char*>(end);
  const auto* const at = std::mismatch(kPattern.begin(), kPattern.end(), bytes).second;
  if (at == bytes + kPattern.size()) return std::nullopt;
  return static_cast<uint64_t>(at - bytes);
}

void check_tag(int32_t tag) {
  if (tag < 0 || static_cast<size_t>(tag) >= kTagCount) {
    ddh::fail(DDH_UNIMPLEMENTED, "memory tag ", tag, " is unknown to this host; use one of DDH_TAG_*");
  }
}

Device& Memory::device() const {
  if (device_ == nullptr) ddh::fail(DDH_FAILED_PRECONDITION, "ddh.alloc is not available before the device is open");
  return *device_;
}

void* Memory::allocate(int32_t tag, uint64_t bytes, const char* name, int32_t memory) {
  return allocate(ddh_alloc_args{sizeof(ddh_alloc_args), tag, bytes, memory, DDH_ALLOC_ZERO, name});
}

void* Memory::allocate(const ddh_alloc_args& args, const std::string& owner) {
  check_tag(args.tag);
  if (args.memory < DDH_MEM_HOST || args.memory > DDH_MEM_PINNED)
    ddh::fail(DDH_UNIMPLEMENTED, "memory kind ", args.memory, " is unknown to this host; use one of DDH_MEM_*");
  ddh_alloc_args wanted = args;
  wanted.bytes = std::max<uint64_t>(args.bytes, 1);
  wanted.name = args.name == nullptr ? "unnamed" : args.name;
  // The host may not access memory of a device with its own, so that has no guard.
  const bool guarded = args.memory != DDH_MEM_DEVICE || device().is_host_memory();
  if (guarded && __builtin_add_overflow(wanted.bytes, kGuardBytes, &wanted.bytes)) wanted.bytes = UINT64_MAX;
  void* p = nullptr;
  try {
    p = args.memory == DDH_MEM_HOST ? host_pages_.allocate(wanted.bytes) : device().allocate(wanted);
  } catch (const ddh::Error& e) {
    if (e.code() != DDH_RESOURCE_EXHAUSTED) throw;
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "no memory for ", args.bytes, " bytes of '",
              kTagNames[static_cast<size_t>(args.tag)], "' (", wanted.name, "): ", e.what(), held(),
              "; `ddhost plan --all-strategies` with the words of this run shows what takes less, and --fit takes it");
  }
  if (guarded) write_guard(static_cast<char*>(p) + args.bytes);
  const std::lock_guard lock(mutex_);
  const auto& [at, block] =
      *blocks_
           .emplace(static_cast<const char*>(p), Block{args.tag, args.bytes, args.memory, guarded, owner, wanted.name})
           .first;
  add(args.tag, static_cast<int64_t>(args.bytes), false, &block);
  return p;
}

std::string Memory::held() const {
  std::string text;
  const std::lock_guard lock(mutex_);
  for (size_t tag = 0; tag < kTagCount; ++tag) {
    const uint64_t bytes = usage_[tag].now_bytes;
    if (bytes > 0) text += ddh::str(text.empty() ? "; this rank holds " : ", ", kTagNames[tag], " ", bytes);
  }
  return text;
}

void Memory::release(void* p) {
  if (p == nullptr) return;
  if (const std::optional<Block> block = take_out(p)) free_block(p, *block);
}

void Memory::release_for(const std::string& owner, void* p) {
  if (p == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    if (const std::string wrong = wrong_release(owner, p); !wrong.empty())
      return note(ddh::str(owner, " called release of ddh.alloc ", wrong, "; fix the plugin"));
    constexpr size_t kRemembered = 256;
    released_.push_back({p, owner, text_of(blocks_.at(static_cast<const char*>(p)))});
    if (released_.size() > kRemembered) released_.pop_front();
  }
  release(p);
}

std::string Memory::wrong_release(const std::string& owner, const void* p) const {
  auto at = blocks_.upper_bound(static_cast<const char*>(p));
  if (at != blocks_.begin()) {
    const auto& [begin, block] = *--at;
    if (begin == p && block.owner == owner) return "";
    const auto distance = static_cast<uint64_t>(static_cast<const char*>(p) - begin);
    const std::string whose = block.owner.empty() ? "the host" : block.owner;
    if (distance == 0) return ddh::str("for ", text_of(block), ", which ", whose, " allocated");
    if (distance < block.bytes)
      return ddh::str("with an address inside a block, ", distance, " bytes after the beginning of ", text_of(block),
                      ", which ", whose, " allocated; it takes the address that allocate gave");
  }
  const auto before = std::find_if(released_.rbegin(), released_.rend(),
                                   [&](const Released& r) { return r.p == p && r.owner == owner; });
  if (before != released_.rend()) return ddh::str("a second time for ", before->text);
  return "with an address that allocate did not give";
}

std::string Memory::text_of(const Block& block) {
  return ddh::str("'", block.name, "' (", block.bytes, " bytes of tag ", kTagNames[static_cast<size_t>(block.tag)],
                  ")");
}

void Memory::note(const std::string& sentence) const {
  if (misuse_ != nullptr) misuse_->note(sentence);
}

void Memory::note_leaks() {
  const std::lock_guard lock(mutex_);
  for (const auto& [p, block] : blocks_) {
    if (block.owner.empty()) continue;
    const std::string& owner = block.owner;
    const auto more = std::count_if(blocks_.begin(), blocks_.end(),
                                    [&owner](const auto& other) { return other.second.owner == owner; }) -
                      1;
    return note(ddh::str(block.owner, " was destroyed and had not released ", text_of(block), " of ddh.alloc",
                         more > 0 ? ddh::str(" and ", more, " more") : "",
                         "; release each block in destroy at the latest: fix the plugin"));
  }
}

void Memory::check_guard(const void* end, const std::string& what) const {
  if (const std::optional<uint64_t> at = changed_guard_byte(end))
    note(ddh::str("memory behind the end of ", what, " was written, first at byte ", *at,
                  " after the end; fix the plugin that writes there"));
}

void Memory::adopt(void* p, int32_t tag, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  blocks_.emplace(static_cast<const char*>(p), Block{tag, bytes, DDH_MEM_DEVICE, false, "", "memory of the transport"});
  add(tag, static_cast<int64_t>(bytes), false);
}

void Memory::forget(void* p) { (void)take_out(p); }

std::optional<Memory::Block> Memory::take_out(void* p) {
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(static_cast<const char*>(p));
  if (it == blocks_.end()) return std::nullopt;
  Block block = it->second;
  add(block.tag, -static_cast<int64_t>(block.bytes), false, &block);
  blocks_.erase(it);
  return block;
}

void Memory::release_all() {
  for (const auto& [p, block] : blocks_) free_block(const_cast<char*>(p), block);
  blocks_.clear();
}

void Memory::free_block(void* p, const Block& block) {
  if (block.guarded)
    check_guard(static_cast<const char*>(p) + block.bytes,
                ddh::str(text_of(block), ", which ", block.owner.empty() ? "the host" : block.owner, " allocated,"));
  if (block.memory == DDH_MEM_HOST)
    host_pages_.release(p);
  else
    device_->release(p, block.memory);
}

int32_t Memory::kind_of(const void* p) const {
  if (device().is_host_memory()) return DDH_MEM_HOST;
  const std::lock_guard lock(mutex_);
  auto it = blocks_.upper_bound(static_cast<const char*>(p));
  if (it == blocks_.begin()) return DDH_MEM_HOST;
  --it;
  return static_cast<const char*>(p) < it->first + it->second.bytes ? it->second.memory : DDH_MEM_HOST;
}

void Memory::account_for_plugin(int32_t tag, int64_t bytes) {
  check_tag(tag);
  const std::lock_guard lock(mutex_);
  const uint64_t now = usage_[static_cast<size_t>(tag)].unique_now_bytes;
  constexpr uint64_t kMost = uint64_t{1} << 50;
  if (bytes < 0 ? now < uint64_t{0} - static_cast<uint64_t>(bytes) : now + static_cast<uint64_t>(bytes) > kMost)
    ddh::fail(DDH_OUT_OF_RANGE, "accounts ", bytes, " bytes in addition to ", now,
              " of the same tag; the sum must lie between 0 and 2^50");
  add(tag, bytes, false);
}

void Memory::account(int32_t tag, int64_t bytes, bool alias) {
  check_tag(tag);
  const std::lock_guard lock(mutex_);
  add(tag, bytes, alias);
}

TagUsage Memory::usage(int32_t tag) const {
  check_tag(tag);
  const std::lock_guard lock(mutex_);
  return usage_[static_cast<size_t>(tag)];
}

Memory::Usage Memory::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

void Memory::expect(const Plan& plan, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  planner_ = owner;
  for (size_t tag = 0; tag < kTagCount; ++tag) planned_[tag].bytes = plan[tag];
}

uint64_t Memory::planned_peak(int32_t tag) const {
  const std::lock_guard lock(mutex_);
  return planned_[static_cast<size_t>(tag)].peak_bytes;
}

std::string Memory::first_above_plan(int32_t tag) const {
  const std::lock_guard lock(mutex_);
  return planned_[static_cast<size_t>(tag)].first_above;
}

void Memory::add(int32_t tag, int64_t bytes, bool alias, const Block* what) {
  TagUsage& u = usage_[static_cast<size_t>(tag)];
  u.now_bytes += static_cast<uint64_t>(bytes);
  u.peak_bytes = std::max(u.peak_bytes, u.now_bytes);
  // "strategy 'zero1'", "a window of strategy 'zero1'"
  const bool is_planned = what == nullptr || what->owner.empty() || what->owner.ends_with(planner_);
  if (Planned& plan = planned_[static_cast<size_t>(tag)]; plan.bytes && is_planned) {
    plan.now_bytes += static_cast<uint64_t>(bytes);
    plan.peak_bytes = std::max(plan.peak_bytes, plan.now_bytes);
    if (bytes > 0 && plan.now_bytes > *plan.bytes && plan.first_above.empty())
      plan.first_above =
          what == nullptr ? ddh::str("a window, an exchange or an account of ", bytes, " bytes") : text_of(*what);
  }
  if (alias) return;
  u.unique_now_bytes += static_cast<uint64_t>(bytes);
  u.unique_peak_bytes = std::max(u.unique_peak_bytes, u.unique_now_bytes);
}

}  // namespace ddhost
