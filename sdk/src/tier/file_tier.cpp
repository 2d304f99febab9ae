// SPDX-License-Identifier: Apache-2.0
//
// The file of a tier: made without a name, reserved at the start, and its transfers with their checksums.
#include "ddh/sdk/tier/file_tier.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ddh/sdk/tier/checksum.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {
// Without it, a limit on file sizes (ulimit -f) would end the process by a signal, without an error message.
class SilentFileLimit {
 public:
  SilentFileLimit() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  SilentFileLimit(const SilentFileLimit&) = delete;
  SilentFileLimit& operator=(const SilentFileLimit&) = delete;
  ~SilentFileLimit() {
    const timespec now{};
    sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_, before_;
};
}  // namespace

FileTier::FileTier(const Host& host, FileTierSettings settings)
    : Tier(settings.tile_bytes), host_(host), settings_(std::move(settings)) {
  if (settings_.folder.empty())
    fail(DDH_INVALID_ARGUMENT, "offloading to nvme needs a folder on a fast disk; give ", settings_.folder_option);
}

FileTier::~FileTier() {
  for (auto& [handle, op] : ops_) finish_io(op);
  engine_.reset();
  if (fd_ >= 0) close(fd_);
}

size_t FileTier::add_cut(const std::string& name, int32_t, uint64_t bytes, uint64_t tensor_tile_bytes) {
  const uint64_t n_tiles = (bytes + tensor_tile_bytes - 1) / tensor_tile_bytes;
  tensors_.push_back({name, bytes, tensor_tile_bytes, tiles_.size(), file_bytes_});
  tiles_.resize(tiles_.size() + n_tiles);
  file_bytes_ += round_up(bytes);
  return tensors_.size() - 1;
}

void FileTier::reserve() {
  open_file();
  SilentFileLimit limit;
  int rc = 0;
  do {
    rc = file_bytes() == 0 || fallocate(fd_, 0, 0, static_cast<off_t>(file_bytes())) == 0 ? 0 : errno;
  } while (rc == EINTR);
  if (rc == EOPNOTSUPP) {
    if (ftruncate(fd_, static_cast<off_t>(file_bytes())) != 0) rc = errno;
    if (settings_.warns)
      host_.log(DDH_LOG_WARN, "the file system of '", settings_.folder,
                "' can't reserve room: if it fills up, the run ends when it writes there");
  }
  if (rc != 0 && rc != EOPNOTSUPP) {
    struct statvfs room {};
    statvfs(settings_.folder.c_str(), &room);
    fail(DDH_RESOURCE_EXHAUSTED, "no room for ", file_bytes(), " bytes of states in '", settings_.folder,
         "': ", std::strerror(rc), " (", uint64_t{room.f_bavail} * room.f_frsize,
         " bytes are free there); make room, raise the limit (ulimit -f), use more ranks, or give another ",
         settings_.folder_option);
  }
  engine_ = settings_.make_io(fd_, settings_.depth);
  for (uint32_t tag = settings_.depth; tag-- > 0;) free_tags_.push_back(tag);
}

Tier::Handle FileTier::begin_read(size_t tensor, uint64_t tile, void* buffer) {
  const size_t index = tensors_[tensor].first_tile + tile;
  if (tiles_[index].writer != kDone) settle(tiles_[index].writer);
  if (!tiles_[index].written) {
    std::memset(buffer, 0, bytes_of(tensor, tile));
    return kDone;
  }
  traffic_.read_bytes += round_up(bytes_of(tensor, tile));
  return begin(false, tensor, tile, buffer);
}

Tier::Handle FileTier::begin_write(size_t tensor, uint64_t tile, const void* buffer) {
  TileRecord& record = tiles_[tensors_[tensor].first_tile + tile];
  if (record.writer != kDone) settle(record.writer);
  record.written = true;
  record.checksum = checksum64(buffer, bytes_of(tensor, tile));
  traffic_.written_bytes += round_up(bytes_of(tensor, tile));
  record.writer = begin(true, tensor, tile, const_cast<void*>(buffer));
  return record.writer;
}

void FileTier::wait(Handle handle) {
  if (handle == kDone) return;
  const auto at = ops_.find(handle);
  if (at == ops_.end()) fail(DDH_INTERNAL, "transfer ", handle, " was waited for twice");
  const Time begin = Clock::now();
  finish_io(at->second);
  traffic_.wait_seconds += seconds(Clock::now() - begin);
  const Op op = at->second;
  ops_.erase(at);
  Handle& writer = tiles_[tile_index(op)].writer;
  if (writer == handle) writer = kDone;
  if (op.error != 0) fail_transfer(op);
  if (!op.is_write && checksum64(op.buffer, op.bytes) != tiles_[tile_index(op)].checksum) fail_checksum(op);
}

uint64_t FileTier::bytes_of(size_t tensor, uint64_t tile) const {
  const Tensor& t = tensors_[tensor];
  return std::min(t.tile_bytes, t.bytes - tile * t.tile_bytes);
}

