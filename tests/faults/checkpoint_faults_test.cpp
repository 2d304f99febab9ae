// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of runs that die, of disks that fail and of bytes that change: a resumed run has the bits of an
// uninterrupted one, or is refused with an error; never anything else.
#include <catch2/catch.hpp>
#include <cstring>

#include "checkpoint/checkpoint_folder.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr int kSteps = 6;

// A run of six steps on two ranks, small so that a save has few calls. It saves after steps 2, 4 and 6.
Words words_for(const fs::path& run_dir, const Words& more = {}) {
  Words words = {"--model",           toy_model(),          "model.layers=1",        "run.quiet=true",
                 "optimizer.lr=0.01", "run.nproc=2",        "strategy.plugin=zero1", "checkpoint.every=2",
                 "train.steps=6",     "train.eval_every=2", "train.eval_batches=2",  "data.micro_batch=2"};
  words.push_back("run.dir=" + run_dir.string());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Outcome {
  int code;
  std::string err;
};
Outcome run(const Words& words) {
  Process process(words);
  const int code = process.wait();
  return {code, process.err()};
}

// The output of an uninterrupted run.
struct Reference {
  std::string rows, weights;
};
const Reference& reference() {
  static const Reference kReference = [] {
    const TempFolder folder;
    REQUIRE(run(words_for(folder.path() / "run", {"train.save_final=" + folder.file("final.st")})).code == 0);
    return Reference{rows_of(folder.path() / "run"), read_text(folder.file("final.st"))};
  }();
  return kReference;
}

// Resumes the run in a folder under another strategy and with another number of ranks; it must end as the reference.
void check_goes_on(const TempFolder& folder) {
  const Outcome resumed =
      run(words_for(folder.path() / "run", {"--resume", "auto", "train.save_final=" + folder.file("final.st"),
                                            "strategy.plugin=zero3", "run.nproc=1", "train.grad_accum_steps=2"}));
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(rows_of(folder.path() / "run") == reference().rows);
  CHECK((read_text(folder.file("final.st")) == reference().weights));
}

// A run under tests/fixtures/faults/fault_points.c.
struct Faulty {
  int code;
  int64_t calls;  // that were counted
  std::string err;
};
Faulty run_with_fault(const TempFolder& folder, const char* fault, int64_t at, const Words& more = {}) {
  const std::string counter = folder.file("counter");
  std::ofstream(counter, std::ios::binary) << std::string(8, '\0');
  Process process(words_for(folder.path() / "run", more), [&] {
    setenv("LD_PRELOAD", DDHOST_FAULT_POINTS, 1);
    setenv("DDH_FAULT_COUNTER", counter.c_str(), 1);
    setenv("DDH_FAULT", fault, 1);
    setenv("DDH_FAULT_AT", std::to_string(at).c_str(), 1);
  });
  Faulty out{process.wait(), 0, process.err()};
  const std::string bytes = read_text(counter);
  std::memcpy(&out.calls, bytes.data(), sizeof out.calls);
  return out;
}

// Of a model whose tensors are written past the page cache: a save has few calls, with megabytes each.
const Words kLarge = {"model.layers=2", "model.width=512",    "model.hidden=2048",  "model.vocab=31",
                      "train.steps=2",  "checkpoint.every=1", "data.micro_batch=1", "model.deviation=0.02"};

int64_t calls_of_a_run(const Words& more = {}) {
  const TempFolder folder;
  const Faulty whole = run_with_fault(folder, "none", 0, more);
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  REQUIRE(whole.calls > 40);
  return whole.calls;
}

// Every `stride`-th call of a run fails once; the run is resumed after each failure. Returns the number of failures.
int64_t check_points(const char* fault, int64_t stride) {
  const int64_t calls = calls_of_a_run();
  int64_t tried = 0;
  for (int64_t at = 1; at <= calls; at += stride, ++tried) {
    const TempFolder folder;
    const Faulty faulty = run_with_fault(folder, fault, at);
    INFO(fault << " at call " << at << " of " << calls << ": " << faulty.err);
    CHECK(faulty.code != 0);
    check_goes_on(folder);
  }
  return tried;
}

void flip_bit(const fs::path& file, uint64_t at) {
  std::fstream in_out(file, std::ios::in | std::ios::out | std::ios::binary);
  in_out.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(in_out.get() ^ 1);
  in_out.seekp(static_cast<std::streamoff>(at));
  in_out.put(byte);
}

// The error that names the damage, or "" if there is none.
std::string damage_of(const fs::path& checkpoint) {
  return sentence_of([&] { ddhost::verify_tensors(checkpoint, ddhost::open_checkpoint(checkpoint)); });
}

}  // namespace

