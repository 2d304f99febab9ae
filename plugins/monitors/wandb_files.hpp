// SPDX-License-Identifier: Apache-2.0
//
// The folders and files of W&B runs that are not sent yet: wandb/offline-run-DATE-ID in the folder of a run, with run-ID.wandb
// (wandb_log.hpp). `wandb sync` puts more files into its folder files.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/monitor.hpp"
#include "wandb.pb.h"
#include "wandb_log.hpp"

namespace wandb_files {

namespace fs = std::filesystem;
namespace pb = ddhost::wandb;

constexpr std::string_view kFolder = "offline-run-", kProducer = "ddhost";

inline std::string file_in(const fs::path& folder, const std::string& id) {
  return (folder / ("run-" + id + ".wandb")).string();
}

// Calls `use` with each record of a file, up to the first that is not whole or for which it returns false. The file is mapped:
// it may have gigabytes. Returns the byte of a damage that it met, or nothing.
template <class Use>
std::optional<uint64_t> for_each_record(const std::string& file, Use&& use) {
  const ddh::MappedInput input(file, {"file of W&B", "move it away, or give another run.dir"});
  wandb_log::Reader reader(input.bytes());
  pb::Record record;
  for (uint64_t begin = reader.at();; begin = reader.at()) {
    const std::optional<std::string> bytes = reader.next();
    if (!bytes) break;
    if (!record.ParseFromString(*bytes)) return begin;
    if (!use(record, *bytes)) return std::nullopt;
  }
  return reader.is_damaged() ? std::optional(reader.at()) : std::nullopt;
}

// A run that was recorded before.
struct Earlier {
  fs::path folder;
  std::string id;
  int64_t start = 0;  // seconds since 1970
};

// The run of this monitor in `folder`, which is named offline-run-DATE-ID.
inline std::optional<Earlier> earlier_in(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const size_t dash = name.find('-', kFolder.size());
  std::error_code ec;
  if (!name.starts_with(kFolder) || dash == std::string::npos || fs::is_symlink(folder, ec)) return std::nullopt;
  Earlier out{folder, name.substr(dash + 1)};
  const std::string file = file_in(folder, out.id);
  if (!fs::is_regular_file(fs::symlink_status(file, ec))) return std::nullopt;
  bool is_ours = false;
  for_each_record(file, [&](const pb::Record& record, const std::string& /*bytes*/) {
    if (record.has_header()) is_ours = record.header().version_info().producer() == kProducer;
    if (record.has_run()) out.start = record.run().start_time().seconds();
    return is_ours && !record.has_run();
  });
  return is_ours ? std::optional(out) : std::nullopt;
}

// The newest run of this monitor in `root`, of those that have the id `given` if it is not empty. Other programs' runs are left
// alone.
inline std::optional<Earlier> find_earlier(const fs::path& root, const std::string& given) {
  std::error_code ec;
  std::optional<Earlier> found;
  if (!fs::exists(root, ec)) return found;
  for (fs::directory_iterator at(root, ec), end; !ec && at != end; at.increment(ec)) {
    const std::optional<Earlier> one = earlier_in(at->path());
    if (!one || (!given.empty() && one->id != given)) continue;
    if (!found || std::pair(one->start, one->folder) > std::pair(found->start, found->folder)) found = one;
  }
  if (ec)
    ddh::fail(DDH_PERMISSION_DENIED, "cannot read '", root.string(), "': ", ec.message(),
              "; let this user read it, or give another run.dir");
  return found;
}

// Which records of the part before stay: the rows up to `step`, the lines of the log, and the configuration. The rest goes:
// later rows, the summary of the whole run, its end, and the alert of a failure, because W&B tells people of it at each sync.
class Kept {
 public:
  // `replaced`: the step of a row that is written again, or -1.
  Kept(int64_t step, int64_t replaced) : step_(step), replaced_(replaced) {}

  bool operator()(const pb::Record& record) {
    if (record.has_history()) is_kept_row_ = record.history().step().num() <= step_;
    if (record.has_history()) return is_kept_row_ && record.history().step().num() != replaced_;
    if (record.has_stats()) return is_kept_row_;  // they follow their row
    if (!record.has_summary()) return !record.has_exit() && !record.has_alert();
    for (const pb::Item& item : record.summary().item()) {
      const int64_t step = std::atoll(item.value_json().c_str());
      if (item.key() == "_step") return step <= step_ && step != replaced_;
    }
    return false;
  }

 private:
  const int64_t step_, replaced_;
  bool is_kept_row_ = true;  // the last row
};

// Appends records to a file, which has its name when `publish` returns. The file of an earlier part of the run is there until
// then, and the new one is on the disk, so that a crash of the machine leaves one of them.
class Writer {
 public:
  Writer(const fs::path& folder, const std::string& id)
      : path_(file_in(folder, id)), hidden_((folder / (".run-" + id + ".wandb.new")).string()) {
    std::error_code ec;
    fs::create_directories(folder, ec);
    if (ec) fail(folder.string(), ec.message());
    // `ddhost runs rm` may remove this folder, but not other programs' runs beside it.
    const ddh::OutputFile mark(folder / ".ddhost");  // it is there from now on
    fs::create_directories(folder / "files", ec);
    if (ec) fail(folder.string(), ec.message());
    file_ = ddh::OutputFile(hidden_);
    put_bytes(wandb_log::kBegin);
  }

  // It is in the file after `flush`.
  void put(const std::string& record) {
    constexpr size_t kMostWaiting = size_t{1} << 20;
    put_bytes(wandb_log::framed(size_, record));
    if (waiting_.size() > kMostWaiting) flush();
  }
  void flush() {
    file_.write(waiting_);
    waiting_.clear();
  }

  // `keep_as`: another name that the file of the earlier part gets, unless an earlier one has it; empty: none.
  void publish(const std::string& keep_as) {
    flush();
    sync(hidden_);
    if (!keep_as.empty() && ::link(path_.c_str(), keep_as.c_str()) != 0 && errno != EEXIST)
      fail(keep_as, std::strerror(errno));
    if (std::rename(hidden_.c_str(), path_.c_str()) != 0) fail(path_, std::strerror(errno));
    sync(fs::path(path_).parent_path().string());
    std::error_code ec;
    fs::remove(path_ + ".synced", ec);  // with it `wandb sync --sync-all` would leave the rest out
  }

 private:
  [[noreturn]] static void fail(const std::string& path, const std::string& why) {
    ddh::fail(DDH_PERMISSION_DENIED, "cannot write '", path, "': ", why, "; give another run.dir");
  }
  // Not every file system can do it for a folder.
  static void sync(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const int error = fd < 0 || ::fsync(fd) != 0 ? errno : 0;
    if (fd >= 0) ::close(fd);
    if (error != 0 && error != EINVAL)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "cannot write '", path, "' to the disk: ", std::strerror(error),
                "; free some space or give another run.dir");
  }
  void put_bytes(std::string_view bytes) {
    waiting_ += bytes;
    size_ += bytes.size();
  }

  const std::string path_, hidden_;
  ddh::OutputFile file_;
  std::string waiting_;
  uint64_t size_ = 0;
};

}  // namespace wandb_files
