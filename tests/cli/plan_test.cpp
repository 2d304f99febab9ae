// SPDX-License-Identifier: Apache-2.0
//
// `ddhost plan`: what it says is what a run then takes, without starting a rank.
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>

#include "ddh/sdk/memory/free_memory.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/toy_run.hpp"
#include "fixtures/harness/words.hpp"

using namespace ddhost::test;
using Catch::Contains;
using nlohmann::json;

namespace {

Words toy(const Words& more) { return joined({"plan", "--model", toy_model(), "model.layers=3"}, more); }

json plan(const Words& more) {
  const Said said = call_ddhost(joined(toy({"--json"}), more));
  INFO(said.err);
  REQUIRE(said.code == 0);
  return json::parse(said.out);
}

void check_refused(const Words& words, const std::vector<std::string>& parts, int code = 1) {
  const Said said = call_ddhost(words);
  INFO(said.err);
  CHECK(said.code == code);
  CHECK(said.out.empty());
  for (const std::string& part : parts) CHECK_THAT(said.err, Contains(part));
  CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);
}

}  // namespace

TEST_CASE("a run takes what was planned for its ranks, by tag, to the byte", "[cli]") {
  const std::string strategy = GENERATE("ddp", "zero1", "zero2", "zero3", "zero3_offload", "fsdp");
  const std::string world = GENERATE("1", "2", "3");
  const Words options = {"--strategy", strategy, "--nproc", world, "train.steps=2"};
  const json planned = plan(options).at("plans").at(0);
  REQUIRE(planned.at("ranks_planned") == std::stoi(world));
  const ToyRun run = ran(toy_run(options, {"model.layers=3"}));
  const json& largest = planned.at("largest_rank");
  const json& rank = run.record.summary.at("ranks").at(largest.at("rank").get<size_t>());
  INFO(strategy << " on " << world << "\n" << planned.dump() << "\n" << rank.dump());
  for (const char* tag : {"param", "grad", "optim", "comm"})
    CHECK(largest.at(tag) == rank.at("memory_bytes").at(tag).at("peak"));
  uint64_t unique = largest.at("act").get<uint64_t>() * std::stoull(world);
  for (const char* tag : {"param", "grad", "optim", "comm"})
    unique += run.record.summary.at("unique_peak_bytes").at(tag).get<uint64_t>();
  CHECK(planned.at("unique_bytes_of_all_ranks") == unique);
  for (const char* tag : {"param", "grad", "optim", "comm"})
    CHECK(planned.at("all_ranks").at(tag) == run.record.summary.at("unique_peak_bytes").at(tag));
  CHECK(planned.at("all_ranks").at("act") == largest.at("act").get<uint64_t>() * std::stoull(world));
}

TEST_CASE("windows that are copied are within the plan, too", "[cli]") {
  const std::string strategy = GENERATE("ddp", "zero1", "zero2", "zero3", "fsdp");
  const ToyRun run = ran(toy_run({"--strategy", strategy, "comm.windows=copy", "model.width=256", "model.hidden=256",
                                  "model.layers=5", "model.deviation=0.02", "optimizer.lr=1e-5", "train.steps=2"}));
  CHECK(run.err.empty());  // no warning that less, or more, was taken than planned
}

TEST_CASE("all strategies are planned in one table, and those that fit are marked", "[cli]") {
  const json all = plan({"--all-strategies", "--nproc", "4"});
  std::map<std::string, uint64_t> total;
  for (const json& one : all.at("plans"))
    if (one.contains("largest_rank")) total[one.at("strategy")] = one.at("largest_rank").at("total").get<uint64_t>();
  for (const char* name : {"ddp", "zero1", "zero2", "zero3", "zero3_offload", "fsdp"}) CHECK(total.count(name) == 1);
  REQUIRE(total.at("zero1") < total.at("ddp"));
  const std::string between = std::to_string((total.at("zero1") + total.at("ddp")) / 2000) + "KB";
  const json marked = plan({"--all-strategies", "--nproc", "4", "--memory", between});
  for (const json& one : marked.at("plans")) {
    if (one.at("strategy") == "zero1") CHECK(one.at("fits") == true);
    if (one.at("strategy") == "ddp") CHECK(one.at("fits") == false);
  }
  const Said table = call_ddhost(toy({"--all-strategies", "--nproc", "4", "--memory", between}));
  CHECK(table.code == 0);
  CHECK_THAT(table.out, Contains("zero3_offload") && Contains("yes") && Contains("no: ") && Contains("4 ranks"));
}

