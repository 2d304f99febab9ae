// SPDX-License-Identifier: Apache-2.0
#include "links.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace mpi_transport {
namespace {

using messages::Channel;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Between two looks at a message. At first none, because small messages take microseconds. Then other processes may have the
// core, and at last this rank sleeps: where ranks share cores, one that only looks takes the time of those that it waits for.
// A sleep of 5 us takes about 55 us. Meanwhile the kernel still sends and receives what its socket buffers hold.
class Pause {
 public:
  void take() const {
    const auto waited = Clock::now() - begin_;
    if (waited < kEager) return;
    if (waited < kYielding)
      ::sched_yield();
    else
      std::this_thread::sleep_for(kNap);
  }

 private:
  static constexpr microseconds kEager{20}, kYielding{300}, kNap{5};
  const Clock::time_point begin_ = Clock::now();
};

constexpr milliseconds kAskPeer{100};  // between two looks at whether the peer has given up

}  // namespace

class MpiLinks::MpiMessage final : public messages::Message {
 public:
  MpiMessage(MpiLinks& links, Way way, int32_t peer, std::vector<MPI_Request> requests)
      : links_(links), way_(way), peer_(peer), requests_(std::move(requests)) {}
  MpiMessage(const MpiMessage&) = delete;
  MpiMessage& operator=(const MpiMessage&) = delete;
  // The memory of the message is free after this.
  ~MpiMessage() override {
    for (MPI_Request& request : requests_)
      if (request != MPI_REQUEST_NULL && !has_ended(request)) links_.session_.stop();
  }

  void wait() override {
    const Pause pause;
    Clock::time_point ask = Clock::now() + kAskPeer;
    while (!is_done()) {
      if (Clock::now() >= ask) {
        if (links_.settings_.has_peer_ended(links_.settings_.world_ranks[static_cast<size_t>(peer_)]))
          links_.lose(peer_, "the rank has given up");
        ask = Clock::now() + kAskPeer;
      }
      pause.take();
    }
  }

 private:
  // A receive whose message has not begun to come is cancelled; others may have ended by themselves.
  bool has_ended(MPI_Request& request) noexcept {
    int done = 0;
    try {
      if (way_ == Way::kReceive) links_.session_.call([&] { return MPI_Cancel(&request); });
      links_.session_.call([&] { return MPI_Test(&request, &done, MPI_STATUS_IGNORE); });
    } catch (...) {  // MPI reports an error, or the session has stopped
      return false;
    }
    return done != 0;
  }
  bool is_done() {
    int done = 0;
    try {
      links_.session_.call([&] {
        return MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
      });
    } catch (const std::runtime_error& error) {
      links_.lose(peer_, error.what());
    }
    return done != 0;
  }

  MpiLinks& links_;
  const Way way_;
  const int32_t peer_;
  std::vector<MPI_Request> requests_;
};

template <class Start>
std::unique_ptr<messages::Message> MpiLinks::start(Way way, Channel channel, int32_t peer, uint64_t bytes,
                                                   const Start& start_piece) {
  const int rank = settings_.world_ranks[static_cast<size_t>(peer)];
  const uint64_t longest = channel == Channel::kFrames ? bytes : settings_.message_bytes;
  std::vector<MPI_Request> requests;
  try {
    for (uint64_t at = 0; at < bytes; at += longest) {
      const int count = static_cast<int>(std::min(longest, bytes - at));
      requests.push_back(MPI_REQUEST_NULL);
      session_.call([&] { return start_piece(at, count, rank, &requests.back()); });
    }
    return std::make_unique<MpiMessage>(*this, way, peer, std::move(requests));
  } catch (const std::runtime_error& error) {
    lose(peer, error.what());
  } catch (...) {  // pieces may be on their way
    session_.stop();
    throw;
  }
}

// The memory of messages on their way is free after this. MPI must not touch it.
void MpiLinks::lose(int32_t peer, const char* how) {
  session_.stop();
  throw messages::LinkLost(peer, how);
}

std::unique_ptr<messages::Message> MpiLinks::send(Channel channel, int32_t peer, const std::byte* data,
                                                  uint64_t bytes) {
  return start(Way::kSend, channel, peer, bytes, [&](uint64_t at, int count, int rank, MPI_Request* request) {
    return MPI_Isend(data + at, count, MPI_BYTE, rank, tag_of(channel), MPI_COMM_WORLD, request);
  });
}

std::unique_ptr<messages::Message> MpiLinks::receive(Channel channel, int32_t peer, std::byte* data, uint64_t bytes) {
  return start(Way::kReceive, channel, peer, bytes, [&](uint64_t at, int count, int rank, MPI_Request* request) {
    return MPI_Irecv(data + at, count, MPI_BYTE, rank, tag_of(channel), MPI_COMM_WORLD, request);
  });
}

}  // namespace mpi_transport
