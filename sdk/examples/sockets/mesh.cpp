// SPDX-License-Identifier: Apache-2.0
#include "mesh.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace sockets {
namespace {

struct Hello {  // the first bytes of a connection
  uint64_t run_id;
  int32_t rank;
  uint32_t reserved0;
};
struct Header {  // before the data of an exchange
  uint64_t numel;
  uint32_t kind;
  int32_t dtype;
};

[[noreturn]] void fail_system(const std::string& what) {
  ddh::fail(DDH_UNAVAILABLE, "sockets: ", what, ": ", std::strerror(errno), "; choose --comm shm");
}

Fd open_socket() {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) fail_system("no socket (the limit on open files is `ulimit -n`)");
  return fd;
}

sockaddr* address_of(sockaddr_un& un) { return reinterpret_cast<sockaddr*>(&un); }

bool is_same_user(int fd) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

// ---- connections ----------------------------------------------------------------------------------------------------

Mesh::Mesh(const ddh::Host& host, Member member, Lost lost) : member_(std::move(member)), lost_(std::move(lost)) {
  peers_.resize(member_.world_ranks.size());
  const Fd listener = open_socket();
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  socklen_t bytes = sizeof(sa_family_t);  // a name that the system chooses, which needs no file
  if (bind(listener.get(), address_of(un), bytes) != 0 || listen(listener.get(), size()) != 0)
    fail_system("cannot listen");
  bytes = sizeof un;
  if (getsockname(listener.get(), address_of(un), &bytes) != 0) fail_system("no address");
  ddh::call(host.kv->set, host.h, key_of(rank()).c_str(), &un, uint64_t{bytes});
  for (int32_t peer = 0; peer < rank(); ++peer) connect_to(host, peer);
  accept_from_others(listener);
}

void Mesh::connect_to(const ddh::Host& host, int32_t peer) {
  sockaddr_un un{};
  uint64_t bytes = sizeof un;
  ddh::call(host.kv->get, host.h, key_of(peer).c_str(), &un, &bytes, kJoinTimeoutMs);
  Fd fd = open_socket();
  const Hello hello{member_.run_id, rank(), 0};
  if (connect(fd.get(), address_of(un), static_cast<socklen_t>(bytes)) != 0 ||
      send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
    fail_system(ddh::str("no connection to rank ", world_rank(peer), " (all ranks must be on one machine)"));
  peers_[static_cast<size_t>(peer)] = std::move(fd);
}

void Mesh::accept_from_others(const Fd& listener) {
  for (int32_t missing = size() - 1 - rank(); missing > 0;) {
    pollfd waiting{listener.get(), POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(kJoinTimeoutMs));
    if (ready == 0)
      ddh::fail(DDH_DEADLINE_EXCEEDED, "sockets: ", missing, " ranks did not join '", member_.name, "' within ",
                kJoinTimeoutMs / 1000, " s; another rank is stuck or never made this call");
    if (ready < 0 && errno != EINTR) fail_system("waiting for ranks");
    if (ready < 0) continue;
    Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // Every process of the machine can connect: only one of this user that knows the run is a rank.
    Hello hello{};
    if (fd.get() < 0 || !is_same_user(fd.get())) continue;
    if (recv(fd.get(), &hello, sizeof hello, MSG_WAITALL) != sizeof hello || hello.run_id != member_.run_id) continue;
    if (hello.rank <= rank() || hello.rank >= size() || peers_[static_cast<size_t>(hello.rank)].get() >= 0) continue;
    peers_[static_cast<size_t>(hello.rank)] = std::move(fd);
    --missing;
  }
}

void Mesh::end() noexcept {
  for (const Fd& fd : peers_)
    if (fd.get() >= 0) shutdown(fd.get(), SHUT_RDWR);
}

// ---- exchange -------------------------------------------------------------------------------------------------------

// A part on its way. `sent` and `got` count bytes, the header's included.
struct Mesh::Transfer {
  const Part& part;
  Header header_out, header_in;
  uint64_t out_bytes, in_bytes;
  uint64_t sent = 0, got = 0;

  Transfer(const Call& call, const Part& p)
      : part(p),
        header_out{p.out_numel, call.kind, call.dtype},
        header_in{},
        out_bytes(sizeof(Header) + p.out_numel * ddh_dtype_bytes(call.dtype)),
        in_bytes(sizeof(Header) + p.in_numel * ddh_dtype_bytes(call.dtype)) {}
};

void Mesh::exchange(const Call& call, const std::vector<Part>& parts) {
  std::vector<Transfer> transfers;
  for (const Part& part : parts) {
    if (part.peer == rank())
      copy_own(call, part);
    else
      transfers.emplace_back(call, part);
  }
  std::vector<pollfd> waiting(transfers.size());
  for (;;) {
    bool is_done = true;
    for (size_t i = 0; i < transfers.size(); ++i) {
      const bool sends = send_some(transfers[i]), receives = receive_some(call, transfers[i]);
      is_done = is_done && !sends && !receives;
      const int fd = peers_[static_cast<size_t>(transfers[i].part.peer)].get();
      waiting[i] = {sends || receives ? fd : -1, static_cast<short>((sends ? POLLOUT : 0) | (receives ? POLLIN : 0)),
                    0};
    }
    if (is_done) return;
    if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) fail_system("waiting for peers");
  }
}

