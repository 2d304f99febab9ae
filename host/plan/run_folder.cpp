// SPDX-License-Identifier: Apache-2.0
#include "plan/run_folder.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/durable.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/host_parts.hpp"
#include "checkpoint/memory_folder.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/run_history.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

bool is_own_name(const std::string& name) {
  return name == kRunLock || name == kRunHistory || name == "config.json" || name == "log.txt";
}

// What a new run in the folder would mix with or overwrite, or "".
std::string mark_in(const fs::path& folder) {
  std::error_code ec;  // what can't be looked up can't be created either, which says why
  if (fs::exists(folder / kRunLock, ec)) return kRunLock;
  for (const char* mark : {"config.json", "log.txt"})
    if (fs::is_regular_file(folder / mark, ec)) return mark;
  return list_checkpoints(folder).empty() ? "" : "checkpoints";
}

[[noreturn]] void refuse_folder(const fs::path& folder) {
  const std::string mark = mark_in(folder), of = ddh::str("run.dir '", folder.string(), "' ");
  RunLock lock;
  if (mark == kRunLock && lock.take(folder, RunLock::File::may_exist) == RunLock::Result::in_use)
    ddh::fail(DDH_ALREADY_EXISTS, of, "is in use by a run that has not ended; choose another folder, or leave run.dir ",
              "out to get a new one");
  const bool is_run = mark == kRunLock;
  ddh::fail(DDH_ALREADY_EXISTS, of, is_run ? "already holds a run (" : "already holds files that a run writes (", mark,
            "); choose another folder, or leave run.dir out to get a new one");
}

// "runs/gpt-zero3", or the first of -2, -3 ... that has no run.
fs::path free_folder(const fs::path& wanted) {
  fs::path candidate = wanted;
  for (int n = 2; !mark_in(candidate).empty(); ++n) candidate = wanted.string() + ddh::str("-", n);
  return candidate;
}

// The name of a folder in the run's folder.
void check_run_name(const std::string& name) {
  constexpr size_t kLongest = 200;  // file systems take 255 bytes, and "-2" may follow
  const bool is_plain = name.find('/') == std::string::npos && name != "." && name != "..";
  if (is_plain && name.size() <= kLongest) return;
  ddh::fail(
      DDH_INVALID_ARGUMENT, "run.name = \"", plain_text(name, kShownValue), "\" ",
      is_plain ? ddh::str("has ", name.size(), " bytes, but a folder's name takes ", kLongest) : "is not a plain name",
      "; give another name, or the folder as run.dir");
}

void remove_memory(const fs::path& run_dir, bool by_host, uint64_t run_id) {
  if (by_host) return remove_memory_folder_of(run_dir, run_id);
  RunLock lock;  // another launcher may wait for the folder, to go on from there
  if (lock.take(run_dir, RunLock::File::may_exist) == RunLock::Result::locked) remove_memory_folder(run_dir);
}

constexpr int kLockTries = 100;
constexpr std::chrono::milliseconds kLockPause{20};

// Creates and locks run.lock, which marks the folder of a run. Returns false if a run is there and this one does not
// continue it.
bool claim(PreparedRun& plan) {
  const bool goes_on = goes_on_in(plan.run_dir, plan.wish);
  if (!goes_on && !mark_in(plan.run_dir).empty()) return false;
  const auto lock = std::make_shared<RunLock>();
  const RunLock::File file = goes_on ? RunLock::File::may_exist : RunLock::File::must_be_new;
  RunLock::Result result = lock->take(plan.run_dir, file);
  // After a run was killed, its ranks end a moment later.
  for (int i = 0; goes_on && result == RunLock::Result::in_use && i < kLockTries; ++i) {
    std::this_thread::sleep_for(kLockPause);
    result = lock->take(plan.run_dir, file);
  }
  if (goes_on && result == RunLock::Result::in_use)
    ddh::fail(DDH_ALREADY_EXISTS, "run.dir '", plan.run_dir.string(),
              "' is in use by a run that has not ended; wait until it ends, or choose another folder");
  if (result != RunLock::Result::locked) return false;  // the folder is that of another run
  plan.lock = lock;
  return true;
}