TEST_CASE("a run that was ended by kill -9 resumes under another strategy on half the ranks", "[faults]") {
  const Words long_run = {"train.steps=60", "checkpoint.every=5", "model.layers=3"};
  const TempFolder whole, killed;
  Words words = long_run;
  words.insert(words.end(),
               {"strategy.plugin=fsdp", "train.save_final=" + whole.file("final.st"), "train.grad_accum_steps=2"});
  REQUIRE(run(words_for(whole.path() / "run", words)).code == 0);
  {
    Words four = long_run;
    four.insert(four.end(), {"strategy.plugin=zero3", "run.nproc=4", "comm.plugin=loop", "train.steps=60"});
    Process process(words_for(killed.path() / "run", four));
    const fs::path seventh = killed.path() / "run" / "checkpoints" / "step-20";
    for (int i = 0; i < 20000 && !fs::exists(seventh); ++i) std::this_thread::sleep_for(1ms);
    REQUIRE(fs::exists(seventh));
    kill(-process.pid(), SIGKILL);
    REQUIRE(process.wait() != 0);
  }
  words.insert(words.end(), {"--resume", "auto", "train.save_final=" + killed.file("final.st")});
  const Outcome resumed = run(words_for(killed.path() / "run", words));
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(rows_of(killed.path() / "run") == rows_of(whole.path() / "run"));
  CHECK((read_text(killed.file("final.st")) == read_text(whole.file("final.st"))));
}

TEST_CASE("a run that dies at any call of a save resumes with the same bits", "[faults]") {
  const int64_t killed = check_points("kill_all", 7);
  WARN(killed << " kill points of all processes");
}

// The best evaluation is not the last one, so that keep_last would remove its checkpoint.
TEST_CASE("a run that dies at any call of a save keeps the checkpoint of the best evaluation", "[faults]") {
  const Words best = {"checkpoint.best.metric=loss", "checkpoint.keep_last=1"};
  const TempFolder whole;
  const Faulty unbroken = run_with_fault(whole, "none", 0, best);
  REQUIRE(unbroken.code == 0);
  const fs::path link = fs::path("run") / "checkpoints" / "best";
  const fs::path expected = fs::read_symlink(whole.path() / link);
  REQUIRE(expected != "step-6");
  int64_t killed = 0;
  for (int64_t at = 41; at <= unbroken.calls; at += 9, ++killed) {
    const TempFolder folder;
    const Faulty faulty = run_with_fault(folder, "kill_all", at, best);
    INFO("call " << at << " of " << unbroken.calls << ": " << faulty.err);
    CHECK(faulty.code != 0);
    Words again = best;
    again.insert(again.end(), {"--resume", "auto", "strategy.plugin=zero3", "run.nproc=1", "train.grad_accum_steps=2"});
    const Outcome resumed = run(words_for(folder.path() / "run", again));
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    CHECK(rows_of(folder.path() / "run") == reference().rows);
    CHECK(fs::read_symlink(folder.path() / link) == expected);
    CHECK(damage_of(folder.path() / link).empty());
    CHECK(ddhost::list_checkpoints(folder.path() / "run").front().step == 6);
  }
  CHECK(killed > 8);
}