TEST_CASE("ranks that no machine has are planned without starting one", "[cli]") {
  const json many = plan({"--strategy", "zero3", "--nproc", "1048576"});
  CHECK(many.at("world_size") == 1048576);
  CHECK(many.at("plans").at(0).at("ranks_planned") == 2);
  const json two = plan({"--strategy", "zero3", "--nproc", "2"}), one = plan({"--strategy", "zero3", "--nproc", "1"});
  const auto optim = [](const json& of) { return of.at("plans").at(0).at("largest_rank").at("optim").get<uint64_t>(); };
  CHECK(optim(two) < optim(one));
  CHECK(optim(many) < optim(two));
}

TEST_CASE("a plan on a device with its own memory tells the host's memory apart", "[cli]") {
  const json plain = plan({"--strategy", "zero3", "--nproc", "2", "--device", "sim"});
  CHECK(plain.at("plans").at(0).at("largest_rank").at("host") ==
        plain.at("plans").at(0).at("largest_rank").at("comm"));  // shm is on the host
  const json away =
      plan({"--strategy", "zero3", "--nproc", "2", "--device", "sim", "strategy.offload_optimizer.device=cpu"});
  const json& rank = away.at("plans").at(0).at("largest_rank");
  const uint64_t host = rank.at("host").get<uint64_t>() - rank.at("comm").get<uint64_t>();
  CHECK(host > 0);
  CHECK(host <= rank.at("optim").get<uint64_t>());
  CHECK(rank.at("device").get<uint64_t>() + rank.at("host").get<uint64_t>() == rank.at("total"));
  const json& all = away.at("plans").at(0).at("all_ranks");
  CHECK(all.at("host").get<uint64_t>() + all.at("device").get<uint64_t>() ==
        away.at("plans").at(0).at("unique_bytes_of_all_ranks"));
  const Said text = call_ddhost(toy({"--strategy", "zero3", "--nproc", "2", "--device", "sim"}));
  CHECK_THAT(text.out, Contains("zero3, all ranks: param ") && Contains("; host ") && Contains(", device "));
}

TEST_CASE("a dry run shows the plan on stderr, and a run before its first step", "[cli]") {
  const TempFolder folder;
  const Said dry = call_ddhost({"--dry-run", "--model", toy_model(), "--strategy", "zero2", "--nproc", "3"});
  CHECK(dry.code == 0);
  CHECK_NOTHROW(json::parse(dry.out));
  CHECK_THAT(dry.err, Contains("on 3 ranks") && Contains("zero2"));
  const Said run = call_ddhost({"--model", toy_model(), "--strategy", "zero2", "--nproc", "2", "train.steps=1",
                                "run.sample_tokens=0", "run.dir=" + folder.file("run")});
  CHECK(run.code == 0);
  CHECK_THAT(run.err, Contains("planned for each rank, in MB: param "));
  // Its first line has what `ddhost plan` has, with the transport.
  const Said plan =
      call_ddhost({"plan", "--model", toy_model(), "--strategy", "zero2", "--nproc", "2", "train.steps=1", "--json"});
  const json planned = json::parse(plan.out).at("plans").at(0).at("largest_rank");
  for (const char* tag : {"param", "comm"}) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%s %.1f,", tag, planned.at(tag).get<double>() / 1e6);
    CHECK_THAT(run.err, Contains(text.data()));
  }
  CHECK_THAT(run.out, Contains("page: " + folder.file("run") + "/report.html"));
}

