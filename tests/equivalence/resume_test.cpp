// SPDX-License-Identifier: Apache-2.0
//
// A run that is resumed from a checkpoint has the bits of an uninterrupted run, under any strategy and on any number
// of ranks. Two checks together cover every pair: every strategy in every world writes the same bytes of tensors, and
// every strategy in every world resumes with the same bits from the checkpoint of one of them.
#include <chrono>

#include "equivalence/features.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

constexpr int kSteps = 8, kSaved = 4;
constexpr int kMicroBatches = 24;  // of a step, on all ranks together

const Mode kOnSim = {"zero3", {"--device", "sim", "device.delay_us=30", "device.jitter_us=100", "device.seed=5"}};

// The built-in ones, then one on the simulated device.
const std::vector<Mode>& modes() {
  static const std::vector<Mode> kModes = [] {
    std::vector<Mode> all = built_in_modes();
    all.push_back(kOnSim);
    return all;
  }();
  return kModes;
}

struct Seat {
  Mode mode;
  int world;
  std::string comm;
  bool copies = false;
};

bool is_on_sim(const Seat& seat) { return !seat.mode.options.empty() && seat.mode.options.front() == "--device"; }

// The output of a run, for comparison.
struct Trace {
  std::string rows;  // after the saved step
  std::string weights;
};

struct Feature {
  const char* name;
  Options options;
  bool is_in_steps = true;  // else the options give the length of the run
};

const std::vector<Feature> kFeatures = {
    {"fp32", {}},
    {"bf16", {"precision.compute=bf16", "model.fp32_params=true", "model.stored=bf16"}},
    // The scale falls at step 3 and rises at steps 5 and 7.
    {"fp16 with a dynamic scale",
     {"precision.compute=fp16", "precision.initial_scale_power=10", "precision.hysteresis=1",
      "precision.loss_scale_window=2", "model.nan_at_step=3"}},
    {"muon", {"--optimizer", "muon"}},
    {"lamb", {"--optimizer", "lamb", "precision.compute=bf16"}},
    {"two programs", {"model.programs=2", "train.eval_every=2", "train.eval_batches=2"}},
    {"buffers", {"model.buffers=true", "model.buffer_sync=fold", "train.eval_every=3", "train.eval_batches=2"}},
    {"epochs with a smaller last step", {"model.samples=50", "data.drop_last=false"}},
    {"epochs without an incomplete last step", {"model.samples=50", "data.drop_last=true"}},
    {"a schedule that reads losses",
     {"--schedule", "plateau", "schedule.patience=0", "schedule.threshold=0.5", "train.eval_every=2",
      "train.eval_batches=2"}},
    // Three steps an epoch: the fourth is in the second one.
    {"epochs and threads that read",
     {"model.samples=50", "data.drop_last=false", "train.epochs=4", "data.workers=3", "train.eval_every_epochs=2",
      "train.eval_batches=2"},
     false},
    {"epochs of programs in turn",
     {"model.programs=2", "model.samples=50", "train.epochs=3", "data.micro_batch.second=2", "data.workers=2"},
     false},
    // The fourth step is inside the second phase.
    {"phases and cycles",
     {"model.programs=2", "model.samples=60", "model.update_samples=5", "data.drop_last=false", "train.cycles=2",
      R"(train.phases=[{"program": "train", "steps": 3}, {"program": "renew"},
         {"program": "second", "epochs": 1, "lr": 0.02, "optimizer": "new", "schedule": "schedule_own"}])",
      "schedule_own.type=linear"},
     false},
    // In the second phase, which the fourth step begins, moments of the other parameters are freed.
    {"phases that end the training of parameters",
     {"model.programs=2", R"(train.phases=[{"program": "train", "steps": 3}, {"program": "second", "steps": 5}])"},
     false},
    // The first phase has reached its end.
    {"a phase that ends with the checkpoint",
     {"model.update_samples=5", "data.drop_last=false", "train.cycles=2",
      R"(train.phases=[{"program": "train", "steps": 4}, {"program": "renew"},
         {"program": "train", "steps": 2, "optimizer": "new"}])"},
     false},
    {"phases with schedules that read losses",
     {"train.eval_every=1", "train.eval_batches=2", "--schedule", "plateau", "schedule.patience=0",
      "schedule.threshold=0.5", "schedule_own.type=plateau", "schedule_own.patience=1", "schedule_own.threshold=0.5",
      R"(train.phases=[{"program": "train", "steps": 2}, {"program": "train", "steps": 5, "schedule": "schedule_own"},
         {"program": "train", "steps": 2}])"},
     false},
    // The current phase began at sample 60, after two steps and the rest of their epoch.
    {"a phase in epochs after one in steps",
     {"model.samples=60", R"(train.phases=[{"program": "train", "steps": 2}, {"program": "train", "epochs": 2}])"},
     false},
    // The best value is that of step 2, so the run ends after step 7.
    {"patience", {"train.eval_every=1", "train.eval_batches=2", "train.patience=5", "train.patience_mode=max"}},
    {"update programs", {"model.update_samples=5", "train.update_every=2", "data.drop_last=false"}},
    {"two optimizers",
     {"model.programs=2", "model.optimizers=2", "train.optimizers=[\"optimizer\",\"optimizer_b\"]",
      "optimizer_b.plugin=adam", "optimizer_b.lr=0.02"}},
};

