// SPDX-License-Identifier: Apache-2.0
//
// links.hpp: the messages of a group by MPI. Only non-blocking calls are used, and a wait asks whether they are done: so it
// sees that this rank or its peer has given up, which MPI's own waits don't.
#pragma once

#include <functional>
#include <vector>

#include "../messages/links.hpp"
#include "session.hpp"

namespace mpi_transport {

class MpiLinks final : public messages::Links {
 public:
  struct Settings {
    int tag;                                      // of the group's frames; the next one is that of its data
    uint64_t message_bytes;                       // most bytes of one message of MPI that carries data
    std::vector<int32_t> world_ranks;             // of the members
    std::function<bool(int32_t)> has_peer_ended;  // whether a rank of the world has aborted; any thread
  };
  // `session` outlives the object and its messages.
  MpiLinks(Session& session, Settings settings) : session_(session), settings_(std::move(settings)) {}

  std::unique_ptr<messages::Message> send(messages::Channel channel, int32_t peer, const std::byte* data,
                                          uint64_t bytes) override;
  std::unique_ptr<messages::Message> receive(messages::Channel channel, int32_t peer, std::byte* data,
                                             uint64_t bytes) override;
  // Of all groups of this rank: MPI works on the messages of all of them in any call.
  void end() noexcept override { session_.stop(); }

 private:
  class MpiMessage;
  [[nodiscard]] int tag_of(messages::Channel channel) const { return settings_.tag + static_cast<int>(channel); }
  enum class Way : uint8_t { kSend, kReceive };
  template <class Start>
  std::unique_ptr<messages::Message> start(Way way, messages::Channel channel, int32_t peer, uint64_t bytes,
                                           const Start& start_piece);

  [[noreturn]] void lose(int32_t peer, const char* how);

  Session& session_;
  const Settings settings_;
};

}  // namespace mpi_transport
