// SPDX-License-Identifier: Apache-2.0
//
// cli/runs_remove.cpp: `ddhost runs rm`. It removes the files that a run writes, and the folder if nothing else is in it.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <iterator>
#include <string_view>

#include "base/json.hpp"
#include "base/text.hpp"
#include "checkpoint/memory_folder.hpp"
#include "cli/commands.hpp"
#include "cli/runs.hpp"
#include "ddh/sdk/plugin.hpp"
#include "draw/text.hpp"
#include "engine/record/run_history.hpp"
#include "engine/record/step_count.hpp"
#include "plan/run_folder.hpp"
#include "plan/run_lock.hpp"
#include "report/page.hpp"
#include "report/past_run.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// A monitor that writes a folder puts a file of this name into it (docs/writing-a-monitor.md).
constexpr const char* kFolderMark = ".ddhost";

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code ec;
  for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) out.push_back(at->path());
  return out;
}

// rank-N.txt
bool is_output_file(std::string_view name) {
  constexpr std::string_view kBegin = "rank-", kEnd = ".txt";
  if (name.size() <= kBegin.size() + kEnd.size() || !name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  const std::string_view number = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  return std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_marked(const fs::path& folder) {
  std::error_code ec;
  return fs::is_directory(fs::symlink_status(folder, ec)) && fs::is_regular_file(folder / kFolderMark, ec);
}

// Another program may have a folder of this name.
bool is_output(const fs::path& folder) {
  if (folder.filename() != kOutputFolder) return false;
  const std::vector<fs::path> entries = entries_of(folder);
  return std::all_of(entries.begin(), entries.end(), [](const fs::path& file) {
    std::error_code ec;
    return fs::is_regular_file(fs::symlink_status(file, ec)) && is_output_file(file.filename().string());
  });
}

// "profile-2.json"
bool is_later_profile(const std::string& name) {
  constexpr std::string_view kBegin = "profile-", kEnd = ".json";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  const std::string number = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  return !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
}

// Files of the host and of monitors.
bool is_of_run(const fs::path& file) {
  constexpr std::array<const char*, 6> kNames = {kRunLock,      kRunHistory, kReportFile,
                                                 "config.json", "log.txt",   "profile.json"};
  const std::string name = file.filename().string();
  std::error_code ec;
  if (fs::is_symlink(file, ec)) return false;
  if (fs::is_directory(file, ec))
    return name == "checkpoints" || name == "events" || is_output(file) || is_marked(file);
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || name.starts_with("metrics.") ||
         name.starts_with("metrics_eval.") || name.starts_with("events.") || name.starts_with("trace-steps-") ||
         is_later_profile(name) || name.ends_with(".safetensors");
}

// Files that no run writes. A folder that a monitor shares with other programs is judged by its entries.
std::vector<fs::path> others_in(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const fs::path& file : entries_of(folder)) {
    if (is_of_run(file)) continue;
    std::error_code ec;
    std::vector<fs::path> inner;
    if (fs::is_directory(fs::symlink_status(file, ec))) inner = entries_of(file);
    if (std::none_of(inner.begin(), inner.end(), is_marked)) inner = {file};
    std::copy_if(inner.begin(), inner.end(), std::back_inserter(out), [](const auto& one) { return !is_marked(one); });
  }
  return out;
}

// Seconds since something in the folder was written.
double age_of(const fs::path& folder) {
  std::error_code ec;
  fs::file_time_type newest = fs::last_write_time(folder, ec);
  for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
    std::error_code one;
    if (at->path().filename() == kReportFile) continue;  // `runs show --html` writes it again
    if (const fs::file_time_type time = fs::last_write_time(at->path(), one); !one) newest = std::max(newest, time);
  }
  return std::chrono::duration<double>(fs::file_time_type::clock::now() - newest).count();
}

