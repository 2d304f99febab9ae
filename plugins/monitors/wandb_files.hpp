// SPDX-License-Identifier: Apache-2.0
//
// The folders and files of W&B runs that are not sent yet: wandb/offline-run-DATE-ID in the folder of a run, with run-ID.wandb
// (wandb_log.hpp). `wandb sync` puts more files into its folder files.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

// A run that was recorded before.
struct Earlier {
  fs::path folder;
  std::string id;
  std::vector<std::string> records;
};

// What the newest run of this monitor in `root` has recorded, up to the first record that is not whole. Other programs' runs
// are left alone.
inline std::optional<Earlier> find_earlier(const fs::path& root) {
  std::error_code ec;
  std::optional<Earlier> found;
  for (fs::directory_iterator at(root, ec), end; !ec && at != end; at.increment(ec)) {
    const std::string name = at->path().filename().string();
    const size_t dash = name.find('-', kFolder.size());
    if (!name.starts_with(kFolder) || dash == std::string::npos) continue;
    if (found && name < found->folder.filename().string()) continue;
    const std::string id = name.substr(dash + 1), file = file_in(at->path(), id);
    if (std::error_code none; !fs::is_regular_file(fs::symlink_status(file, none))) continue;
    Earlier one{at->path(), id, {}};
    const std::string bytes = ddh::read_input(file, {"file of W&B", "move it away, or give another run.dir"});
    wandb_log::Reader reader(bytes);
    while (std::optional<std::string> record = reader.next()) one.records.push_back(*std::move(record));
    pb::Record first;
    if (!one.records.empty() && first.ParseFromString(one.records.front()) &&
        first.header().version_info().producer() == kProducer)
      found = std::move(one);
  }
  return found;
}

// The records of rows up to `step`, of events, and of the configuration. Left out are what comes after them, the summary of the
// whole run and its end.
inline std::vector<std::string> kept_records(const std::vector<std::string>& records, int64_t step) {
  std::vector<std::string> out;
  bool is_kept_row = true;  // the last row; values of the device follow their row
  for (const std::string& bytes : records) {
    pb::Record record;
    if (!record.ParseFromString(bytes)) break;
    bool is_kept = !record.has_exit();
    if (record.has_history()) is_kept = is_kept_row = record.history().step().num() <= step;
    if (record.has_stats()) is_kept = is_kept_row;
    if (record.has_summary()) {
      is_kept = false;
      for (const pb::Item& item : record.summary().item())
        if (item.key() == "_step") is_kept = std::atoll(item.value_json().c_str()) <= step;
    }
    if (is_kept) out.push_back(bytes);
  }
  return out;
}

// Appends records to a file. The file of an earlier part of the run is there until the new one has the records that stay.
class Writer {
 public:
  Writer(const fs::path& folder, const std::string& id, const std::vector<std::string>& kept) {
    const std::string path = file_in(folder, id), hidden = (folder / (".run-" + id + ".wandb.new")).string();
    std::error_code ec;
    fs::create_directories(folder / "files", ec);
    if (ec) fail(folder.string(), ec.message());
    ddh::OutputFile(folder / ".ddhost");  // `ddhost runs rm` may remove it, and not other programs' runs beside it
    file_ = ddh::OutputFile(hidden);
    write(wandb_log::kBegin);
    for (const std::string& record : kept) add(record);
    if (std::rename(hidden.c_str(), path.c_str()) != 0) fail(path, std::strerror(errno));
    fs::remove(path + ".synced", ec);  // with it `wandb sync --sync-all` would leave the rest out
  }

  void add(const std::string& record) { write(wandb_log::framed(size_, record)); }

 private:
  [[noreturn]] static void fail(const std::string& path, const std::string& why) {
    ddh::fail(DDH_PERMISSION_DENIED, "cannot write '", path, "': ", why, "; give another run.dir");
  }
  void write(std::string_view bytes) {
    file_.write(bytes);
    size_ += bytes.size();
  }

  ddh::OutputFile file_;
  uint64_t size_ = 0;
};

}  // namespace wandb_files