// Writes a byte to a file in the folder of `path`, to detect a full disk or missing permissions before a long run. The file
// has no name where the file system allows that, so nothing stays if the process is killed.
void try_to_write(const char* key, const fs::path& path) {
  try {
    const NewFile file(path.parent_path(), path);
    file.data().write_at(0, "x", 1);
  } catch (const ddh::Error& error) {
    ddh::fail(DDH_PERMISSION_DENIED, key, ": ", error.what());
  }
}

void check_final_name(const fs::path& weights) {
  std::error_code ec;
  if (fs::is_directory(weights, ec))
    ddh::fail(DDH_INVALID_ARGUMENT, "train.save_final '", weights.string(), "' is a folder; give a file name");
  if (!weights.empty() && fs::exists(fs::symlink_status(weights, ec)))
    ddh::fail(DDH_ALREADY_EXISTS, "train.save_final '", weights.string(),
              "' exists already and is not overwritten; give another name or remove it");
}

// The run and its monitors write files into its folder. None of them ends in .safetensors, except in checkpoints/.
void check_final_place(const fs::path& weights, const fs::path& run_dir) {
  std::error_code ec;
  const fs::path folder = fs::weakly_canonical(weights.parent_path(), ec), own = fs::weakly_canonical(run_dir, ec);
  const fs::path inside = folder.lexically_relative(own);
  const bool is_outside = inside.empty() || *inside.begin() == "..";
  if (is_outside || (*inside.begin() != "checkpoints" && weights.extension() == ".safetensors")) return;
  ddh::fail(DDH_INVALID_ARGUMENT, "train.save_final '", weights.string(), "' is in the run's folder '",
            run_dir.string(), "', where the run writes files of its own; give a name that ends in .safetensors, ",
            "not in checkpoints/, or another folder");
}

void check_own_files(const fs::path& run_dir) {
  std::error_code ec;
  for (const char* name : {"log.txt", "config.json", kRunLock}) {
    const fs::file_status found = fs::status(run_dir / name, ec);
    if (fs::exists(found) && !fs::is_regular_file(found) && !fs::is_character_file(found))
      ddh::fail(DDH_ALREADY_EXISTS, "'", (run_dir / name).string(),
                "' is not a regular file, so the run can't write it; remove it or choose another run.dir");
  }
  const fs::path checkpoints = checkpoints_folder(run_dir);
  if (fs::exists(checkpoints, ec) && !fs::is_directory(checkpoints, ec))
    ddh::fail(DDH_ALREADY_EXISTS, "'", checkpoints.string(),
              "' is not a folder, so the run can't save checkpoints there; remove it or choose another run.dir");
  if (fs::is_directory(checkpoints, ec)) try_to_write("checkpoints", checkpoints / "latest");
}

// Creates the folder and notes what was there before.
void open_folder(PreparedRun& plan) {
  std::error_code ec;
  plan.before = {};
  const auto is_there = [](const fs::path& path) {  // also a link that leads nowhere
    std::error_code unused;
    return fs::exists(fs::symlink_status(path, unused));
  };
  for (fs::path folder = plan.run_dir; !is_there(folder) && folder.has_relative_path(); folder = folder.parent_path())
    plan.before.made.push_back(folder);
  fs::create_directories(plan.run_dir, ec);
  if (ec || !fs::is_directory(plan.run_dir, ec))
    ddh::fail(DDH_PERMISSION_DENIED, "run.dir '", plan.run_dir.string(),
              "' can't be created: ", ec ? ec.message() : "a file is in its place", "; choose another folder");
  for (fs::directory_iterator at(plan.run_dir, ec), end; !ec && at != end; at.increment(ec))
    plan.before.names.insert(at->path().filename().string());
  check_own_files(plan.run_dir);
  plan.before.numbers = read_step_numbers(plan.run_dir);
}

// Returns false if another run has the folder.
bool take_folder(PreparedRun& plan) {
  const fs::path weights = plan.config.text("train.save_final");
  open_folder(plan);
  try_to_write("run.dir", plan.run_dir / kRunLock);
  if (!weights.empty()) check_final_place(weights, plan.run_dir);
  if (!claim(plan)) return false;
  if (!weights.empty())
    plan.final_weights = std::make_shared<const FinalWeights>(weights, plan.run_dir, plan.has_other_launchers);
  return true;
}

