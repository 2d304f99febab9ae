// SPDX-License-Identifier: Apache-2.0
//
// Assertions of PyTorch's tests of FSDP and DDP, except values: delayed ranks, prefetching, weights that move between
// strategies and world sizes, errors on all ranks. README.md here has the table.
#include <signal.h>

#include <algorithm>
#include <atomic>

#include "equivalence/variants.hpp"

using namespace ddhost::test;

namespace {

std::vector<pid_t> children_of(pid_t parent) {
  const std::string id = std::to_string(parent);
  std::istringstream in(read_text("/proc/" + id + "/task/" + id + "/children"));
  std::vector<pid_t> out;
  for (pid_t child = 0; in >> child;) out.push_back(child);
  return out;
}

// Stops one rank after the other for some milliseconds until told to end: each is late at places that differ from run to
// run. Returns how often.
int delay_ranks(pid_t launcher, const std::atomic<bool>& ended) {
  int delays = 0;
  for (unsigned turn = 1; !ended; turn = turn * 1103515245 + 12345) {
    const std::vector<pid_t> ranks = children_of(launcher);
    if (!ranks.empty()) {
      const pid_t late = ranks[(turn >> 16) % ranks.size()];
      if (kill(late, SIGSTOP) != 0) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(2 + (turn >> 20) % 4));
      kill(late, SIGCONT);
      ++delays;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return delays;
}

}  // namespace

// T1, T12: delays after forward, before a gather, before a reduction, before and after the update.
TEST_CASE("ranks that are late anywhere change no bit", "[parity]") {
  const Options options = {"train.grad_accum_steps=2", "model.layers=6", "model.hidden=70", "data.micro_batch=40"};
  const Result reference = run(kReference, 3, options, 60);
  for (const std::string& strategy : taken_strategies()) {
    const TempFolder folder;
    Options args = {"--strategy",
                    strategy,
                    "--comm",
                    "shm",
                    "--model",
                    toy_model(),
                    "--nproc",
                    "3",
                    "--save-final",
                    folder.file("final.safetensors"),
                    "run.quiet=true",
                    "run.dir=" + folder.file("run"),
                    "optimizer.lr=0.01",
                    "train.steps=60"};
    args.insert(args.end(), options.begin(), options.end());
    Process process(args);
    std::atomic<bool> ended = false;
    int delays = 0;
    std::thread delayer([&] { delays = delay_ranks(process.pid(), ended); });
    const int code = process.wait();
    ended = true;
    delayer.join();
    INFO(process.command() << "\n" << process.err());
    REQUIRE(code == 0);
    CHECK(delays >= 3);
    CHECK(read_run(folder.path() / "run").column("loss") == reference.loss);
    CHECK((read_text(folder.file("final.safetensors")) == reference.weights));
  }
}

// T3: nothing ahead, one, two and more, in both directions.
TEST_CASE("how far ahead parameters are gathered changes no bit", "[parity]") {
  const Options options = {"model.layers=8", "data.micro_batch=4"};
  const int world = GENERATE(2, 3);
  const Result reference = run(kReference, world, options, 6);
  std::vector<Variant> ways;
  for (const char* comm : {"loop", "shm"}) {
    for (const char* strategy : {"zero3", "zero3_offload"}) {
      for (const char* units : {"0", "1", "2", "3"})
        ways.push_back({strategy, comm, {std::string("strategy.prefetch_units=") + units, "comm.windows=copy"}});
    }
    for (const char* backward : {"pre", "post", "none"}) {
      for (const char* forward : {"true", "false"}) {
        for (const char* reshard : {"true", "false"}) {
          ways.push_back({"fsdp",
                          comm,
                          {std::string("strategy.backward_prefetch=") + backward,
                           std::string("strategy.forward_prefetch=") + forward,
                           std::string("strategy.reshard_after_forward=") + reshard, "comm.windows=copy"}});
        }
      }
    }
  }
  for (const Variant& way : ways) {
    const Result other = run(way, world, options, 6);
    check_same_bits(reference, other);
    check_plan(other);
  }
}

// T9: calls per step of 5 units that train, exact, with and without accumulation in both orders. Torch gathers anew for every
// use; here an update publishes, once for a step, and views are opened without a call.
TEST_CASE("a step makes exactly the expected number of collectives", "[parity]") {
  constexpr uint32_t kUnits = 5;
  struct Expected {
    Variant way;
    uint32_t publish, reductions;  // in a step of one reduction for each unit
  };
  const std::vector<Expected> all = {
      {{"ddp", "shm", {}}, 0, kUnits},
      {{"zero1", "shm", {}}, kUnits, kUnits},
      {{"zero2", "shm", {}}, kUnits, kUnits},
      {{"zero3", "shm", {}}, kUnits, kUnits},
      {{"fsdp", "shm", {}}, kUnits, kUnits},
      // Replicas: an all_reduce after each reduction inside the shard group.
      {{"fsdp", "shm", {"strategy.sharding_strategy=no_shard"}}, kUnits, 2 * kUnits},
      {{"fsdp", "shm", {"strategy.sharding_strategy=hybrid_shard", "strategy.shard_size=2"}}, kUnits, 2 * kUnits},
  };
  for (const Expected& e : all) {
    for (const uint32_t accum : {1U, 3U}) {
      for (const std::string order : {"rank_first", "micro_first"}) {
        const Result result = run(
            e.way, 4,
            {"train.grad_accum_steps=" + std::to_string(accum), "train.reduce_order=" + order, "train.reduce_block=2"},
            4);
        INFO(result.command);
        check_counts(result);
        const auto& calls = result.record.summary.at("plan_calls");
        CHECK(calls.at("publish").get<uint32_t>() == e.publish);
        CHECK(calls.at("reduce").get<uint32_t>() == e.reductions * (order == "rank_first" ? accum : 1));
      }
    }
  }
}

// T13, T19: weights that one strategy saves on some ranks are loaded by another strategy on other ranks.
TEST_CASE("weights go from strategy to strategy and from world to world without a change", "[parity]") {
  const TempFolder folder;
  std::vector<std::string> strategies = taken_strategies();
  strategies.emplace_back("ddp");
  std::string weights = run(kReference, 2, {}, 5).weights;
  int world = 1;
  for (const std::string& strategy : strategies) {
    for (const int n : {1, 2, 3, 4}) {
      world = world % 4 + n % 2 + 1;
      std::ofstream(folder.file("saved.safetensors"), std::ios::binary) << weights;
      const Result moved =
          run({strategy, "shm", {}}, std::min(world, 4), {"train.init_from=" + folder.file("saved.safetensors")}, 0);
      INFO(moved.command);
      CHECK((moved.weights == weights));
    }
  }
}

// T20: what no_sync promises. The samples of a step are the same; only their sums are cut differently.
TEST_CASE("micro-batches that are accumulated give the step of one large batch", "[parity]") {
  for (const std::string& strategy : taken_strategies()) {
    const Variant way = {strategy, "shm", {}};
    const Result large = run(way, 2, {"data.micro_batch=12"}, 10),
                 parts = run(way, 2, {"data.micro_batch=4", "train.grad_accum_steps=3"}, 10);
    INFO(parts.command);
    for (size_t i = 0; i < 10; ++i) {
      const double expected = large.record.steps[i].at("loss");
      CHECK(parts.record.steps[i].at("loss").get<double>() == Approx(expected).epsilon(1e-6));
    }
  }
}

// T18: the sentence comes from every rank's own check, and nobody waits for another.
TEST_CASE("what can't be is refused on all ranks, with a sentence and without a hang", "[parity]") {
  struct Wrong {
    const char* strategy;
    Options options;
    const char* sentence;
  };
  const std::vector<Wrong> all = {
      {"fsdp", {"strategy.sharding_strategy=hybrid_shard"}, "nodes of equal size"},
      {"fsdp",
       {"strategy.sharding_strategy=hybrid_shard", "strategy.shard_size=2"},
       "a size that divides the number of ranks"},
      {"zero3_offload",
       {"strategy.offload_optimizer.device=nvme", "strategy.nvme_path=/no/such/folder"},
       "/no/such/folder"},
      {"zero3", {"data.micro_batch=4000"}, "use fewer ranks"},
      {"zero3", {"train.init_from=/no/such/file"}, "/no/such/file"},
  };
  for (const Wrong& wrong : all) {
    for (const char* comm : {"loop", "shm"}) {
      const auto begin = std::chrono::steady_clock::now();
      const Result result = attempt({{wrong.strategy, comm, {}}, 3, wrong.options, 5});
      INFO(result.command << "\n" << result.err);
      CHECK(result.code == 1);
      CHECK_THAT(result.err, Catch::Contains(wrong.sentence));
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
    }
  }
}

namespace {

// Elements of the toy model by unit, each parameter padded to 64: width 32, hidden 48, vocab 40, three layers.
uint64_t padded(uint64_t numel) { return (numel + 63) / 64 * 64; }
const uint64_t kLayerBytes = 4 * (2 * padded(48 * 32) + padded(48) + padded(1) + padded(3) + padded(32)),
               kRestBytes = 4 * (padded(40 * 32) + padded(40)), kAllBytes = 3 * kLayerBytes + kRestBytes;
const Options kWide = {"model.width=32", "model.hidden=48", "model.vocab=40", "data.micro_batch=2"};

uint64_t over_ranks(const Result& result, const char* tag, const char* which) {
  uint64_t bytes = 0;
  for (const auto& rank : result.record.summary.at("ranks"))
    bytes += rank.at("memory_bytes").at(tag).at(which).get<uint64_t>();
  return bytes;
}

}  // namespace

// 8.3, over both ranks together, where they share pages. Torch allows 3 units and what is in no unit beside the segments.
// Copied windows keep more, and all of it is in the plan.
TEST_CASE("fsdp's peaks lie between what must be there and what torch allows", "[parity][memory]") {
  const uint64_t frozen = 4 * 3 * padded(32), trained = kAllBytes - frozen;
  const auto run_mode = [&](const std::string& mode) {
    Result result = run({"fsdp", "shm", {"strategy.sharding_strategy=" + mode}}, 2, kWide, 4);
    check_plan(result);
    CHECK(over_ranks(result, "optim", "now") == 2 * trained * (mode == "no_shard" ? 2 : 1));
    return result;
  };
  const Result full = run_mode("full_shard"), op = run_mode("shard_grad_op"), none = run_mode("no_shard");
  CHECK(over_ranks(full, "param", "now") == kAllBytes);
  CHECK(over_ranks(full, "param", "peak") >= kAllBytes + 2 * kLayerBytes);
  CHECK(over_ranks(full, "param", "peak") <= kAllBytes + 2 * (3 * kLayerBytes + kRestBytes));
  CHECK(over_ranks(full, "grad", "peak") >= trained + 2 * kLayerBytes);
  CHECK(over_ranks(full, "grad", "peak") <= trained + 2 * (3 * kLayerBytes + kRestBytes));
  CHECK(over_ranks(op, "param", "peak") >= kAllBytes + 3 * kLayerBytes);
  CHECK(over_ranks(op, "param", "peak") <= kAllBytes + 2 * (kAllBytes + kLayerBytes));
  CHECK(over_ranks(none, "param", "now") == 2 * kAllBytes);
}
