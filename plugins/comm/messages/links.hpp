// SPDX-License-Identifier: Apache-2.0
//
// links.hpp: messages between the ranks of a group, by an engine that is derived from Links. All collectives are made of
// them, so that a sum has the order of ranks, which no engine promises for its own sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "ddh/sdk/plugin.hpp"

namespace messages {

// The link to a rank of the group has ended.
struct LinkLost : std::runtime_error {
  LinkLost(int32_t of, const std::string& how) : std::runtime_error(how), peer(of) {}
  int32_t peer;
};

// A message on its way. Its memory stays in place until wait has returned, or the object is gone, or the links have ended.
class Message {
 public:
  Message() = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  virtual ~Message() = default;
  // Until the memory was sent, or filled. Error: LinkLost.
  virtual void wait() = 0;
};

// Messages of one channel between two ranks arrive in the order in which they were sent. No size is 0.
enum class Channel : uint8_t {
  kFrames,  // a receive has room for more bytes than the message has
  kData     // the sizes are equal, else the receive may not end: the ranks compare them first, by a frame
};

class Links {
 public:
  Links() = default;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  virtual ~Links() = default;
  virtual std::unique_ptr<Message> send(Channel channel, int32_t peer, const std::byte* data, uint64_t bytes) = 0;
  virtual std::unique_ptr<Message> receive(Channel channel, int32_t peer, std::byte* data, uint64_t bytes) = 0;
  // Waits of this rank and of its peers fail from now on. Callable from any thread.
  virtual void end() noexcept = 0;
};

}  // namespace messages
