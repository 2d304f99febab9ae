// SPDX-License-Identifier: Apache-2.0
//
// The same run with other instructions (DDHOST_CPU), numbers of threads and cores. With one instruction set, threads and cores
// change no bit. A model without LibTorch has the same bits under every instruction set; one with LibTorch need not
// (docs/numerics.md), so a run is resumed only under the one of its checkpoint.
#include <sched.h>

#include <catch2/catch.hpp>
#include <iomanip>
#include <iostream>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/skip.hpp"

using namespace ddhost::test;

namespace {

struct Machine {
  std::string instructions;  // DDHOST_CPU; "": all that there are
  int threads = 1;
  bool one_core = false;
};

bool has(const std::string& instructions) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return instructions == "avx2" ? __builtin_cpu_supports("avx2") != 0 : __builtin_cpu_supports("avx512f") != 0;
#else
  return instructions.empty();
#endif
}

struct Ended {
  int code;
  std::string err, weights, losses;
};

Ended run_on(const Machine& machine, const TempFolder& folder, const std::string& name, const Words& words) {
  Words all = words;
  for (const char* word : {"run.quiet=true", "run.sample_tokens=0", "run.nproc=1"}) all.emplace_back(word);
  all.push_back("run.dir=" + folder.file(name));
  all.push_back("train.save_final=" + folder.file(name + ".safetensors"));
  Process process(all, [&] {
    setenv("DDHOST_CPU", machine.instructions.c_str(), 1);
    for (const char* variable : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
      setenv(variable, std::to_string(machine.threads).c_str(), 1);
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    if (machine.one_core) sched_setaffinity(0, sizeof first, &first);
  });
  Ended end{process.wait(), process.err(), "", ""};
  end.weights = read_text(folder.file(name + ".safetensors"));
  if (end.code == 0) end.losses = read_run(folder.path() / name).column("loss");
  return end;
}

Ended finished_on(const Machine& machine, const Words& words) {
  const TempFolder folder;
  Ended end = run_on(machine, folder, "run", words);
  INFO(end.err);
  REQUIRE(end.code == 0);
  REQUIRE_FALSE(end.weights.empty());
  return end;
}

Words toy() { return {"--model", toy_model(), "train.steps=10"}; }
Words gpt(const std::string& compute) {
  return {"--model",
          "gpt",
          "model.size=custom",
          "model.n_layer=2",
          "model.n_head=4",
          "model.n_embd=128",
          "model.context=64",
          "data.micro_batch=4",
          "train.steps=3",
          "precision.compute=" + compute,
          std::string("data.path=") + DDHOST_SOURCE_DIR + "/tests/data/shakespeare/input.txt"};
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> out = {""};
  for (const char* name : {"avx512", "avx2"})
    if (has(name)) out.emplace_back(name);
  return out;
}

// Runs it with each instruction set, and with each of those on the given numbers of threads. Returns how many differ from all.
int compare(const std::string& what, const Words& words, const std::vector<int>& threads) {
  int differing = 0;
  const Ended all = finished_on({"", 1}, words);
  for (const std::string& instructions : instruction_sets()) {
    const Ended one = instructions.empty() ? all : finished_on({instructions, 1}, words);
    for (const int n : threads) {
      INFO(what << " with " << instructions << " and " << n << " threads");
      CHECK((finished_on({instructions, n}, words).weights == one.weights));
    }
    INFO(what << " with " << instructions << " on one core");
    CHECK((finished_on({instructions, 1, true}, words).weights == one.weights));
    const bool same = one.weights == all.weights;
    differing += same ? 0 : 1;
    std::cout << std::left << std::setw(12) << what << std::setw(8) << (instructions.empty() ? "all" : instructions)
              << (same ? "same bits" : "other bits") << '\n';
  }
  return differing;
}

}  // namespace

TEST_CASE("a model without LibTorch has the same bits under every instruction set", "[equivalence]") {
  if (!has("avx2")) return skip("this processor has no AVX2");
  CHECK(compare("toy", toy(), {8}) == 0);
}

TEST_CASE("threads and cores change no bit of a GPT under any instruction set", "[.long]") {
  if (!has("avx2")) return skip("this processor has no AVX2");
  for (const char* compute : {"fp32", "bf16", "fp16"}) compare(std::string("gpt ") + compute, gpt(compute), {2, 8});
}

TEST_CASE("a run is not resumed under another instruction set unless that is allowed", "[equivalence]") {
  if (!has("avx2")) return skip("this processor has no AVX2");
  const TempFolder folder;
  Words first = toy(), more = toy();
  for (const char* word : {"checkpoint.every=5", "run.resume=auto"}) first.emplace_back(word), more.emplace_back(word);
  REQUIRE(run_on({"avx2"}, folder, "run", first).code == 0);
  std::filesystem::remove(folder.file("run.safetensors"));
  for (const char* word : {"train.steps=15", "--resume-allow", "train.steps"}) more.emplace_back(word);
  CHECK(run_on({"avx2"}, folder, "run", more).code == 0);  // the same one
  std::filesystem::remove(folder.file("run.safetensors"));
  more.back() = "train.steps,schedule.decay_steps";
  more[more.size() - 3] = "train.steps=20";
  if (has("avx512")) {
    const Ended refused = run_on({""}, folder, "run", more);
    INFO(refused.err);
    CHECK(refused.code == 1);
    CHECK_THAT(refused.err, Catch::Contains("AVX2") && Catch::Contains("AVX-512") &&
                                Catch::Contains("--resume-allow host.instruction_set"));
    more.back() += ",host.instruction_set";
    const Ended allowed = run_on({""}, folder, "run", more);
    INFO(allowed.err);
    CHECK(allowed.code == 0);
    CHECK_THAT(allowed.err, Catch::Contains("the bits may differ"));
  }
}

TEST_CASE("a wrong DDHOST_CPU is refused", "[equivalence]") {
  const TempFolder folder;
  const Ended refused = run_on({"sse9"}, folder, "run", toy());
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, Catch::Contains("DDHOST_CPU is 'sse9'; give avx2 or avx512, or unset it"));
}