TEST_CASE("a disk that is full, or fails, at any call of a save ends the run with a sentence and loses nothing",
          "[faults]") {
  const char* const fault = GENERATE("enospc", "eio");
  const int64_t calls = calls_of_a_run();
  int64_t refused = 0;
  for (int64_t at = 5; at <= calls; at += 23) {
    const TempFolder folder;
    const Faulty faulty = run_with_fault(folder, fault, at);
    INFO(fault << " at call " << at << " of " << calls << ": " << faulty.err);
    // A removal that fails only gives a warning.
    if (faulty.code != 0) {
      ++refused;
      CHECK_THAT(faulty.err, Catch::Contains("No space left") || Catch::Contains("Input/output error"));
    }
    check_goes_on(folder);
  }
  CHECK(refused > 0);
}

int64_t check_large_points(const std::string& fault, int64_t stride) {
  Words large = kLarge;
  large.push_back(GENERATE("checkpoint.async=true", "checkpoint.async=false"));
  const int64_t calls = calls_of_a_run(large);
  const TempFolder whole;
  REQUIRE(run(words_for(whole.path() / "run", large)).code == 0);
  const fs::path last = "run/checkpoints/step-2";
  const bool is_short = fault == "short";
  int64_t tried = 0, failed = 0;
  for (int64_t at = stride; at <= calls; at += stride, ++tried) {
    const TempFolder folder;
    const Faulty faulty = run_with_fault(folder, fault.c_str(), at, large);
    INFO(fault << " at call " << at << " of " << calls << " with " << large.back() << ": " << faulty.err);
    // A full disk or EIO after the last write is at most a warning.
    if (fault.starts_with("kill")) CHECK(faulty.code != 0);
    if (is_short) CHECK(faulty.code == 0);
    failed += faulty.code != 0 ? 1 : 0;
    Words again = large;
    again.insert(again.end(), {"--resume", "auto", "strategy.plugin=zero3", "run.nproc=1", "train.grad_accum_steps=2"});
    if (faulty.code != 0) REQUIRE(run(words_for(folder.path() / "run", again)).code == 0);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      CHECK((read_text(folder.path() / last / file) == read_text(whole.path() / last / file)));
    CHECK(damage_of(folder.path() / last).empty());
  }
  CHECK((failed == 0) == is_short);
  return tried;
}

TEST_CASE("a save past the page cache survives what a small one survives", "[faults]") {
  CHECK(check_large_points(GENERATE("kill_all", "short"), 19) >= 2);
}

TEST_CASE("a write that is only partly done is continued", "[faults]") {
  const TempFolder folder;
  const Faulty faulty = run_with_fault(folder, "short", 9);
  INFO(faulty.err);
  REQUIRE(faulty.code == 0);
  CHECK(damage_of(folder.path() / "run" / "checkpoints" / "step-6").empty());
  CHECK(rows_of(folder.path() / "run") == reference().rows);
}

// pytorch#144657: an asynchronous writer that reads live memory saves a mixture of steps.
TEST_CASE("values of later steps never get into a checkpoint that is written slowly during training", "[faults]") {
  const char* const strategy = GENERATE("ddp", "zero3", "zero3_offload");
  const std::string limit = GENERATE("0", "3000");
  const Words more = {std::string("strategy.plugin=") + strategy,
                      "checkpoint.every=3",
                      "train.steps=40",
                      "train.eval_every=0",
                      "model.buffers=true",
                      "checkpoint.keep_last=0",
                      "checkpoint.max_bytes_in_flight=" + limit};
  const TempFolder slow, plain;
  Words synchronous = more;
  synchronous.push_back("checkpoint.async=false");
  REQUIRE(run(words_for(plain.path() / "run", synchronous)).code == 0);
  setenv("DDH_FAULT_WAIT_US", "2000", 1);
  const Faulty delayed = run_with_fault(slow, "none", 0, more);
  unsetenv("DDH_FAULT_WAIT_US");
  INFO(delayed.err);
  REQUIRE(delayed.code == 0);
  for (int step = 3; step <= 39; step += 3) {
    const fs::path name = fs::path("run") / "checkpoints" / ("step-" + std::to_string(step));
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      CHECK((read_text(slow.path() / name / file) == read_text(plain.path() / name / file)));
    CHECK(damage_of(slow.path() / name).empty());
  }
  CHECK(rows_of(slow.path() / "run") == rows_of(plain.path() / "run"));
}