// Sends what the connection takes now. Returns whether more is left.
bool Mesh::send_some(Transfer& t) {
  while (t.sent < t.out_bytes) {
    const bool in_header = t.sent < sizeof(Header);
    const std::byte* from =
        in_header ? reinterpret_cast<const std::byte*>(&t.header_out) + t.sent : t.part.out + (t.sent - sizeof(Header));
    const ssize_t n = send(peers_[static_cast<size_t>(t.part.peer)].get(), from,
                           (in_header ? sizeof(Header) : t.out_bytes) - t.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return true;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) lost_(world_rank(t.part.peer));
    t.sent += static_cast<uint64_t>(n);
  }
  return false;
}

// Receives what is there. Returns whether more is to come. A header that differs is refused before its data are stored.
bool Mesh::receive_some(const Call& call, Transfer& t) {
  while (t.got < t.in_bytes) {
    const bool in_header = t.got < sizeof(Header);
    std::byte* to =
        in_header ? reinterpret_cast<std::byte*>(&t.header_in) + t.got : t.part.in + (t.got - sizeof(Header));
    const ssize_t n = recv(peers_[static_cast<size_t>(t.part.peer)].get(), to,
                           (in_header ? sizeof(Header) : t.in_bytes) - t.got, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return true;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) lost_(world_rank(t.part.peer));
    t.got += static_cast<uint64_t>(n);
    if (!in_header || t.got < sizeof(Header)) continue;
    if (t.header_in.kind != call.kind || t.header_in.dtype != call.dtype)
      ddh::fail(DDH_FAILED_PRECONDITION, call.name, " of dtype ", call.dtype, " on rank ", world_rank(rank()),
                " meets another call on rank ", world_rank(t.part.peer),
                "; all ranks must make the same calls in the same order");
    check_numel(call, t.part.peer, t.header_in.numel, rank(), t.part.in_numel);
  }
  return false;
}

void Mesh::copy_own(const Call& call, const Part& part) const {
  check_numel(call, rank(), part.out_numel, rank(), part.in_numel);
  const uint64_t bytes = part.out_numel * ddh_dtype_bytes(call.dtype);
  if (bytes > 0 && part.in != part.out) std::memcpy(part.in, part.out, bytes);
}

void Mesh::check_numel(const Call& call, int32_t sender, uint64_t sent, int32_t receiver, uint64_t expected) const {
  if (sent == expected) return;
  ddh::fail(DDH_FAILED_PRECONDITION, call.label != nullptr ? call.label : call.name, ": rank ", world_rank(sender),
            " sends ", sent, " elements to rank ", world_rank(receiver), ", which expects ", expected,
            "; the counts of both must be equal");
}

}  // namespace sockets
