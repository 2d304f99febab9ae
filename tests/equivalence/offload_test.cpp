// SPDX-License-Identifier: Apache-2.0
//
// Strategies with many tiles of offloaded state: they give the bits of ddp for every tile size and tier, in every precision
// and with every kind of optimizer, and use the planned memory. A model trains in less memory than its state takes.
#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;

namespace {

using Options = std::vector<std::string>;

// 8 KB to 20 KB of parameters in each unit of each rank: several tiles of 4096 bytes.
const Options kSeveralTiles = {"model.width=40", "model.hidden=70", "train.steps=6", "optimizer.lr=0.01"};
// 1.1 million parameters, in spaces that are much larger than the rounding to whole blocks of a file.
const Options kWide = {"model.width=320", "model.hidden=560", "model.deviation=0.02", "train.steps=6"};
constexpr uint64_t kRounding = 8 * 4096;
// 25 million parameters in units of one million.
const Options kLarge = {"model.width=512",    "model.hidden=1024", "model.layers=24",   "model.deviation=0.02",
                        "data.micro_batch=1", "train.steps=3",     "optimizer.lr=0.001"};

struct Result {
  int code = 0;
  std::string out, err, loss, grad_norm, weights;
  RunRecord record;
};

template <class Setup>
Result run(const char* strategy, const Options& model, const Options& options, Setup&& setup) {
  const TempFolder folder;
  Options args = {"--strategy",
                  strategy,
                  "--model",
                  toy_model(),
                  "--nproc",
                  "2",
                  "--comm",
                  "shm",
                  "--save-final",
                  folder.file("final.safetensors"),
                  "run.dir=" + folder.file("run")};
  args.insert(args.end(), model.begin(), model.end());
  args.insert(args.end(), options.begin(), options.end());
  Process process(args, setup);
  Result result;
  result.code = process.wait();
  result.out = process.out();
  result.err = process.err();
  INFO(process.command() << "\n" << result.err);
  if (result.code != 0) return result;
  result.record = read_run(folder.path() / "run");
  result.loss = result.record.column("loss");
  result.grad_norm = result.record.column("grad_norm");
  result.weights = read_text(folder.file("final.safetensors"));
  return result;
}
Result run(const char* strategy, const Options& model, const Options& options = {}) {
  return run(strategy, model, options, [] {});
}

Options operator+(Options a, const Options& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
std::string nvme_in(const TempFolder& folder) { return "strategy.nvme_path=" + folder.path().string(); }

uint64_t counter(const Result& result, const char* name) {
  return result.record.summary.at("counters").value(name, uint64_t{0});
}
uint64_t sum_over_ranks(const Result& result, const char* tag) {
  uint64_t sum = 0;
  for (const auto& rank : result.record.summary.at("ranks"))
    sum += rank.at("memory_bytes").at(tag).at("peak").get<uint64_t>();
  return sum;
}
// Memory by tag equals the strategy's plan on every rank.
void check_plan(const Result& result) {
  for (const auto& rank : result.record.summary.at("ranks")) {
    for (const char* tag : {"param", "grad", "optim"})
      CHECK(rank.at("memory_bytes").at(tag).at("peak") == rank.at("plan_bytes").at(tag));
  }
}

}  // namespace

TEST_CASE("offloading in tiles has the bits of zero3 and the planned memory", "[equivalence]") {
  const Result reference = run("zero3", kSeveralTiles);
  REQUIRE(reference.code == 0);
  const TempFolder folder;
  for (const char* place : {"cpu", "nvme"}) {
    for (const char* params : {"none", "cpu", "nvme"}) {
      for (const char* ratio : {"1", "0.4", "0"}) {
        for (const char* frames : {"1", "3", "5"}) {
          const Options options = {std::string("strategy.offload_optimizer.device=") + place,
                                   std::string("strategy.offload_param.device=") + params,
                                   std::string("strategy.offload_optimizer.ratio=") + ratio,
                                   std::string("strategy.buffer_count=") + frames,
                                   "strategy.buffer_bytes=4096",
                                   nvme_in(folder)};
          const Result other = run("zero3_offload", kSeveralTiles, options);
          INFO(place << ", parameters " << params << ", ratio " << ratio << ", frames " << frames << "\n" << other.err);
          REQUIRE(other.code == 0);
          CHECK(other.loss == reference.loss);
          CHECK(other.grad_norm == reference.grad_norm);
          CHECK((other.weights == reference.weights));
          check_plan(other);
        }
      }
    }
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("offloading in a low precision, and with optimizers that need norms or whole parameters, has the bits of ddp",
          "[equivalence]") {
  const auto options =
      GENERATE(Options{"precision.compute=bf16"},
               Options{"precision.compute=fp16", "precision.initial_scale_power=30", "precision.hysteresis=1"},
               Options{"--optimizer", "lamb", "model.nan_at_step=3"}, Options{"--optimizer", "muon"},
               Options{"--optimizer", "lamb", "precision.compute=fp16", "precision.initial_scale_power=8"},
               Options{"--optimizer", "muon", "precision.compute=bf16"});
  const Result reference = run("ddp", kSeveralTiles, options);
  REQUIRE(reference.code == 0);
  const TempFolder folder;
  for (const char* place : {"none", "cpu", "nvme"}) {
    for (const char* params : {"none", "cpu", "nvme"}) {
      // A part of the state stays on the device in the cells that have both.
      const char* const ratio = params == std::string("cpu") ? "0.4" : "1";
      const Result other = run("zero3_offload", kSeveralTiles,
                               options + Options{std::string("strategy.offload_optimizer.device=") + place,
                                                 std::string("strategy.offload_param.device=") + params,
                                                 std::string("strategy.offload_optimizer.ratio=") + ratio,
                                                 "strategy.buffer_bytes=4096", nvme_in(folder)});
      INFO(place << ", parameters " << params << "\n" << other.err);
      REQUIRE(other.code == 0);
      CHECK(other.loss == reference.loss);
      CHECK(other.grad_norm == reference.grad_norm);
      CHECK((other.weights == reference.weights));
      check_plan(other);
    }
  }
}

TEST_CASE("zero1, zero2 and zero3 offload the optimizer state with the bits of ddp and the planned memory",
          "[equivalence]") {
  const auto options = GENERATE(Options{}, Options{"precision.compute=bf16"}, Options{"--optimizer", "lamb"},
                                Options{"--optimizer", "muon", "train.grad_accum_steps=2"});
  const Result reference = run("ddp", kSeveralTiles, options);
  REQUIRE(reference.code == 0);
  const TempFolder folder;
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    for (const char* place : {"cpu", "nvme"}) {
      for (const char* ratio : {"1", "0.4"}) {
        const Result other = run(strategy, kSeveralTiles,
                                 options + Options{std::string("strategy.offload_optimizer.device=") + place,
                                                   std::string("strategy.offload_optimizer.ratio=") + ratio,
                                                   "strategy.buffer_bytes=4096", nvme_in(folder)});
        INFO(strategy << ", " << place << ", ratio " << ratio << "\n" << other.err);
        REQUIRE(other.code == 0);
        CHECK(other.loss == reference.loss);
        CHECK(other.grad_norm == reference.grad_norm);
        CHECK((other.weights == reference.weights));
        check_plan(other);
      }
    }
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("with nvme the optimizer state leaves the memory of zero1, zero2 and zero3 but for the frames", "[counts]") {
  const TempFolder folder;
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    const Result resident = run(strategy, kWide),
                 offloaded =
                     run(strategy, kWide,
                         {"strategy.offload_optimizer.device=nvme", "strategy.buffer_bytes=65536", nvme_in(folder)});
    INFO(strategy << "\n" << resident.err << offloaded.err);
    REQUIRE((resident.code == 0 && offloaded.code == 0));
    constexpr uint64_t kFrames = 3 * 2 * 65536;  // three, each with a tile of both moments
    for (size_t rank = 0; rank < 2; ++rank) {
      const auto& ranks = offloaded.record.summary.at("ranks");
      const auto peak = ranks.at(rank).at("memory_bytes").at("optim").at("peak").get<uint64_t>();
      CHECK((peak >= kFrames && peak <= kFrames + 4096));  // aligned for files
    }
    CHECK(sum_over_ranks(offloaded, "param") == sum_over_ranks(resident, "param"));
    CHECK(sum_over_ranks(offloaded, "grad") == sum_over_ranks(resident, "grad"));
    CHECK(sum_over_ranks(resident, "optim") > 2 * 2 * kFrames);
  }
}

TEST_CASE("in bf16 a step reads and writes masters and slots, and only writes the parameters", "[counts]") {
  const TempFolder folder;
  const Options nvme = {"precision.compute=bf16", "strategy.offload_optimizer.device=nvme", nvme_in(folder)};
  const Result states = run("zero3_offload", kWide, nvme),
               all = run("zero3_offload", kWide, nvme + Options{"strategy.offload_param.device=nvme"});
  REQUIRE(states.code == 0);
  REQUIRE(all.code == 0);
  const auto file = [](const Result& r) { return r.record.summary.at("plan_bytes").at("file").get<uint64_t>(); };
  const uint64_t params = file(all) - file(states), master = file(states) / 3;
  CHECK(params + kRounding > master / 2);  // frozen ones too
  CHECK(params < master / 2 + master / 100 + kRounding);
  // Six steps and the initial values; slots are not read in the first step.
  CHECK(counter(states, "offload.file_written_bytes") == 6 * file(states) + master);
  CHECK(counter(states, "offload.file_read_bytes") == 6 * file(states) - 2 * master);
  const uint64_t written = counter(all, "offload.file_written_bytes") - counter(states, "offload.file_written_bytes");
  CHECK(written == Approx(6 * (master / 2) + params).epsilon(0).margin(6 * kRounding));
  // A step uses each unit twice and the tied one three times; an update that read them would add one.
  const uint64_t read = counter(all, "offload.file_read_bytes") - counter(states, "offload.file_read_bytes");
  CHECK(read < 13 * params);
  CHECK(read > 6 * params);
}

TEST_CASE("some parameters can stay in memory while the others are in files", "[memory]") {
  const TempFolder folder;
  const auto result = [&](const char* max_in_cpu) {
    return run("zero3_offload", kWide,
               {"strategy.offload_param.device=nvme", std::string("strategy.offload_param.max_in_cpu=") + max_in_cpu,
                nvme_in(folder)});
  };
  const Result none = result("0"), some = result("200000"), all = result("1e9");
  const auto file = [](const Result& r) { return r.record.summary.at("plan_bytes").at("file").get<uint64_t>(); };
  const auto param = [](const Result& r) { return r.record.summary.at("plan_bytes").at("param").get<uint64_t>(); };
  CHECK(file(all) == 0);
  CHECK(file(some) < file(none));
  CHECK(file(some) > 0);
  for (const Result* r : {&some, &all}) {
    CHECK(file(*r) + param(*r) == Approx(file(none) + param(none)).epsilon(0).margin(kRounding));
    CHECK((r->weights == none.weights));
    CHECK(r->record.summary.at("ranks").at(0).at("memory_bytes").at("param").at("peak") == param(*r));
  }
}

TEST_CASE("DeepSpeed's offload sections are accepted, and options that would change numbers are refused",
          "[equivalence]") {
  const TempFolder folder;
  std::ofstream(folder.file("ds.json")) << R"({"strategy": {"plugin": "zero3_offload",
    "offload_optimizer": {"device": "nvme", "nvme_path": ")"
                                        << folder.path().string() << R"(", "pin_memory": true, "buffer_count": 4,
      "fast_init": false, "pipeline_read": true, "pipeline_write": false, "ratio": 0.9, "super_offload": false},
    "offload_param": {"device": "nvme", "nvme_path": ")"
                                        << folder.path().string() << R"(", "pin_memory": true, "buffer_count": 4,
      "buffer_size": 1e6, "max_in_cpu": 1e9}}})";
  const Result reference = run("zero3", kSeveralTiles),
               other = run("zero3_offload", kSeveralTiles, {"--config", folder.file("ds.json")});
  INFO(other.err);
  REQUIRE(other.code == 0);
  CHECK(other.loss == reference.loss);
  CHECK((other.weights == reference.weights));
  const auto sentence = [](const char* option, const char* another = "strategy.plugin=zero3_offload") {
    const Result result = run("zero3_offload", kSeveralTiles, {option, another});
    CHECK(result.code != 0);
    return result.err;
  };
  CHECK_THAT(sentence("strategy.offload_optimizer.nvme_path=/a", "strategy.offload_param.nvme_path=/b"),
             Catch::Contains("two names of strategy.nvme_path"));
  CHECK_THAT(
      sentence("strategy.offload_optimizer.buffer_count=4", "strategy.offload_param.buffer_count=5"),
      Catch::Contains("offload_optimizer.buffer_count = 4") && Catch::Contains("offload_param.buffer_count = 5"));
  CHECK_THAT(
      sentence("strategy.offload_optimizer.super_offload=true"),
      Catch::Contains("strategy.offload_optimizer.super_offload = true on the command line is not a legal value"));
  CHECK_THAT(sentence("strategy.delayed_update=true"), Catch::Contains("the bits would not be those without it"));
  CHECK_THAT(sentence("strategy.offload_param.pin_memory=false", "strategy.offload_param.device=cpu"),
             Catch::Contains("always pinned"));
}

