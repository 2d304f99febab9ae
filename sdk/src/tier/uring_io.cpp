// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes by io_uring, compiled in where DDH_WITH_LIBURING is defined.
#include "io_engines.hpp"

#ifdef DDH_WITH_LIBURING
#include <liburing.h>

#include <cerrno>
#include <cstring>
#endif

namespace ddh {
inline namespace v1 DDH_HIDDEN {

#ifdef DDH_WITH_LIBURING
namespace {
// A thread waits for completions, to record their times.
class UringIo final : public IoEngine {
 public:
  UringIo(int fd, uint32_t depth);
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;
  ~UringIo() override;
  [[nodiscard]] std::string name() const override;

  // Refused if the limit of locked memory is low (ulimit -l); then buffers are mapped at every operation.
  void register_buffers(std::span<const iovec> buffers) override;

  void start(uint32_t tag, const IoOp& op) override;
  Result finish(uint32_t tag) override { return results_.wait(tag); }

 private:
  static constexpr uint64_t kEnd = UINT64_MAX, kRefused = UINT64_MAX - 1;

  int submit();
  void reap();
  [[nodiscard]] int registered_index(const IoOp& op) const;

  const int fd_;
  io_uring ring_{};
  IoResults results_;
  std::vector<iovec> registered_;
  std::thread reaper_;
};
UringIo::UringIo(int fd, uint32_t depth) : fd_(fd), results_(depth) {
  const int rc = io_uring_queue_init(depth + 1, &ring_, 0);
  if (rc < 0) fail(DDH_UNAVAILABLE, std::strerror(-rc));
  io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
  const bool can = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                   io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  io_uring_free_probe(probe);
  if (!can) {
    io_uring_queue_exit(&ring_);
    fail(DDH_UNAVAILABLE, "the kernel's io_uring is too old; Linux 5.6 or newer is needed");
  }
  reaper_ = quiet_thread([this] { reap(); });
}

UringIo::~UringIo() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  io_uring_prep_nop(sqe);
  sqe->user_data = kEnd;
  submit();
  reaper_.join();
  io_uring_queue_exit(&ring_);
}

std::string UringIo::name() const { return registered_.empty() ? "io_uring" : "io_uring with registered buffers"; }

void UringIo::register_buffers(std::span<const iovec> buffers) {
  if (io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size())) == 0)
    registered_.assign(buffers.begin(), buffers.end());
}

void UringIo::start(uint32_t tag, const IoOp& op) {
  results_.begin(tag);
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (sqe == nullptr) return results_.end(tag, -EBUSY);  // finish reports it
  const auto bytes = static_cast<unsigned>(op.bytes);
  const int fixed = registered_index(op);
  if (fixed >= 0 && op.is_write)
    io_uring_prep_write_fixed(sqe, fd_, op.buffer, bytes, op.offset, fixed);
  else if (fixed >= 0)
    io_uring_prep_read_fixed(sqe, fd_, op.buffer, bytes, op.offset, fixed);
  else if (op.is_write)
    io_uring_prep_write(sqe, fd_, op.buffer, bytes, op.offset);
  else
    io_uring_prep_read(sqe, fd_, op.buffer, bytes, op.offset);
  sqe->user_data = tag;
  const int rc = submit();
  if (rc >= 0) return;
  // The entry stays in the ring and may be submitted later: it must not touch the buffer then.
  io_uring_prep_nop(sqe);
  sqe->user_data = kRefused;
  results_.end(tag, rc);
}

int UringIo::submit() {
  int rc = 0;
  do {
    rc = io_uring_submit(&ring_);
  } while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
  return rc;
}

void UringIo::reap() {
  for (uint64_t tag = 0; tag != kEnd;) {
    io_uring_cqe* cqe = nullptr;
    if (io_uring_wait_cqe(&ring_, &cqe) < 0) continue;  // interrupted
    tag = cqe->user_data;
    const int64_t result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    if (tag < kRefused) results_.end(static_cast<uint32_t>(tag), result);
  }
}

int UringIo::registered_index(const IoOp& op) const {
  const auto* from = static_cast<const char*>(op.buffer);
  for (size_t i = 0; i < registered_.size(); ++i) {
    const auto* base = static_cast<const char*>(registered_[i].iov_base);
    if (from >= base && from + op.bytes <= base + registered_[i].iov_len) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

std::unique_ptr<IoEngine> make_uring_io(int fd, uint32_t depth) { return std::make_unique<UringIo>(fd, depth); }
#else
std::unique_ptr<IoEngine> make_uring_io(int, uint32_t) {
  fail(DDH_UNAVAILABLE, "this plugin was built without liburing");
}
#endif

}  // namespace DDH_HIDDEN
}  // namespace ddh