void FileTier::open_file() {
  const char* folder = settings_.folder.c_str();
  fd_ = open(folder, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  is_direct_ = fd_ >= 0;
  if (fd_ < 0 && errno == EINVAL) fd_ = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) open_named_file();
  if (fd_ < 0) {
    fail(errno == ENOENT ? DDH_NOT_FOUND : DDH_PERMISSION_DENIED, "cannot make a file in '", folder,
         "': ", std::strerror(errno), "; give a folder on a fast disk with ", settings_.folder_option);
  }
  if (!settings_.warns) return;
  struct statfs fs {};
  if (fstatfs(fd_, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
    host_.log(DDH_LOG_WARN, "'", folder, "' is in memory (tmpfs), so offloading to it saves no memory; give a folder",
              " on a disk with ", settings_.folder_option);
  if (!is_direct_)
    host_.log(DDH_LOG_WARN, "the file system of '", folder, "' has no O_DIRECT: reads and writes go through the",
              " system's cache, which takes memory and time");
}

void FileTier::open_named_file() {
  std::string name = settings_.folder + "/ddhost-XXXXXX";
  fd_ = mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0) return;
  unlink(name.c_str());
  is_direct_ = fcntl(fd_, F_SETFL, O_DIRECT) == 0;
}

Tier::Handle FileTier::begin(bool is_write, size_t tensor, uint64_t tile, void* buffer) {
  if (reinterpret_cast<uintptr_t>(buffer) % kAlignment != 0)
    fail(DDH_INVALID_ARGUMENT, "a buffer of a file tier begins on a boundary of ", kAlignment, " bytes");
  Op op{is_write, tensor, tile, static_cast<char*>(buffer), bytes_of(tensor, tile), 0};
  op.offset = tensors_[tensor].offset + tile * tensors_[tensor].tile_bytes;
  if (free_tags_.empty()) make_tag_free();
  op.tag = free_tags_.back();
  free_tags_.pop_back();
  op.start = Clock::now();
  Op& placed = ops_.emplace(++last_handle_, op).first->second;
  start_rest(placed);
  return last_handle_;
}

void FileTier::start_rest(Op& op) {
  engine_->start(op.tag, {op.is_write, op.buffer + op.done, round_up(op.bytes) - op.done, op.offset + op.done});
}

void FileTier::make_tag_free() {
  const auto oldest =
      std::find_if(ops_.begin(), ops_.end(), [](const auto& item) { return item.second.tag != kNoTag; });
  const Time begin = Clock::now();
  finish_io(oldest->second);
  traffic_.wait_seconds += seconds(Clock::now() - begin);
}

void FileTier::settle(Handle writer) {
  const auto at = ops_.find(writer);
  if (at != ops_.end()) finish_io(at->second);
}

void FileTier::finish_io(Op& op) {
  while (op.tag != kNoTag) {
    const IoEngine::Result result = engine_->finish(op.tag);
    if (result.bytes == -EINTR || result.bytes == -EAGAIN) {
      start_rest(op);
      continue;
    }
    // With O_DIRECT the rest must be aligned too.
    if (result.bytes > 0) op.done += static_cast<uint64_t>(result.bytes) / kAlignment * kAlignment;
    const bool stuck = result.bytes >= 0 && result.bytes < static_cast<int64_t>(kAlignment);
    if (result.bytes < 0) op.error = static_cast<int>(-result.bytes);
    if (stuck) op.error = op.is_write ? ENOSPC : kEnded;
    if (op.error == 0 && op.done < round_up(op.bytes)) {
      start_rest(op);
      continue;
    }
    free_tags_.push_back(std::exchange(op.tag, kNoTag));
    const Time busy_from = std::max(op.start, busy_until_);
    busy_until_ = std::max(result.end, busy_until_);
    if (result.end > busy_from) traffic_.busy_seconds += seconds(result.end - busy_from);
  }
}

std::string FileTier::place_of(const Op& op) const {
  return str("'", tensors_[op.tensor].name, "' (bytes ", op.offset, " to ", op.offset + op.bytes,
             " of this rank's file in '", settings_.folder, "')");
}

void FileTier::fail_transfer(const Op& op) const {
  if (op.error == kEnded)
    fail(DDH_DATA_LOSS, "cannot read ", place_of(op), ": the file ends before; check the disk or give another ",
         settings_.folder_option);
  const bool full = op.error == ENOSPC || op.error == EDQUOT || op.error == EFBIG;
  fail(full ? DDH_RESOURCE_EXHAUSTED : DDH_DATA_LOSS, "cannot ", op.is_write ? "write " : "read ", place_of(op), ": ",
       std::strerror(op.error), full ? "; make room" : "; check the disk", " or give another ",
       settings_.folder_option);
}

void FileTier::fail_checksum(const Op& op) const {
  fail(DDH_DATA_LOSS, "the file is damaged: ", place_of(op),
       " does not hold what was written there (another checksum); check the disk or give another ",
       settings_.folder_option);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