// The copy takes longer than forward and backward, so the next update has to wait for it.
TEST_CASE("an update waits until the values before it are copied", "[faults]") {
  const char* const strategy = GENERATE("ddp", "zero3");
  const Words more = {std::string("strategy.plugin=") + strategy, "comm.plugin=shm", "train.eval_every=0",
                      "checkpoint.keep_last=0"};
  const TempFolder slow, plain;
  Words synchronous = more;
  synchronous.push_back("checkpoint.async=false");
  REQUIRE(run(words_for(plain.path() / "run", synchronous)).code == 0);
  Process process(words_for(slow.path() / "run", more), [] {
    setenv("LD_PRELOAD", DDHOST_SLOW_COPY, 1);
    setenv("DDH_SLOW_COPY_US", "3000", 1);
  });
  REQUIRE(process.wait() == 0);
  for (int step = 2; step <= kSteps; step += 2) {
    const fs::path name = fs::path("run") / "checkpoints" / ("step-" + std::to_string(step));
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      CHECK((read_text(slow.path() / name / file) == read_text(plain.path() / name / file)));
  }
}

TEST_CASE("a flipped bit in any file of a checkpoint is found, and named with file and tensor", "[faults]") {
  const TempFolder folder;
  REQUIRE(run(words_for(folder.path() / "run")).code == 0);
  const fs::path checkpoint = folder.path() / "run" / "checkpoints" / "step-6";
  REQUIRE(damage_of(checkpoint).empty());
  const ddhost::Manifest manifest = ddhost::open_checkpoint(checkpoint);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const uint64_t bytes = fs::file_size(entry.path());
    for (uint64_t at = 0; at < bytes; at += std::max<uint64_t>(1, bytes / 97)) {
      flip_bit(entry.path(), at);
      INFO(entry.path() << ", byte " << at);
      CHECK_THAT(damage_of(checkpoint), Catch::Contains(entry.path().filename().string()));
      flip_bit(entry.path(), at);
    }
    ++files;
  }
  CHECK(files == 4);
  for (const ddhost::Manifest::Tensor& tensor : manifest.tensors) {
    const ddhost::StoredTensor& t = tensor.stored;
    if (t.bytes == 0) continue;
    const fs::path file = checkpoint / manifest.files[t.file].name;
    flip_bit(file, t.offset + t.bytes / 2);
    CHECK_THAT(damage_of(checkpoint), Catch::Contains("tensor '" + t.name + "'"));
    flip_bit(file, t.offset + t.bytes / 2);
  }
  CHECK(damage_of(checkpoint).empty());
}

TEST_CASE("a file of a checkpoint that is cut at any byte is found", "[faults]") {
  const TempFolder folder;
  REQUIRE(run(words_for(folder.path() / "run")).code == 0);
  const fs::path checkpoint = folder.path() / "run" / "checkpoints" / "step-6";
  for (const char* name : {"manifest.json", "COMPLETE", "model.safetensors"}) {
    const std::string whole = read_text(checkpoint / name);
    const size_t stride = std::string(name) == "model.safetensors" ? 61 : 1;
    size_t found = 0, cuts = 0;
    for (size_t bytes = whole.size() - 1; bytes + 1 > stride; bytes -= stride, ++cuts) {
      fs::resize_file(checkpoint / name, bytes);
      if (!sentence_of([&] { ddhost::open_checkpoint(checkpoint); }).empty()) ++found;
    }
    CHECK(found == cuts);
    fs::remove(checkpoint / name);
    CHECK_FALSE(damage_of(checkpoint).empty());
    std::ofstream(checkpoint / name, std::ios::binary) << whole;
  }
  CHECK(damage_of(checkpoint).empty());
}