TEST_CASE("a plan that can't be made is one sentence", "[cli]") {
  check_refused(toy({"--memory", "80"}), {"--memory '80'", "unit", "80GiB"}, 2);
  check_refused(toy({"--memory", "0GiB"}), {"--memory '0GiB'"}, 2);
  check_refused(toy({"--memory", "much"}), {"--memory 'much'"}, 2);
  check_refused(toy({"--memory", ""}), {"--memory ''"}, 2);
  check_refused(toy({"--sizes", "all,big"}), {"--sizes 'all,big'", "all alone"}, 2);
  check_refused(toy({"--nproc", "0"}), {"nproc", "0"});
  check_refused(toy({"--nproc", "1048577"}), {"nproc", "1048576"});
  check_refused(toy({"--strategy", "nothing"}), {"nothing"});
  check_refused(toy({"--strategy", test_plugin("bad_strategy")}), {"strategy 'bad'", "DDH_CAP_DRY_ATTACH"});
  check_refused(toy({"model.layers=0"}), {"model.layers"});
  check_refused(toy({"--nproc", "8", "--ranks-per-node", "3", "--all-strategies"}), {"ddhost: run.ranks_per_node=3"});
  check_refused(toy({"model.layers=0", "--all-strategies"}), {"ddhost: model.layers"});
  check_refused(toy({"--sizes", "all"}), {"--sizes all", "toy", "model.size"});
}

TEST_CASE("a run that does not fit is refused before it takes memory, and names what fits", "[cli]") {
  const Words model = {"model.layers=12", "model.width=40", "model.hidden=64", "--nproc", "4", "--device", "sim"};
  std::map<std::string, uint64_t> on_device;
  const json planned = plan(joined(model, {"--all-strategies"}));
  for (const json& one : planned.at("plans"))
    if (one.contains("largest_rank"))
      on_device[one.at("strategy")] =
          one.at("largest_rank").at("total").get<uint64_t>() - one.at("largest_rank").at("host").get<uint64_t>();
  const std::string little =
      "device.capacity_bytes=" + std::to_string((on_device.at("ddp") + on_device.at("zero1")) / 2);
  const TempFolder folder;
  const Words options = joined(model, {"--strategy", "ddp", "train.steps=3"});
  const ToyRun refused = toy_run(options, {little, "run.dir=" + folder.file("refused")});
  INFO(refused.err);
  CHECK(refused.code == 1);
  for (const char* part : {"the run does not fit: rank 0 will take", "device 'sim' (", "suffice for",
                           "run.allow_overcommit=true", "it fits with strategy.plugin="})
    CHECK_THAT(refused.err, Contains(part));
  CHECK_FALSE(std::filesystem::exists(folder.file("refused")));

  const ToyRun fitted = ran(toy_run(options, {little, "--fit"}));
  CHECK_THAT(fitted.err, Contains("--fit: the run starts with strategy.plugin="));
  const ToyRun large = ran(toy_run(options));
  REQUIRE(fitted.record.steps.size() == 3);
  for (size_t i = 0; i < 3; ++i) CHECK(fitted.record.steps[i].at("loss") == large.record.steps[i].at("loss"));

  const ToyRun forced = toy_run(options, {little, "run.allow_overcommit=true"});
  CHECK(forced.code == 1);
  CHECK_THAT(forced.err, Contains("device sim has"));
}

TEST_CASE("ranks that need more than the machine has are refused before they take it, with what fits", "[cli]") {
  const uint64_t free = ddh::free_memory().bytes;
  REQUIRE(free < UINT64_MAX);
  // 4 ranks of ddp take 64 bytes for each parameter, those of zero1 28 where they share pages.
  const uint64_t n_params = free / 44, hidden = n_params / (3 * 2 * 256);
  const ToyRun run = toy_run({"--strategy", "ddp", "--nproc", "4", "model.width=256", "model.layers=3",
                              "model.hidden=" + std::to_string(hidden)});
  INFO(run.err);
  CHECK(run.code == 1);
  for (const char* part :
       {"the run does not fit: 4 ranks will take", "of memory left, which", "it fits with strategy.plugin="})
    CHECK_THAT(run.err, Contains(part));
  CHECK(run.out.empty());
}

TEST_CASE("--fit is refused where there are several hosts", "[cli]") {
  const TempFolder folder;
  std::ofstream(folder.file("hosts")) << "localhost slots=1\nno-such-host slots=1\n";
  check_refused({"--model", toy_model(), "--hostfile", folder.file("hosts"), "--fit", "run.dir=" + folder.file("run")},
                {"--fit", "one host", "ddhost plan"}, 2);
}

