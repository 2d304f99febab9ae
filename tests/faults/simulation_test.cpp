// SPDX-License-Identifier: Apache-2.0
//
// Runs whose fate is drawn from a seed: strategies, ranks, agents, transports and devices that change at every start, deaths,
// full disks, delays, stopped processes, agents that the others can't reach for a while, and a wall clock that jumps. In the
// end each has the rows and the weights of a run that nothing disturbed.
//
//   DDHOST_SIMULATION_SEED=17 build/tests/bin/simulation     that one alone, with its schedule
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>

#include "checkpoint/checkpoint_folder.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/listed.hpp"
#include "fixtures/harness/throws.hpp"
#include "fixtures/harness/torchrun_task.hpp"

using namespace ddhost::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr int kSteps = 8, kMicroBatches = 6;  // of a step, over all ranks
constexpr int kDisturbedStarts = 3;           // at most; the next one is left alone

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed, "simulation") {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_.bits(next_++) % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <class T, size_t N>
  const T& of(const T (&values)[N]) {
    return values[below(N)];
  }
  const std::string& of(const Words& values) { return values[below(static_cast<int64_t>(values.size()))]; }

 private:
  const ddh::CounterRng random_;
  uint64_t next_ = 0;
};

// One start of the program, and what happens to it.
struct Start {
  Words words;
  std::string fault = "none";  // of fault_points.c, at its call `at`
  int64_t at = 0;
  int64_t wait_us = 0;  // for each call of a save
  int64_t jump_s = 0;   // of the wall clock, at its reading `jump_at`
  int64_t jump_at = 0;
  int agents = 1;
  int signal = 0;         // to the launcher `signal_to`; SIGSTOP: to a rank, which goes on after 30 ms
  int64_t signal_ms = 0;  // after the start
  size_t signal_to = 0;
  bool is_cut = false;  // all processes of that launcher stop for longer than the heartbeat, as a host that is cut off

  [[nodiscard]] std::string text() const {
    std::string out;
    for (const std::string& word : words) out += " " + word;
    return out + " | " + fault + " at call " + std::to_string(at) + ", each call " + std::to_string(wait_us) +
           " us longer, clock " + std::to_string(jump_s) + " s at reading " + std::to_string(jump_at) + ", signal " +
           std::to_string(signal) + " after " + std::to_string(signal_ms) + " ms" +
           (agents == 1 ? "" : " to agent " + std::to_string(signal_to) + (is_cut ? ", which is cut off" : ""));
  }
};

Words words_for(const fs::path& run_dir, int nproc) {
  return {"--model",
          toy_model(),
          "model.layers=2",
          "model.buffers=true",
          "run.quiet=true",
          "optimizer.lr=0.01",
          "train.steps=" + std::to_string(kSteps),
          "train.eval_every=4",
          "train.eval_batches=2",
          "data.micro_batch=2",
          "run.nproc=" + std::to_string(nproc),
          "train.grad_accum_steps=" + std::to_string(kMicroBatches / nproc),
          "run.dir=" + run_dir.string()};
}

Start draw_start(Draw& draw, const TempFolder& folder, bool disturbed) {
  static const Words kStrategies = listed_strategies();
  static constexpr const char* kFaults[] = {"none", "kill", "kill_all", "enospc", "eio", "short"};
  static constexpr int kWorlds[] = {1, 2, 3}, kSignals[] = {SIGTERM, SIGKILL, SIGSTOP};
  Start out;
  out.agents = DDHOST_HAS_GLOO != 0 && draw.one_in(4) ? 2 : 1;
  const int nproc = out.agents == 1 ? draw.of(kWorlds) : 2;
  out.words = words_for(folder.path() / "run", nproc);
  const auto add = [&](const std::string& word) { out.words.push_back(word); };
  add("strategy.plugin=" + draw.of(kStrategies));
  add("checkpoint.every=" + std::to_string(1 + draw.below(3)));
  add(draw.one_in(3) ? "checkpoint.async=false" : "checkpoint.async=true");
  add("checkpoint.keep_last=" + std::to_string(draw.below(3)));
  add("train.save_final=" + folder.file("final.st"));
  add("--resume"), add("auto");
  if (out.agents > 1) {
    for (const char* word : {"comm.plugin=gloo", "launch.heartbeat=1", "launch.timeout=10"}) add(word);
  } else if (draw.one_in(4)) {
    for (const char* word : {"--device", "sim", "comm.plugin=loop", "device.delay_us=5", "device.jitter_us=50"})
      add(word);
    add("device.seed=" + std::to_string(draw.below(1000)));
  } else {
    add(draw.one_in(2) ? "comm.plugin=loop" : "comm.plugin=shm");
  }
  if (!disturbed) return out;
  if (draw.one_in(4)) {
    out.signal = draw.of(kSignals);
    out.signal_ms = draw.below(out.agents == 1 ? 150 : 600);
    out.signal_to = static_cast<size_t>(draw.below(out.agents));
    out.is_cut = out.agents > 1 && draw.one_in(2);
  } else {
    out.fault = draw.of(kFaults);
    out.at = 1 + draw.below(150);
  }
  out.wait_us = draw.one_in(3) ? draw.below(1500) : 0;
  if (draw.one_in(4)) out.jump_s = (draw.below(48) - 24) * 3600, out.jump_at = 1 + draw.below(60);
  return out;
}