std::vector<fs::path> candidates(const RunsArgs& args) {
  std::vector<fs::path> out;
  for (const std::string& word : args.runs) {
    const fs::path folder = named_run(args, word);
    std::error_code ec;
    const auto is_same = [&](const fs::path& other) { return fs::equivalent(folder, other, ec) && !ec; };
    if (std::none_of(out.begin(), out.end(), is_same)) out.push_back(folder);  // one that is named twice counts once
  }
  if (!args.runs.empty()) return out;
  if (!args.older_s)
    ddh::fail(DDH_INVALID_ARGUMENT, "runs rm needs to know what to remove; name runs, or give --older 30d");
  std::error_code ec;
  for (fs::directory_iterator at(args.folder, ec), end; !ec && at != end; at.increment(ec))
    if (!at->is_symlink(ec) && is_run_folder(at->path())) out.push_back(at->path());
  std::sort(out.begin(), out.end());
  return out;
}

struct Removal {
  fs::path folder;
  std::string refused;  // why not; empty: it can be removed
};

std::string refusal(const RunsArgs& args, const fs::path& folder) {
  std::error_code ec;
  if (fs::is_symlink(folder, ec)) return "it is a symbolic link; give the folder itself";
  if (is_alive(folder)) return "its run has not ended";
  const std::vector<fs::path> others = others_in(folder);
  if (others.empty() || args.all_files) return "";
  return ddh::str("it holds ", counted(others.size(), "file"), " that no run writes, such as '",
                  one_line(others.front().lexically_relative(folder).string()),
                  "'; add --all-files to remove everything in it");
}

// "no" is the answer where nobody can be asked.
bool is_confirmed(size_t runs, uint64_t bytes) {
  std::cerr << "remove " << counted(runs, "run") << " with " << bytes_text(bytes) << "? [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// Returns why it was not removed, or "". The lock is held meanwhile, so that no run begins there.
std::string remove_run(const fs::path& folder) {
  try {
    RunLock lock;
    if (lock.take(folder, RunLock::File::may_exist) != RunLock::Result::locked) return "its run has not ended";
    std::error_code ec, failed;
    for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
      if (at->path().filename() == kRunLock) continue;
      std::error_code one;
      fs::remove_all(at->path(), one);
      if (one) failed = one;
    }
    if (failed) return failed.message();
    remove_memory_folder(folder);  // of a run that was killed with its launcher
    // The mark goes last, so that what is left after a crash is still a run.
    fs::remove(folder / kRunLock, ec);
    if (!ec) fs::remove(folder, ec);
    return ec ? ec.message() : "";
  } catch (const std::exception& error) {
    return plain_text(sentence_of(error));
  }
}

}  // namespace

int remove_runs(const RunsArgs& args, std::ostream& out) {
  std::vector<Removal> all;
  uint64_t bytes = 0;
  size_t n = 0;
  for (const fs::path& folder : candidates(args)) {
    if (args.older_s && age_of(folder) < *args.older_s) continue;
    // Without names, runs that go on are none of those that are meant.
    if (args.runs.empty() && is_alive(folder)) {
      print_sentence(ddh::str("'", one_line(folder.string()), "' is left out: its run has not ended"));
      continue;
    }
    all.push_back({folder, refusal(args, folder)});
    if (!all.back().refused.empty()) continue;
    ++n;
    const uint64_t size = read_past_run(folder, Rows::few).bytes;
    bytes += size;
    if (!args.json) out << one_line(folder.string()) << "  " << bytes_text(size) << '\n';
  }
  if (!out.flush()) throw OutputError();
  if (n > 0 && !args.yes && !is_confirmed(n, bytes)) {
    print_sentence("nothing was removed; answer y, or give --yes");
    return 1;
  }
  Json removed = Json::array(), kept = Json::array();
  for (Removal& one : all) {
    if (one.refused.empty()) one.refused = remove_run(one.folder);
    if (one.refused.empty()) {
      removed.push_back(one.folder.string());
      continue;
    }
    kept.push_back({{"folder", one.folder.string()}, {"reason", one.refused}});
    print_sentence(ddh::str("'", one_line(one.folder.string()), "' was not removed: ", one.refused));
  }
  if (args.json)
    out << json_document({{"removed", removed}, {"kept", kept}, {"bytes", bytes}});
  else
    out << "removed " << counted(removed.size(), "run") << '\n';
  return kept.empty() ? 0 : 1;
}

}  // namespace ddhost