TEST_CASE("ratio keeps the rest of the optimizer state on the device, to the precision of a buffer", "[memory]") {
  const TempFolder folder;
  const auto file_bytes = [&](const char* ratio) {
    const Result result = run("zero3_offload", kSeveralTiles,
                              {"strategy.offload_optimizer.device=nvme", "strategy.buffer_bytes=4096", nvme_in(folder),
                               std::string("strategy.offload_optimizer.ratio=") + ratio});
    REQUIRE(result.code == 0);
    return result.record.summary.at("plan_bytes").at("file").get<double>();
  };
  const double all = file_bytes("1");
  CHECK(file_bytes("0") == 0);
  CHECK(file_bytes("0.5") == Approx(all / 2).margin(2 * 4096));  // two slots
  CHECK(file_bytes("0.25") == Approx(all / 4).margin(2 * 4096));
}

TEST_CASE("a step reads and writes each offloaded slot once, and the run reports the rate and the bottleneck",
          "[counts]") {
  const TempFolder folder;
  const Result result =
      run("zero3_offload", kSeveralTiles, {"strategy.offload_optimizer.device=nvme", nvme_in(folder)});
  REQUIRE(result.code == 0);
  const auto file = result.record.summary.at("plan_bytes").at("file").get<uint64_t>();  // of rank 0, as the counters
  CHECK(counter(result, "offload.file_written_bytes") == 6 * file);
  CHECK(counter(result, "offload.file_read_bytes") == 5 * file);  // the first step has nothing to read
  CHECK_THAT(result.out + result.err,
             Catch::Contains("MB/s while it was busy") &&
                 (Catch::Contains("the disk limits the run") || Catch::Contains("computation limits the run")));
}