Options arguments(const Seat& seat, const Feature& feature, bool in_blocks) {
  Options args = {"--model",
                  features_model(),
                  "--strategy",
                  seat.mode.strategy,
                  "--comm",
                  seat.comm,
                  "--nproc",
                  std::to_string(seat.world),
                  "run.quiet=true",
                  "optimizer.lr=0.01",
                  "data.micro_batch=1",
                  "train.grad_accum_steps=" + std::to_string(kMicroBatches / seat.world)};
  if (feature.is_in_steps) args.push_back("train.steps=" + std::to_string(kSteps));
  if (in_blocks) args.insert(args.end(), {"train.reduce_block=2", "run.ranks_per_node=2"});
  if (seat.copies) args.insert(args.end(), {"comm.windows=copy", "comm.poison=true"});
  args.insert(args.end(), seat.mode.options.begin(), seat.mode.options.end());
  args.insert(args.end(), feature.options.begin(), feature.options.end());
  return args;
}

Trace finish(Process& process, const TempFolder& folder) {
  const int code = process.wait();
  INFO(process.command() << "\n" << process.err());
  REQUIRE(code == 0);
  Trace trace;
  std::ifstream in(folder.path() / "run" / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (row.contains("summary") || row.at("step") <= kSaved) continue;
    trace.rows += without_times(row).dump() + "\n";
  }
  trace.weights = read_text(folder.file("final.safetensors"));
  REQUIRE_FALSE(trace.weights.empty());
  return trace;
}

// A run from its beginning that leaves a checkpoint in the middle, in the folder "run".
Trace run_through(const Seat& seat, const Feature& feature, bool in_blocks, const TempFolder& folder) {
  Options args = arguments(seat, feature, in_blocks);
  args.insert(args.end(), {"run.dir=" + folder.file("run"), "--save-final", folder.file("final.safetensors"),
                           "checkpoint.every=" + std::to_string(kSaved), "checkpoint.keep_last=0"});
  Process process(args);
  return finish(process, folder);
}

Trace run_on(const Seat& seat, const Feature& feature, bool in_blocks, const std::string& checkpoint) {
  const TempFolder folder;
  Options args = arguments(seat, feature, in_blocks);
  args.insert(args.end(), {"run.dir=" + folder.file("run"), "--save-final", folder.file("final.safetensors"),
                           "--resume", checkpoint});
  Process process(args);
  return finish(process, folder);
}

std::string checkpoint_of(const TempFolder& folder) {
  return folder.file("run/checkpoints/step-" + std::to_string(kSaved));
}

// The manifest without the fields that depend on strategy and world.
std::string contents(const std::string& checkpoint) {
  nlohmann::json manifest = nlohmann::json::parse(read_text(checkpoint + "/manifest.json"));
  for (const char* key : {"config", "plugins", "world_size", "host"}) manifest.erase(key);
  return manifest.dump(1) + read_text(checkpoint + "/model.safetensors") +
         read_text(checkpoint + "/optimizer.safetensors");
}

