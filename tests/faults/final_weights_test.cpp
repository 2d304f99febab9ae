// SPDX-License-Identifier: Apache-2.0
//
// train.save_final: other programs, full disks, removed folders and deaths during the run cost neither the weights nor
// another file.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

Words words_for(const TempFolder& folder, const std::string& name, const Words& more = {}) {
  Words words = {"--model", toy_model(),           "--strategy",     "zero2",          "--nproc",
                 "2",       "run.sample_tokens=0", "run.quiet=true", "train.steps=20", "run.dir=" + folder.file(name)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Ended {
  int code;
  std::string err;
};
Ended run(const Words& words) {
  Process process(words);
  const int code = process.wait();
  return {code, process.err()};
}

// Lets a run of many steps begin, stops all of its processes, does something, and lets it go on to its end.
template <class Act>
Ended during_a_run(const TempFolder& folder, const Words& more, Act&& act, bool old_fs = false) {
  Words words = {"train.steps=3000"};
  words.insert(words.end(), more.begin(), more.end());
  Process process(words_for(folder, "run", words), [old_fs] {
    if (!old_fs) return;
    setenv("LD_PRELOAD", DDHOST_FAULT_POINTS, 1);
    setenv("DDH_FAULT_OLD", "1", 1);
  });
  const auto has_begun = [&] { return !read_text(folder.path() / "run" / "metrics.jsonl").empty(); };
  for (int i = 0; i < 20000 && !has_begun(); ++i) std::this_thread::sleep_for(1ms);
  kill(-process.pid(), SIGSTOP);
  REQUIRE(has_begun());
  act();
  kill(-process.pid(), SIGCONT);
  const int code = process.wait();
  return {code, process.err()};
}

bool is_weights(const fs::path& file) { return read_text(file).find("__metadata__") != std::string::npos; }

// The final weights of 20 steps, without any fault.
const std::string& reference() {
  static const std::string kReference = [] {
    const TempFolder folder;
    REQUIRE(run(words_for(folder, "run", {"train.save_final=" + folder.file("w.safetensors")})).code == 0);
    return read_text(folder.file("w.safetensors"));
  }();
  return kReference;
}

struct Fault {
  const char* kind;
  int at;               // number of the call in the folder "weights"
  bool old_fs = false;  // a file system without unnamed files
};
// Saves to the folder "weights", in which one call fails.
Ended run_with_fault(const TempFolder& folder, const Fault& fault) {
  const std::string counter = folder.file("counter");
  std::ofstream(counter, std::ios::binary) << std::string(8, '\0');
  fs::create_directory(folder.path() / "weights");
  Process process(words_for(folder, "run", {"train.save_final=" + folder.file("weights/w.safetensors")}), [&] {
    setenv("LD_PRELOAD", DDHOST_FAULT_POINTS, 1);
    setenv("DDH_FAULT_COUNTER", counter.c_str(), 1);
    setenv("DDH_FAULT_IN", folder.file("weights").c_str(), 1);
    setenv("DDH_FAULT", fault.kind, 1);
    setenv("DDH_FAULT_AT", std::to_string(fault.at).c_str(), 1);
    if (fault.old_fs) setenv("DDH_FAULT_OLD", "1", 1);
  });
  const int code = process.wait();
  return {code, process.err()};
}

}  // namespace

TEST_CASE("a second run with the same file of final weights is refused at its start", "[faults]") {
  const TempFolder folder;
  fs::create_directory_symlink(folder.path(), folder.path() / "link");
  Ended second{};
  const Ended first = during_a_run(folder, {"train.save_final=" + folder.file("w.safetensors")}, [&] {
    second = run(words_for(folder, "second", {"train.save_final=" + folder.file("link/./w.safetensors")}));
  });
  CHECK(second.code == 1);
  CHECK_THAT(second.err, Catch::Contains("w.safetensors' is the train.save_final of a run that has not ended"));
  CHECK(first.code == 0);
  CHECK(is_weights(folder.file("w.safetensors")));
  CHECK(run(words_for(folder, "second", {"train.save_final=" + folder.file("v.safetensors")})).code == 0);
}

TEST_CASE("a file that appears during the run is not overwritten, and the weights get another name", "[faults]") {
  const TempFolder folder;
  const Ended end = during_a_run(folder, {"train.save_final=" + folder.file("w.safetensors")}, [&] {
    std::ofstream(folder.file("w.safetensors")) << "precious";
    fs::create_symlink("nowhere", folder.file("w-2.safetensors"));
  });
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("not overwritten; the weights are in '" + folder.file("w-3.safetensors")));
  CHECK(read_text(folder.file("w.safetensors")) == "precious");
  CHECK(is_weights(folder.file("w-3.safetensors")));
}