namespace {

// A control group with a memory limit, if it can be created.
class ControlGroup {
 public:
  explicit ControlGroup(uint64_t limit_bytes) {
    const std::string name = "/ddhost-test-" + std::to_string(getpid()), limit = std::to_string(limit_bytes);
    if (read_text("/sys/fs/cgroup/cgroup.controllers").find("memory") != std::string::npos) {
      write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
      folder_ = "/sys/fs/cgroup" + name;
      made_ = mkdir(folder_.c_str(), 0755) == 0 && write(folder_ + "/memory.max", limit);
      if (made_) write(folder_ + "/memory.swap.max", "0");
    } else if (std::filesystem::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes")) {
      folder_ = "/sys/fs/cgroup/memory" + name;
      made_ = mkdir(folder_.c_str(), 0755) == 0 && write(folder_ + "/memory.limit_in_bytes", limit);
      if (made_) write(folder_ + "/memory.memsw.limit_in_bytes", limit);
    }
  }
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;
  ~ControlGroup() {
    for (int i = 0; made_ && rmdir(folder_.c_str()) != 0 && i < 100; ++i) usleep(20'000);
  }
  [[nodiscard]] bool made() const { return made_; }
  void enter() const {  // the calling process
    if (made_) write(folder_ + "/cgroup.procs", std::to_string(getpid()));
  }

 private:
  static bool write(const std::string& path, const std::string& text) {
    const int fd = open(path.c_str(), O_WRONLY);
    if (fd < 0) return false;
    const bool ok = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(fd);
    return ok;
  }
  std::string folder_;
  bool made_ = false;
};

uint64_t resident_peak(const Result& result) {
  uint64_t bytes = 0;
  for (const auto& rank : result.record.summary.at("ranks")) bytes += rank.at("peak_rss_bytes").get<uint64_t>();
  return bytes;
}

}  // namespace

TEST_CASE("a model whose state exceeds the memory limit of the run trains from nvme, with the bits of zero3",
          "[memory]") {
  constexpr uint64_t kLimit = uint64_t{288} << 20;
  const TempFolder folder;
  const Options offload = {"strategy.offload_optimizer.device=nvme", "strategy.offload_param.device=nvme",
                           "strategy.buffer_bytes=1048576", nvme_in(folder),
                           "run.allow_overcommit=true"};  // the toy takes less than the reserve of a rank
  const Result reference = run("zero3", kLarge);
  REQUIRE(reference.code == 0);
  REQUIRE(sum_over_ranks(reference, "param") + sum_over_ranks(reference, "grad") + sum_over_ranks(reference, "optim") >
          kLimit + (uint64_t{100} << 20));

  const ControlGroup group(kLimit);
  WARN((group.made() ? "the run's memory was limited by a control group"
                     : "no control group can be made here: peak resident memory was compared"));
  const Result limited = run("zero3_offload", kLarge, offload, [&] { group.enter(); });
  INFO(limited.err);
  REQUIRE(limited.code == 0);
  CHECK(resident_peak(limited) < kLimit);
  CHECK(limited.loss == reference.loss);
  CHECK(limited.grad_norm == reference.grad_norm);
  CHECK((limited.weights == reference.weights));

  // Check that the limit works: zero3 does not fit.
  CHECK(resident_peak(reference) > kLimit);
  if (group.made()) CHECK(run("zero3", kLarge, {}, [&] { group.enter(); }).code != 0);
}