// A rank's process of the launcher, or 0.
pid_t a_child_of(pid_t launcher) {
  std::ifstream in("/proc/" + std::to_string(launcher) + "/task/" + std::to_string(launcher) + "/children");
  pid_t child = 0;
  in >> child;
  return child;
}

void disturb(const Start& start, const Process& process) {
  if (start.signal == 0) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(start.signal_ms));
  if (start.is_cut) {
    kill(-process.pid(), SIGSTOP);
    std::this_thread::sleep_for(2500ms);
    kill(-process.pid(), SIGCONT);
    return;
  }
  if (start.signal != SIGSTOP) {
    kill(process.pid(), start.signal);
    return;
  }
  const pid_t child = a_child_of(process.pid());
  if (child == 0) return;
  kill(child, SIGSTOP);
  std::this_thread::sleep_for(30ms);
  kill(child, SIGCONT);
}

// No process of the run is there 5 s after its launcher has ended.
bool nothing_runs(const Process& process) {
  for (int i = 0; i < 500; ++i, std::this_thread::sleep_for(10ms))
    if (kill(-process.pid(), 0) != 0) return true;
  return false;
}

void run_start(const Start& start, const TempFolder& folder, bool is_last, bool& done) {
  const std::string counter = folder.file("counter");
  std::ofstream(counter, std::ios::binary) << std::string(8, '\0');
  std::vector<std::unique_ptr<Process>> launchers;
  for (int task = 0; task < start.agents; ++task)
    launchers.push_back(std::make_unique<Process>(start.words, [&] {
      setenv("LD_PRELOAD", DDHOST_FAULT_POINTS ":" DDHOST_CLOCK_JUMP, 1);
      setenv("DDH_FAULT_COUNTER", counter.c_str(), 1);
      setenv("DDH_FAULT", start.fault.c_str(), 1);
      setenv("DDH_FAULT_AT", std::to_string(start.at).c_str(), 1);
      if (start.wait_us > 0) setenv("DDH_FAULT_WAIT_US", std::to_string(start.wait_us).c_str(), 1);
      setenv("DDH_CLOCK_JUMP_S", std::to_string(start.jump_s).c_str(), 1);
      setenv("DDH_CLOCK_JUMP_AT", std::to_string(start.jump_at).c_str(), 1);
      if (start.agents > 1) be_torchrun_task(folder, task, start.agents);
    }));
  disturb(start, *launchers[start.signal_to]);
  for (const auto& launcher : launchers) {
    const int code = launcher->wait();
    INFO(start.text() << "\ncode " << code << ": " << launcher->err());
    CHECK(code != -1);  // it did not end
    CHECK(nothing_runs(*launcher));
    if (is_last) REQUIRE(code == 0);
  }
  for (const ddhost::CheckpointPlace& found : ddhost::list_checkpoints(folder.path() / "run")) {
    INFO(found.folder.string());
    CHECK(sentence_of([&] { ddhost::verify_tensors(found.folder, ddhost::open_checkpoint(found.folder)); }) == "");
  }
  done = launchers[0]->wait() == 0;
}

struct Result {
  std::string rows, weights;
};
const Result& undisturbed() {
  static const Result kResult = [] {
    const TempFolder folder;
    Words words = words_for(folder.path() / "run", 1);
    words.push_back("train.save_final=" + folder.file("final.st"));
    Process process(words);
    REQUIRE(process.wait() == 0);
    return Result{rows_of(folder.path() / "run"), read_text(folder.file("final.st"))};
  }();
  return kResult;
}

void simulate(uint64_t seed, bool shows) {
  INFO("DDHOST_SIMULATION_SEED=" << seed);
  Draw draw(seed);
  const TempFolder folder;
  bool done = false;
  for (int i = 0; i <= kDisturbedStarts && !done; ++i) {
    const bool is_last = i == kDisturbedStarts;
    const Start start = draw_start(draw, folder, !is_last);
    if (shows) WARN(start.text());
    run_start(start, folder, is_last, done);
    if (!done) fs::remove(folder.file("final.st"));  // as the refusal to overwrite it asks: it died after it had saved
  }
  CHECK(rows_of(folder.path() / "run") == undisturbed().rows);
  CHECK((read_text(folder.file("final.st")) == undisturbed().weights));
}

void simulate_range(uint64_t first, uint64_t count) {
  if (const char* one = std::getenv("DDHOST_SIMULATION_SEED")) return simulate(std::strtoull(one, nullptr, 10), true);
  for (uint64_t seed = first; seed < first + count; ++seed) simulate(seed, false);
  WARN(count << " schedules, from seed " << first << " on");
}

}  // namespace

TEST_CASE("runs that a seed disturbs end with the bits of one that nothing disturbed", "[faults]") {
  simulate_range(0, 20);
}

TEST_CASE("1,000 of them", "[.long]") { simulate_range(1000, 1000); }