TEST_CASE("a name for the final weights that the run itself needs is refused", "[faults]") {
  const TempFolder folder;
  fs::create_directories(folder.path() / "run" / "checkpoints");
  fs::create_directory_symlink("run", folder.path() / "link");
  for (const char* name :
       {"run/metrics.jsonl", "run/config.json", "run/log.txt", "run/metrics.csv", "run/checkpoints/latest",
        "run/checkpoints/w.safetensors", "link/config.json", "run/../link/./log.txt"}) {
    const Ended end =
        run(words_for(folder, "run", {"--monitor", "jsonl,csv", std::string("train.save_final=") + folder.file(name)}));
    INFO(name << ": " << end.err);
    CHECK(end.code == 1);
    CHECK_THAT(end.err, Catch::Contains("where the run writes files of its own"));
  }
  const Ended good = run(words_for(folder, "run", {"train.save_final=" + folder.file("run/w.safetensors")}));
  INFO(good.err);
  CHECK(good.code == 0);
  CHECK((read_text(folder.file("run/w.safetensors")) == reference()));
}

// On another disk than the run's folder, and on an old file system, the content is copied.
TEST_CASE("the run's folder gets the weights if their folder was removed during the run", "[faults]") {
  const bool old_fs = GENERATE(false, true);
  const bool other_disk = GENERATE(false, true) && fs::is_directory("/dev/shm");
  const TempFolder folder;
  const fs::path target = other_disk ? fs::path("/dev/shm") / folder.path().filename() : folder.path() / "weights";
  fs::create_directory(target);
  const Ended end = during_a_run(
      folder, {"train.save_final=" + (target / "w.safetensors").string()}, [&] { fs::remove_all(target); }, old_fs);
  INFO(target << (old_fs ? ", old" : ""));
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains((target / "w.safetensors").string() + "' can't be created: No such file") &&
                          Catch::Contains("the weights are in '" + folder.file("run/w.safetensors")));
  CHECK(is_weights(folder.file("run/w.safetensors")));
}

TEST_CASE("a disk without room for the final weights is an error before the first step", "[faults]") {
  const bool old_fs = GENERATE(false, true);
  const TempFolder folder;
  const Ended end = run_with_fault(folder, {"enospc", 1, old_fs});
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("weights/w.safetensors': No space left on device"));
  CHECK(fs::is_empty(folder.path() / "weights"));
  CHECK_FALSE(fs::exists(folder.path() / "run" / "metrics.jsonl"));  // the next run can use the folder
}

// With the last calls the file is complete, and only its name or the sync of its folder fails.
TEST_CASE("the run's folder gets the weights if the disk of the target fails", "[faults]") {
  const bool old_fs = GENERATE(false, true);
  const char* const kind = GENERATE("enospc", "eio");
  int kept = 0;
  for (int at = 5; at < 42; at += 5) {  // the first calls are those of the start
    const TempFolder folder;
    const Ended end = run_with_fault(folder, {kind, at, old_fs});
    INFO(kind << " at call " << at << (old_fs ? ", old" : "") << ": " << end.err);
    if (end.code == 0) {
      CHECK((read_text(folder.file("weights/w.safetensors")) == reference()));
      continue;
    }
    ++kept;
    CHECK(end.code == 1);
    CHECK_THAT(end.err, Catch::Contains("the weights are in '" + folder.file("run/w.safetensors")));
    CHECK((read_text(folder.file("run/w.safetensors")) == reference()));
  }
  CHECK(kept > 3);
}

TEST_CASE("a rank that is killed while it saves leaves nothing in the folder of the weights", "[faults]") {
  const bool old_fs = GENERATE(false, true);
  const TempFolder folder;
  const Ended end = run_with_fault(folder, {"kill", 4, old_fs});
  CHECK(end.code == 1);
  CHECK_THAT(end.err, Catch::Contains("killed by signal 9"));
  CHECK(fs::is_empty(folder.path() / "weights"));
}

TEST_CASE("a file system without unnamed files gets the same file, and never loses another one", "[faults]") {
  const TempFolder folder;
  const Ended end = run_with_fault(folder, {"none", 0, true});
  INFO(end.err);
  CHECK(end.code == 0);
  CHECK((read_text(folder.file("weights/w.safetensors")) == reference()));
  CHECK(std::distance(fs::directory_iterator(folder.path() / "weights"), fs::directory_iterator()) == 1);
  for (const auto& entry : fs::directory_iterator(folder.path() / "run"))
    CHECK_FALSE(entry.path().filename().string().starts_with("."));
}