// What a run has left in its folder, which was not there before: its own files and empty ones. None if there is something
// else, such as rows, a checkpoint or weights. In a folder of very many files only its own are known.
std::vector<fs::path> leftovers(const fs::path& run_dir, const FolderBefore& before) {
  std::vector<fs::path> out;
  std::error_code ec;
  for (fs::directory_iterator at(run_dir, ec), end; !ec && at != end; at.increment(ec)) {
    const std::string name = at->path().filename().string();
    if (before.names.contains(name) || (before.has_many && !is_own_name(name))) continue;
    if (!is_own_name(name) && !fs::is_empty(at->path(), ec)) return {};
    out.push_back(at->path());
  }
  // The mark goes last, so that a crash in between leaves the folder marked.
  std::partition(out.begin(), out.end(), [](const fs::path& path) { return path.filename() != kRunLock; });
  return out;
}

void remove_made(const FolderBefore& before) {
  for (const fs::path& folder : before.made) ::rmdir(folder.c_str());  // fails if it is not empty
}

// If the run has done no step, nothing stays that was not there. The caller holds the lock of the folder.
void leave_as_before(const fs::path& run_dir, const FolderBefore& before) {
  const std::optional<StepNumbers> numbers = read_step_numbers(run_dir);
  if (numbers && numbers != before.numbers && numbers->steps != numbers->begun) return;
  std::error_code ignored;
  for (const fs::path& file : leftovers(run_dir, before)) fs::remove(file, ignored);
  remove_made(before);
}

}  // namespace

void choose_run_folder(PreparedRun& plan) {
  std::string name = plan.config.text("run.name");
  const bool resumes_newest = plan.wish.from == ResumeWish::From::newest;
  if (resumes_newest && name.empty() && plan.config.text("run.dir").empty())
    ddh::fail(DDH_INVALID_ARGUMENT,
              "--resume auto takes the newest checkpoint of a run; say which run, with run.dir or ", "run.name");
  if (name.empty()) {
    name = plan.model.id() + "-" + plan.strategy.id();
    plan.config.set("run.name", name, "derived");
  }
  if (plan.config.text("run.dir").empty()) {
    check_run_name(name);
    const fs::path folder = fs::current_path() / "runs" / name;
    plan.config.set("run.dir", (resumes_newest ? folder : free_folder(folder)).string(), "derived");
  }
  plan.run_dir = plan.config.text("run.dir");
}

void make_run_folder(PreparedRun& plan) {
  const fs::path weights = plan.config.text("train.save_final");
  check_final_name(weights);
  // The file may be in the run's own folder, which is created below.
  if (!weights.empty() && weights.parent_path() != plan.run_dir) try_to_write("train.save_final", weights);
  try {
    while (!take_folder(plan)) {
      if (plan.config.find("run.dir")->source != "derived") refuse_folder(plan.run_dir);
      plan.config.set("run.dir", free_folder(plan.run_dir).string(), "derived");  // another run has taken the folder
      plan.run_dir = plan.config.text("run.dir");
    }
  } catch (...) {
    if (plan.lock != nullptr)
      leave_as_before(plan.run_dir, plan.before);
    else
      remove_made(plan.before);  // the folder may be that of another run
    throw;
  }
}

std::string folder_note(const PreparedRun& run) {
  const FolderBefore& before = run.before;
  const Config::Value* const memory_every = run.config.find("checkpoint.memory_every");
  Json note = {{"run_dir", run.run_dir.string()},
               {"by_host", run.memory_by_host},
               {"memory_every", memory_every == nullptr ? Json(0) : memory_every->value},
               {"is_new", run.wish.from == ResumeWish::From::none}};
  note["made"] = Json::array();
  for (const fs::path& folder : before.made) note["made"].push_back(folder.string());
  size_t bytes_of_names = 0;
  for (const std::string& name : before.names) bytes_of_names += name.size() + 9;  // and its length
  note["has_many"] = bytes_of_names > LoaderRecord::kMostFolderBytes / 2;
  note["names"] = Json::array();
  for (const std::string& name : before.names)
    if (note["has_many"] == false || is_own_name(name)) note["names"].push_back(name);
  note["hidden"] = Json::array();
  if (run.final_weights != nullptr)
    for (const fs::path& file : run.final_weights->hidden()) note["hidden"].push_back(file.string());
  note["numbers"] = Json::array();
  if (before.numbers)
    note["numbers"] = {before.numbers->begun, before.numbers->steps, before.numbers->saved, before.numbers->first_run};
  const std::vector<uint8_t> bytes = Json::to_cbor(note);  // takes names that are not UTF-8
  return {bytes.begin(), bytes.end()};
}

