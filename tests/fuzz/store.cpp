// SPDX-License-Identifier: Apache-2.0
//
// The requests of a rank on another host to the key-value store of a run, in parts of any length. The store answers, or ends
// the connection. Nobody waits any more after the run has ended.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "fuzz/fuzz.hpp"
#include "launch/kv.hpp"

using namespace ddhost;

namespace {

// Serves until nothing more comes, and takes the replies.
void serve(KvServer& server, const Fd& client) {
  for (;;) {
    std::vector<pollfd> set = server.poll_set();
    const int ready = ::poll(set.data(), set.size(), 0);
    server.serve(set);
    std::array<char, 4096> reply{};
    const ssize_t n = ::recv(client.get(), reply.data(), reply.size(), MSG_DONTWAIT);
    const bool only_writes =
        std::all_of(set.begin(), set.end(), [](const pollfd& one) { return (one.revents & ~POLLOUT) == 0; });
    if (n <= 0 && (ready <= 0 || only_writes || set.front().fd < 0)) return;
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  SocketPair pair = make_socket_pair();
  std::vector<Fd> sockets;
  sockets.push_back(std::move(pair.server));
  KvServer server(std::move(sockets));
  const size_t part = size_t{1} + data[0];
  for (size_t done = 1; done < bytes;) {
    const size_t wanted = std::min(part, bytes - done);
    const ssize_t sent = ::send(pair.client.get(), data + done, wanted, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) done += static_cast<size_t>(sent);
    serve(server, pair.client);
    if (sent <= 0) break;  // the store has ended the connection
  }
  server.abort("the run has ended");
  serve(server, pair.client);
  if (server.timeout_ms() >= 0) std::abort();  // nobody waits after the end
  return 0;
}