// Every seat (strategy, world, transport) writes the same checkpoint and resumes from the first one's. Returns the number
// of runs.
int check_seats(const std::vector<Seat>& seats, const Feature& feature, bool in_blocks = false) {
  const TempFolder first;
  const Trace whole = run_through(seats.front(), feature, in_blocks, first);
  const std::string saved = contents(checkpoint_of(first));
  int runs = 1;
  for (const Seat& seat : seats) {
    INFO(feature.name << ": " << seat.mode.strategy << " on " << seat.world << " ranks over " << seat.comm);
    const Trace resumed = run_on(seat, feature, in_blocks, checkpoint_of(first));
    CHECK(resumed.rows == whole.rows);
    CHECK((resumed.weights == whole.weights));
    ++runs;
    if (&seat == &seats.front()) continue;
    const TempFolder folder;
    const Trace other = run_through(seat, feature, in_blocks, folder);
    CHECK(other.rows == whole.rows);
    CHECK((contents(checkpoint_of(folder)) == saved));
    ++runs;
  }
  return runs;
}

}  // namespace

TEST_CASE("every strategy writes the same checkpoint, and resumes from it with the bits of an uninterrupted run",
          "[equivalence]") {
  std::vector<Seat> seats;
  const std::vector<int> worlds = {1, 3, 2, 4, 2, 3, 2, 2, 4, 3};
  seats.push_back({kOnSim, 2, "loop"});
  for (size_t i = 0; i < worlds.size(); ++i)
    seats.push_back({modes()[i], worlds[i], i % 2 == 0 ? "loop" : "shm", i % 3 == 2});
  check_seats(seats, kFeatures[0]);
}

TEST_CASE("resuming gives the same bits with low precisions, optimizers, programs, buffers and epochs",
          "[equivalence]") {
  for (size_t f = 1; f < kFeatures.size(); ++f) {
    const Mode& other = modes()[1 + f % 9];
    check_seats({{modes()[0], 1, "loop"}, {other, 3, f % 2 == 0 ? "loop" : "shm"}}, kFeatures[f]);
  }
}

TEST_CASE("shards within nodes resume from a checkpoint with other numbers of ranks", "[equivalence]") {
  check_seats({{modes()[0], 2, "loop"}, {modes()[10], 4, "shm"}, {modes()[10], 4, "loop", true}}, kFeatures[1], true);
}

TEST_CASE("micro_first sums resume with the same bits for the same number of ranks", "[equivalence]") {
  const Feature micro_first = {"micro-batches first", {"train.reduce_order=micro_first"}};
  check_seats({{modes()[1], 2, "shm"}, {modes()[3], 2, "loop"}}, micro_first);
}

TEST_CASE("state in files that was freed at the end of a phase: a checkpoint after it resumes with the same bits",
          "[equivalence]") {
  Feature freed = {"", {}};
  for (const Feature& feature : kFeatures)
    if (feature.name == std::string("phases that end the training of parameters")) freed = feature;
  freed.options.insert(freed.options.end(), {"precision.compute=bf16", kManyBlocks});  // masters stay, moments go
  const auto is_in_part = [](const Mode& mode) {
    return std::find(mode.options.begin(), mode.options.end(), "strategy.offload_optimizer.ratio=0.5") !=
           mode.options.end();
  };
  const auto at = std::find_if(modes().begin(), modes().end(), is_in_part);
  REQUIRE(at != modes().end());
  const Mode& in_part = *at;
  check_seats({{modes()[0], 1, "loop"}, {in_part, 2, "shm"}, {in_part, 3, "loop"}}, freed);
}

// Only with `./dev test --all`.
TEST_CASE("all resumed strategies, worlds and features have the same bits", "[.resume]") {
  int runs = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (const Feature& feature : kFeatures) {
    std::vector<Seat> seats, in_blocks;
    for (const int world : {1, 2, 3, 4, 8}) {
      for (size_t m = 0; m < modes().size(); ++m) {
        const Seat seat = {modes()[m], world, (m + static_cast<size_t>(world)) % 2 == 0 ? "loop" : "shm", m % 3 == 0};
        if (is_on_sim(seat) && (world > 3 || seat.comm == "shm")) continue;  // each of its steps is slow
        if (!seat.mode.sums_in_blocks) seats.push_back(seat);
        if (world % 2 == 0) in_blocks.push_back(seat);
      }
    }
    runs += check_seats(seats, feature) + check_seats(in_blocks, feature, true);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  WARN(runs << " runs in " << took.count() << " s");
}