std::string member_note(const fs::path& run_dir) {
  const std::vector<uint8_t> bytes = Json::to_cbor(Json{{"member_of", run_dir.string()}});
  return {bytes.begin(), bytes.end()};
}

fs::path folder_of(const std::string& note) {
  const Json read = Json::from_cbor(note, /*strict=*/true, /*allow_exceptions=*/false);
  return read.is_object() && read.contains("run_dir") ? fs::path(read["run_dir"].get<std::string>()) : fs::path();
}

std::string end_memory(const std::string& note, const Outcome& end, uint64_t run_id) {
  const Json read = Json::from_cbor(note, /*strict=*/true, /*allow_exceptions=*/false);
  if (!read.is_object()) return "";
  const bool is_member = read.contains("member_of"), by_host = is_member || read["by_host"] == true;
  const fs::path run_dir = is_member ? fs::path(read["member_of"].get<std::string>()) : folder_of(note);
  if (run_dir.empty()) return "";
  try {
    const fs::path folder = memory_folder(run_dir);
    const bool is_there = has_memory_folder(run_dir);
    std::vector<CheckpointPlace> in_memory, of_others;
    if (is_there) in_memory = list_checkpoints(memory_root(run_dir, by_host));
    if (is_there) of_others = list_checkpoints(memory_root(run_dir, !by_host));  // which choose_newest has refused
    const std::vector<CheckpointPlace> on_disk = list_checkpoints(run_dir);
    const auto newer = [&](const std::vector<CheckpointPlace>& places) {
      return !places.empty() && (on_disk.empty() || on_disk.front().step < places.front().step);
    };
    const bool stays = end.lost_head ? !in_memory.empty() : end.exit_code != 0 && newer(in_memory);
    if (is_there && !stays && !(end.exit_code != 0 && newer(of_others))) remove_memory(run_dir, by_host, run_id);
    const std::string cure = ddh::str("--resume auto goes on from ", by_host ? "them" : "it", ", `ddhost runs rm ",
                                      run_dir.string(), "` removes ", by_host ? "those of its own host" : "it");
    if (stays && !by_host)
      return ddh::str("the checkpoint of step ", in_memory.front().step, " stays in memory (", folder.string(),
                      "): ", cure);
    if (stays && end.lost_head)
      return ddh::str("the parts of checkpoints in the memory of this host stay (", folder.string(), "): ", cure);
    // A head without ranks has no parts itself.
    const int64_t every = by_host && !is_member ? read["memory_every"].get<int64_t>() : 0;
    const StepNumbers numbers = read_step_numbers(run_dir).value_or(StepNumbers{});
    const int64_t saved = every > 0 ? numbers.steps / every * every : 0;
    if (end.exit_code != 0 && saved > numbers.begun && (on_disk.empty() || on_disk.front().step < saved))
      return ddh::str("the hosts keep their parts of checkpoints in memory (", folder.parent_path().string(),
                      "): ", cure);
  } catch (const ddh::Error&) {
    // The folder is gone or can't be read; the run has said so.
  }
  return "";
}

void clean_up_folder(const std::string& note, bool has_failed) {
  const Json read = Json::from_cbor(note, /*strict=*/true, /*allow_exceptions=*/false);
  if (!read.is_object() || !read.contains("run_dir")) return;
  for (const Json& file : read["hidden"]) ::unlink(file.get<std::string>().c_str());
  if (!has_failed && read["is_new"] == true) return;
  const fs::path run_dir = read["run_dir"].get<std::string>();
  FolderBefore before;
  for (const Json& folder : read["made"]) before.made.emplace_back(folder.get<std::string>());
  before.names = read["names"].get<std::set<std::string>>();
  before.has_many = read["has_many"].get<bool>();
  if (const Json& n = read["numbers"]; !n.empty()) before.numbers = StepNumbers{n[0], n[1], n[2], n[3]};
  try {
    RunLock lock;
    if (lock.take(run_dir, RunLock::File::may_exist) != RunLock::Result::locked) return;
    if (has_failed) remove_leftovers(run_dir);
    leave_as_before(run_dir, before);
  } catch (const ddh::Error&) {
    // The folder is gone or can't be written; the run has said so.
  }
}

}  // namespace ddhost
