// SPDX-License-Identifier: Apache-2.0
//
// shm: ranks are processes of one machine. Shared memory is a memfd that peers open through /proc, so no name can be
// left behind. Its pages are allocated at the start, so a lack of memory is an error then, and not a SIGBUS later.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "ddh/sdk/memory/free_memory.hpp"
#include "transport.hpp"

namespace same_host {
namespace {

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

class FdMapping final : public Mapping {
 public:
  FdMapping(int fd, const std::string& what, uint64_t bytes) : Mapping(map(fd, what, bytes), bytes) {}
  ~FdMapping() override { munmap(base(), bytes()); }
  FdMapping(const FdMapping&) = delete;
  FdMapping& operator=(const FdMapping&) = delete;

 private:
  static std::byte* map(int fd, const std::string& what, uint64_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "cannot map ", what, " of ", bytes, " bytes: ", std::strerror(errno));
    return static_cast<std::byte*>(p);
  }
};

class FdOffer final : public Offer {
 public:
  explicit FdOffer(Fd fd) : fd_(std::move(fd)) {}
  [[nodiscard]] Ticket ticket() const override {
    return {static_cast<uint64_t>(getpid()), static_cast<uint64_t>(fd_.get())};
  }

 private:
  Fd fd_;
};

class ProcessMemory final : public Memory {
 public:
  Created create(const std::string& what, uint64_t bytes) override {
    ddh::require_memory(what, bytes);
    Fd fd(memfd_create("ddhost", MFD_CLOEXEC));
    if (fd.get() < 0) ddh::fail(DDH_RESOURCE_EXHAUSTED, "cannot make ", what, ": ", std::strerror(errno));
    int rc = 0;
    do {
      rc = fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    } while (rc == EINTR);
    if (rc != 0) {
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "no shared memory for ", what, " of ", bytes, " bytes: ", std::strerror(rc),
                "; use fewer ranks, a smaller model, or raise the limit (ulimit -f, the container's memory)");
    }
    auto mapping = std::make_unique<FdMapping>(fd.get(), what, bytes);
    return {std::move(mapping), std::make_unique<FdOffer>(std::move(fd))};
  }

  std::unique_ptr<Mapping> attach(const Ticket& ticket, const std::string& what, uint64_t bytes) override {
    const std::string path = ddh::str("/proc/", ticket.owner, "/fd/", ticket.handle);
    const Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd.get() < 0) {
      ddh::fail(DDH_UNAVAILABLE, "cannot open ", what, " of process ", ticket.owner, ": ", std::strerror(errno),
                "; all ranks must run on one host, as one user and in one process namespace");
    }
    return std::make_unique<FdMapping>(fd.get(), what, bytes);
  }

  bool died(int32_t world_rank, int64_t pid) override {
    if (pid == 0) return false;  // not there yet
    auto it = peers_.find(world_rank);
    if (it == peers_.end()) {
      const int fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
      if (fd < 0) return errno == ESRCH;
      it = peers_.emplace(world_rank, Fd(fd)).first;
    }
    pollfd poll_fd{it->second.get(), POLLIN, 0};
    return poll(&poll_fd, 1, 0) == 1;
  }

 private:
  std::map<int32_t, Fd> peers_;  // pidfds, readable when the process has ended
};

class Shm final : public Transport {
 public:
  explicit Shm(const ddh_create& create) : Transport(create, std::make_unique<ProcessMemory>()) {}
};

constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_KV_IFACE, nullptr};
// Memory is counted where the host gives the service.
constexpr const char* kWants[] = {DDH_CONFIG_IFACE, DDH_LOG_IFACE, DDH_METRICS_IFACE, DDH_ALLOC_IFACE, nullptr};

}  // namespace
}  // namespace same_host

DDH_CXX_PLUGIN(same_host::Shm, comm, "shm", "0.1.0", "ranks are processes that share pages of one host",
               ddh::kSchemaOf<same_host::kOptions>, same_host::kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_SINGLE_HOST,
               .wants = same_host::kWants);
