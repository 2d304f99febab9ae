// SPDX-License-Identifier: Apache-2.0
//
// The two differences between ranks as threads and ranks as processes: the source of shared memory, and the detection
// of a dead peer. Everything else in this folder is common to both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace same_host {

// A rank's mapping of shared memory; unmapped with the object.
class Mapping {
 public:
  Mapping(std::byte* base, uint64_t bytes) : base_(base), bytes_(bytes) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  virtual ~Mapping() = default;
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  std::byte* const base_;
  const uint64_t bytes_;
};

// Identifies the memory for a peer: plain bytes, valid on this machine during the lifetime of the offer.
struct Ticket {
  uint64_t owner;   // process id, or unused
  uint64_t handle;  // file descriptor, or address
};

// Keeps a ticket valid until every peer has attached.
class Offer {
 public:
  Offer() = default;
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;
  virtual ~Offer() = default;
  [[nodiscard]] virtual Ticket ticket() const = 0;
};

struct Created {
  std::unique_ptr<Mapping> mapping;
  std::unique_ptr<Offer> offer;
};

class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;
  // Zero-filled, page-aligned, with pages allocated at once. Throws DDH_RESOURCE_EXHAUSTED with a message that names
  // `what`.
  [[nodiscard]] virtual Created create(const std::string& what, uint64_t bytes) = 0;
  [[nodiscard]] virtual std::unique_ptr<Mapping> attach(const Ticket& ticket, const std::string& what,
                                                        uint64_t bytes) = 0;
  // Whether the process of a world rank has ended.
  [[nodiscard]] virtual bool died(int32_t world_rank, int64_t pid) = 0;
};

}  // namespace same_host