TEST_CASE("a checkpoint of a newer format is refused, but not as damaged", "[faults]") {
  const TempFolder folder;
  REQUIRE(run(words_for(folder.path() / "run")).code == 0);
  const fs::path checkpoint = folder.path() / "run" / "checkpoints" / "step-6";
  const auto replace = [&](const char* name, const std::string& from, const std::string& to) {
    std::string text = read_text(checkpoint / name);
    text.replace(text.find(from), from.size(), to);
    std::ofstream(checkpoint / name, std::ios::binary) << text;
  };
  replace("manifest.json", "\"format_version\": 1", "\"format_version\": 2");
  replace("COMPLETE", "checkpoint 1", "checkpoint 2");
  CHECK_THAT(damage_of(checkpoint), Catch::Contains("version 2") && Catch::Contains("reads 1"));
}

TEST_CASE("SIGUSR1 saves and the run continues; SIGTERM saves and ends it", "[faults]") {
  const char* const comm = GENERATE("shm", "loop");
  const TempFolder folder;
  const fs::path run_dir = folder.path() / "run";
  const auto newest = [&] {
    const std::vector<ddhost::CheckpointPlace> places = ddhost::list_checkpoints(run_dir);
    return places.empty() ? int64_t{0} : places.front().step;
  };
  const auto wait_until = [](auto&& condition) {
    for (int i = 0; i < 20000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
    return condition();
  };
  const std::string weights = "train.save_final=" + folder.file("final.st");
  Process process(words_for(
      run_dir, {"train.steps=10000000", "checkpoint.every=10000000", weights, std::string("comm.plugin=") + comm}));
  REQUIRE(wait_until([&] { return read_text(run_dir / "metrics.jsonl").size() > 2000; }));
  CHECK(newest() == 0);
  kill(process.pid(), SIGUSR1);
  REQUIRE(wait_until([&] { return newest() > 0; }));
  const int64_t first = newest();
  kill(-process.pid(), SIGUSR1);  // a batch system may signal all processes
  REQUIRE(wait_until([&] { return newest() > first; }));
  const int64_t second = newest();
  kill(process.pid(), SIGTERM);
  CHECK(process.wait(20s) == 143);
  CHECK(newest() > second);
  // It resumes after the step in which it was stopped, with that step's evaluation if it was not done.
  const std::string before = rows_of(run_dir);
  const std::string last = std::to_string(newest() + 4);
  CHECK_FALSE(fs::exists(folder.file("final.st")));  // it would be in the way of the run that goes on
  REQUIRE(run(words_for(run_dir, {"--resume", "auto", "train.steps=" + last, "--resume-allow", "train.steps", weights}))
              .code == 0);
  CHECK(fs::exists(folder.file("final.st")));
  CHECK(rows_of(run_dir).size() > before.size());
  std::istringstream rows(rows_of(run_dir));
  int64_t step = 0, evaluations = 0;
  for (std::string line; std::getline(rows, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (row.contains("loss")) CHECK(row.at("step") == ++step);
    if (row.contains("val_loss")) CHECK(row.at("step") == 2 * ++evaluations);
  }
  CHECK(step == newest());
  CHECK(evaluations == step / 2);
}

// The folder of a save that has just begun, but not of `old`.
fs::path begun_save(const fs::path& checkpoints, const fs::path& old) {
  for (const auto& entry : fs::directory_iterator(checkpoints))
    if (entry.path() != old && fs::exists(entry.path() / "model.safetensors") && entry.path().extension() == ".partial")
      return entry.path();
  return {};
}

// pytorch#119856: a save that takes longer than the run expects. Each call of the writer is delayed, so that the signal comes
// while the first save is under way.
TEST_CASE("a run that is told to stop while it saves finishes that checkpoint and saves the last one", "[faults]") {
  const bool is_cut_off = GENERATE(false, true);  // the batch system does not wait for the last one (pytorch#119856)
  const TempFolder folder;
  const fs::path run_dir = folder.path() / "run", checkpoints = run_dir / "checkpoints";
  const std::string counter = folder.file("counter");
  std::ofstream(counter, std::ios::binary) << std::string(8, '\0');
  const auto wait_until = [](auto&& condition) {
    for (int i = 0; i < 20000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
    return condition();
  };
  const Words constant = {"schedule.type=constant", "checkpoint.keep_last=0"};
  const auto with_steps = [&](int64_t steps, const Words& more = {}) {
    Words words = constant;
    words.push_back("train.steps=" + std::to_string(steps));
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  // A run keeps all its checkpoints, and it starts only if the disk has room for them: these are a few MB.
  Process process(words_for(run_dir, with_steps(4000)), [&] {
    setenv("LD_PRELOAD", DDHOST_FAULT_POINTS, 1);
    setenv("DDH_FAULT_COUNTER", counter.c_str(), 1);
    setenv("DDH_FAULT", "none", 1);
    setenv("DDH_FAULT_AT", "0", 1);
    setenv("DDH_FAULT_WAIT_US", "20000", 1);
  });
  REQUIRE(wait_until([&] { return fs::exists(checkpoints / ".step-2.partial" / "optimizer.safetensors"); }));
  kill(process.pid(), SIGTERM);
  fs::path last;
  if (is_cut_off) {
    REQUIRE(wait_until([&] { return !(last = begun_save(checkpoints, checkpoints / ".step-2.partial")).empty(); }));
    kill(process.pid(), SIGKILL);
  }
  CHECK(process.wait(60s) == (is_cut_off ? 137 : 143));
  const std::vector<ddhost::CheckpointPlace> places = ddhost::list_checkpoints(run_dir);
  REQUIRE(places.size() >= (is_cut_off ? 1 : 2));
  CHECK(places.back().step == 2);
  for (const ddhost::CheckpointPlace& place : places) CHECK(damage_of(place.folder).empty());
  const int64_t steps = places.front().step;
  CHECK(fs::exists(last) == is_cut_off);
  for (const auto& entry : fs::directory_iterator(checkpoints))
    CHECK((is_cut_off || !entry.path().filename().string().starts_with(".")));
  // The steps so far are those of a run without a break.
  const TempFolder whole;
  REQUIRE(run(words_for(whole.path() / "run", with_steps(steps + 3))).code == 0);
  const Outcome resumed =
      run(words_for(run_dir, with_steps(steps + 3, {"--resume", "auto", "--resume-allow", "train.steps"})));
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK(rows_of(run_dir) == rows_of(whole.path() / "run"));
}

TEST_CASE("a folder of checkpoints that vanishes under a save ends the run with a sentence", "[faults]") {
  const TempFolder folder;
  const fs::path run_dir = folder.path() / "run", checkpoints = run_dir / "checkpoints";
  const std::string counter = folder.file("counter");
  std::ofstream(counter, std::ios::binary) << std::string(8, '\0');
  Process process(words_for(run_dir), [&] {
    setenv("LD_PRELOAD", DDHOST_FAULT_POINTS, 1);
    setenv("DDH_FAULT_COUNTER", counter.c_str(), 1);
    setenv("DDH_FAULT", "none", 1);
    setenv("DDH_FAULT_AT", "0", 1);
    setenv("DDH_FAULT_WAIT_US", "20000", 1);
  });
  const fs::path partial = checkpoints / ".step-2.partial";
  for (int i = 0; i < 20000 && !fs::exists(partial / "optimizer.safetensors"); ++i) std::this_thread::sleep_for(1ms);
  REQUIRE(fs::exists(partial));
  fs::remove_all(checkpoints);
  const int code = process.wait(60s);
  INFO(process.err());
  CHECK(code == 1);
  CHECK_THAT(process.err(), Catch::Contains("step-2.partial") && Catch::Contains("No such file or directory"));
  // Nothing was saved, so the run begins anew, and ends like one without a break.
  check_goes_on(folder);
}

TEST_CASE("every seventh call of a save past the page cache fails", "[.kill]") {
  const char* const fault = GENERATE("kill_all", "kill", "eio", "enospc", "short");
  WARN(fault << " at " << check_large_points(fault, 7) << " calls of a save past the page cache");
}

// Only with `./dev test --all`: every call, and one rank instead of all processes.
TEST_CASE("every kill point of a save, of all processes and of one rank", "[.kill]") {
  const int64_t all = check_points("kill_all", 1), one = check_points("kill", 1);
  WARN("killed at " << all << " calls as a whole and at " << one
                    << " calls in one rank; all resumed runs had the same bits");
}