TEST_CASE("numbers of ranks that divide that of the run are tried, where ranks share the memory", "[cli]") {
  const uint64_t free = ddh::free_memory().bytes;
  REQUIRE(free < UINT64_MAX);
  // Three ranks of zero3 take 24 bytes for each parameter, because the units have no blocks, and one 16.
  const uint64_t n_params = free / 20, hidden = n_params / (3 * 2 * 256);
  const ToyRun run = toy_run({"--strategy", "ddp", "--nproc", "3", "model.width=256", "model.layers=3",
                              "model.hidden=" + std::to_string(hidden)});
  INFO(run.err);
  CHECK(run.code == 1);
  CHECK_THAT(run.err, Contains("it fits with ") && Contains("run.nproc=1 train.grad_accum_steps=3"));
}

TEST_CASE("a change that gives other bits is not called the same, and comes last", "[cli]") {
  const Words options = {"--strategy",     "ddp",
                         "--nproc",        "4",
                         "--device",       "sim",
                         "model.width=64", "model.hidden=512",
                         "model.layers=3", "device.capacity_bytes=3000000",
                         "train.steps=1"};
  CHECK_THAT(toy_run(options).err, Contains("it fits with ") && !Contains("other bits"));
  CHECK_THAT(toy_run(options, {"train.reduce_order=micro_first"}).err, Contains("(with other bits)"));
}

// One rank can give nothing to others, and the model can't recompute.
TEST_CASE("a run that fits with the state of its optimizer on a disk is started with that by --fit", "[cli]") {
  const TempFolder folder;
  struct statfs system {};
  REQUIRE(statfs(folder.path().c_str(), &system) == 0);
  if (system.f_type == TMPFS_MAGIC) {
    WARN("not tested: the folder of temporary files is in memory, not on a disk");
    return;
  }
  Process process({"--model", toy_model(), "--strategy", "ddp", "--nproc", "1", "model.width=256", "model.hidden=32000",
                   "model.layers=3", "data.micro_batch=1", "train.steps=1", "run.sample_tokens=0", "--fit",
                   "run.dir=" + folder.file("run")},
                  [] {
                    const rlimit limit{uint64_t{1} << 30, uint64_t{1} << 30};
                    setrlimit(RLIMIT_AS, &limit);
                  });
  const int code = process.wait(std::chrono::seconds(120));
  INFO(process.err());
  CHECK(code == 0);
  CHECK_THAT(process.err(),
             Contains("--fit: the run starts with ") &&
                 Contains("strategy.offload_optimizer.device=nvme strategy.nvme_path=" + folder.file("run")));
}

TEST_CASE("a limit of a process's addresses refuses a run, too", "[cli]") {
  const TempFolder folder;
  Process process({"--model", toy_model(), "--strategy", "ddp", "--nproc", "2", "model.width=256", "model.hidden=50000",
                   "train.steps=1", "run.sample_tokens=0", "run.dir=" + folder.file("run")},
                  [] {
                    const rlimit limit{uint64_t{1} << 30, uint64_t{1} << 30};
                    setrlimit(RLIMIT_AS, &limit);
                  });
  const int code = process.wait();
  INFO(process.err());
  CHECK(code == 1);
  CHECK_THAT(process.err(), Contains("does not fit") && Contains("ulimit -v"));
}

// The limit is the reserve of a rank, and its program takes some of that.
TEST_CASE("an evaluation that does not fit is refused, without changes of a training", "[cli]") {
  const TempFolder folder;
  const std::string weights = folder.file("final.safetensors");
  REQUIRE(toy_run({"train.steps=1", "train.save_final=" + weights}).code == 0);
  Process process({"eval", "--model", toy_model(), "--weights", weights}, [] {
    constexpr uint64_t kReserve = uint64_t{448} << 20;
    const rlimit limit{kReserve, kReserve};
    setrlimit(RLIMIT_AS, &limit);
  });
  const int code = process.wait();
  INFO(process.err());
  CHECK(code == 1);
  CHECK_THAT(process.err(), Contains("does not fit") && Contains("ulimit -v") && !Contains("it fits with"));
}
