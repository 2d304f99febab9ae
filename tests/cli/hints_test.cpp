// SPDX-License-Identifier: Apache-2.0
//
// Mistakes and questions on the command line: what is said, and where to look.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/terminal.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

std::string mistake(const Words& words) {
  const Said said = call_ddhost(words);
  CHECK(said.code != 0);
  CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);
  return said.err;
}

void check_width(const std::string& text, size_t columns) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    INFO(line);
    CHECK(ddhost::columns_of(line) <= columns);
  }
}

}  // namespace

TEST_CASE("unknown flags, commands and values get the nearest one, or ours for a word of another program", "[hints]") {
  CHECK_THAT(mistake({"--stratgy", "zero1"}),
             Contains("no flag '--stratgy'") && Contains("did you mean '--strategy'?"));
  CHECK_THAT(mistake({"--accumulate_grad_batches", "3"}), Contains("here it is train.grad_accum_steps=3"));
  CHECK_THAT(mistake({"--epochz", "3"}),
             Contains("if it means 'epochs' of another program, here it is train.epochs=3"));
  CHECK_THAT(mistake({"--train.steps", "5"}), Contains("no dashes: train.steps=5"));
  CHECK_THAT(mistake({"eval", "--bogus"}), Contains("`ddhost help eval`"));
  CHECK_THAT(mistake({"lst", "--markdown"}), Contains("no command 'lst'") && Contains("did you mean 'list'?"));
  CHECK_THAT(mistake({"evaluate", "--weights", "x"}), Contains("no command 'evaluate'") && Contains("eval"));
  CHECK_THAT(mistake({"runs", "lss"}), Contains("no action 'lss' of `ddhost runs`") && Contains("did you mean 'ls'?"));
  CHECK_THAT(mistake({"ckpt", "nothing_like_it"}), Contains("it has: ls, show, verify, diff, prune, import"));
  CHECK_THAT(mistake({"data", "pek"}), Contains("did you mean 'peek'?"));
  CHECK_THAT(mistake({"precision.compute=bf15"}), Contains("did you mean bf16?"));
  CHECK_THAT(mistake({"--dry-run", "--strategy", "zero_stage_2"}), Contains("strategy.plugin=zero2"));
  CHECK_THAT(mistake({"--dry-run", "--strategy", "zero2x"}), Contains("did you mean 'zero2'?"));
  CHECK_THAT(mistake({"--dry-run", "--optimizer", "FusedAdam"}), Contains("optimizer.plugin=adamw"));
  CHECK_THAT(mistake({"--dry-run", "--monitor", "weights_and_biases"}), Contains("wandb"));
  CHECK_THAT(mistake({"list", "modells"}), Contains("did you mean 'models'?"));
  CHECK_THAT(mistake({"explain", "learning_rate"}), Contains("optimizer.lr"));
  CHECK_THAT(mistake({"explain", "tcp"}), Contains("comm.plugin=gloo"));
  CHECK_THAT(mistake({"zero2"}), Contains("it is the name of a strategy: --strategy zero2"));
  CHECK_THAT(mistake({"runs", "ls", "--older", "3"}), Contains("`ddhost runs ls`; `ddhost runs rm` has it"));
  CHECK_THAT(mistake({"-v"}), Contains("here it is --version"));
  CHECK_THAT(mistake({"--dry-run", "--monitor", "none"}), Contains("here it is monitor.plugins=[]"));
  CHECK_THAT(mistake({"--dry-run", "--strategy", "HSDP"}), Contains("strategy.sharding_strategy=hybrid_shard"));
}

TEST_CASE("a strategy of another program is taken as a flag and as key=value alike", "[hints]") {
  const Words with = {"--dry-run", "--model", toy_model()};
  const Said flag = call_ddhost(joined(with, {"--strategy", "deepspeed_stage_2"}));
  const Said key = call_ddhost(joined(with, {"strategy.plugin=deepspeed_stage_2"}));
  CHECK(flag.code == 0);
  CHECK(key.code == 0);
  CHECK(key.out == flag.out);
  CHECK_THAT(key.out, Contains("\"plugin\": \"zero2\""));
}

TEST_CASE("folders that were searched are named only where no name is near", "[hints]") {
  CHECK_THAT(mistake({"--dry-run", "--strategy", "zero2x"}), !Contains("searched"));
  CHECK_THAT(mistake({"--dry-run", "--strategy", "nothing_like_it"}), Contains("searched"));
}

TEST_CASE("what the parser refuses has a cure, and of two equal flags the last counts", "[hints]") {
  CHECK_THAT(mistake({"data", "peek", "--model", toy_model(), "--samples"}),
             Contains("--samples has no value; give one"));
  CHECK_THAT(mistake({"explain"}), Contains("explain needs a word; give a key"));
  CHECK_THAT(mistake({"completion"}), Contains("give bash, zsh or fish"));
  CHECK_THAT(mistake({"runs", "show"}), Contains("runs show needs a run; give its name"));
  CHECK_THAT(mistake({"runs", "diff", "a"}), Contains("runs diff compares two runs"));
  CHECK_THAT(mistake({"list", "models", "b"}), Contains("'b' is a word too many for `ddhost list`"));
  CHECK_THAT(mistake({"runs", "tail", "a", "-n", "0"}),
             Contains("-n takes a number from 1 to 1000000, and '0' is none"));
  CHECK_THAT(mistake({"runs", "show", "a", "b"}),
             Contains("run has 2 values, and takes at most 1; leave the others out"));
  CHECK_THAT(mistake({"compare", "--strategies", "ddp,zero1", "--rounds", "0"}), Contains("; give another value"));
  CHECK_THAT(mistake({"data", "peek", "--model", toy_model(), "--samples", "2", "--samples", "0"}),
             Contains("--samples '0' is no integer from 1"));
  CHECK_THAT(mistake({"data", "peek", "--model", toy_model(), "--samples", "0", "--samples", "2"}),
             !Contains("no integer"));  // it shows no samples
}

TEST_CASE("help of a command with one action has the flags of that", "[hints]") {
  const Said said = call_ddhost({"help", "data"});
  CHECK(said.code == 0);
  CHECK_THAT(said.out, Contains("--epoch") && Contains("--samples"));
  CHECK(call_ddhost({"data", "--help"}).out == said.out);
  CHECK(call_ddhost({"help", "data", "peek"}).out == said.out);
}

TEST_CASE("help fits into 80 columns, for each command", "[hints]") {
  for (const char* command :
       {"", "train", "eval", "generate", "plan", "list", "inspect", "explain", "ckpt", "export", "data"}) {
    const Words words = *command == '\0' ? Words{"help"} : Words{"help", command};
    const Said said = call_ddhost(words);
    CHECK(said.code == 0);
    CHECK(said.out.size() > 100);
    check_width(said.out, 80);
  }
  CHECK_THAT(call_ddhost({"help", "train"}).out, Contains("--profile ") && !Contains("{"));
  CHECK_THAT(call_ddhost({"runs", "ls", "--help"}).out, Contains("--last N ") && !Contains("UINT"));
  CHECK(call_ddhost({"help", "help"}).out == call_ddhost({"help"}).out);
  CHECK(call_ddhost({"help", "plan"}).out == call_ddhost({"plan", "--help"}).out);
}

TEST_CASE("list shows one kind of plugins", "[hints]") {
  const Said said = call_ddhost({"list", "strategies"});
  CHECK_THAT(said.out, Contains("strategy   zero2") && !Contains("optimizer  adamw"));
  CHECK(call_ddhost({"list", "strategy"}).out == said.out);
}

TEST_CASE("explain says what an option and a plugin mean and cost, and what others call them", "[hints]") {
  const Said option = call_ddhost({"explain", "train.recompute"});
  CHECK(option.code == 0);
  CHECK_THAT(option.out, Contains("meaning ") && Contains("bytes ") && Contains("time ") &&
                             Contains("gradient_checkpointing") && Contains("ddhost train.recompute=1"));
  const Said plugin = call_ddhost({"explain", "zero2"});
  CHECK_THAT(plugin.out, Contains("strategy 'zero2'") && Contains("deepspeed_stage_2") &&
                             Contains("--strategy zero2") && Contains("strategy.reduce_bucket_bytes"));
  CHECK_THAT(call_ddhost({"explain", "strategy.reduce_bucket_size"}).out, Contains("strategy.reduce_bucket_bytes"));
  const Said section = call_ddhost({"explain", "strategy"});
  CHECK(section.code == 0);
  CHECK_THAT(section.out,
             Contains("section 'strategy'") && Contains("strategy 'zero3_offload'") && Contains("strategy.nvme_path"));
  CHECK_THAT(call_ddhost({"explain", "train"}).out, Contains("train.recompute") && Contains("ddhost explain train."));
  for (const Said* said : {&option, &plugin, &section}) check_width(said->out, 80);
}

TEST_CASE("inspect fits its width and shows the names that other programs have for an option", "[hints]") {
  const Said said = call_ddhost({"inspect", "zero2"});
  CHECK(said.code == 0);
  CHECK_THAT(said.out, Contains("strategy.reduce_bucket_size"));
  check_width(said.out, 100);
}

TEST_CASE("inspect leaves out other programs' names for what a plugin does not have", "[hints]") {
  const std::string zero3 = call_ddhost({"inspect", "zero3"}).out;
  CHECK_THAT(zero3, Contains("strategy.stage3_prefetch_bucket_size") && !Contains("super_offload") &&
                        !Contains("strategy.offload_param"));
  CHECK_THAT(call_ddhost({"inspect", "zero3_offload"}).out, Contains("strategy.offload_param"));
}

TEST_CASE("explain says what the letters of a cost mean", "[hints]") {
  CHECK_THAT(call_ddhost({"explain", "zero1"}).out, Contains("P: parameters of the model") && Contains("N: ranks"));
  CHECK_THAT(call_ddhost({"explain", "run.name"}).out, !Contains("P: parameters"));
}

TEST_CASE("bash completes commands, flags, keys, values and plugins", "[hints]") {
  const TempFolder folder;
  const Said script = call_ddhost({"completion", "bash"});
  REQUIRE(script.code == 0);
  std::ofstream(folder.file("ddhost.bash"))
      << script.out
      << "try() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($#-1)); COMPREPLY=(); _ddhost; "
         "echo \"<${COMPREPLY[*]}>\"; }\n"
         "try ddhost pla\ntry ddhost --strat\ntry ddhost --strategy zero3_\n"
         "try ddhost train.recom\ntry ddhost precision.compute = b\n"
         "try ddhost list sched\ntry ddhost plan --all\ntry ddhost explain train.recom\n"
         "try ddhost runs rm --all\ntry ddhost runs plot --all\ntry ddhost runs --all\n"
         "try ddhost runs show ''\ntry ddhost runs diff first sec\ntry ddhost runs rm --yes fi\n"
         "try ddhost ckpt show run\n"
         "try ddhost compare --strategies ddp,zero3_\ntry ddhost --monitor jsonl,cs\n";
  for (const char* run : {"first", "second"}) {
    std::filesystem::create_directories(folder.file("runs/" + std::string(run)));
    std::ofstream(folder.file("runs/" + std::string(run) + "/run.lock"));
  }
  std::filesystem::create_directories(folder.file("runs/no_run"));
  const std::string command = "cd " + folder.path().string() + " && bash ddhost.bash > out";
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(read_text(folder.file("out")) ==
        "<plan>\n<--strategy>\n<zero3_offload>\n<train.recompute=>\n<bf16>\n<schedules>\n<--all-strategies>\n"
        "<train.recompute>\n<--all-files>\n<>\n<--all-files>\n"
        "<first second>\n<second>\n<first>\n<runs>\n<ddp,zero3_offload>\n<jsonl,csv>\n");
}

TEST_CASE("the scripts for zsh and fish are accepted by these shells", "[hints]") {
  const std::string shell = GENERATE("zsh", "fish");
  const TempFolder folder;
  const Said script = call_ddhost({"completion", shell});
  REQUIRE(script.code == 0);
  CHECK_THAT(script.out, Contains("zero3_offload") && Contains("train.recompute"));
  if (std::system(("command -v " + shell + " >/dev/null").c_str()) != 0) {
    WARN("skipped: there is no " << shell);
    return;
  }
  std::ofstream(folder.file("script")) << script.out;
  CHECK(std::system((shell + " -n " + folder.file("script")).c_str()) == 0);
}

TEST_CASE("ddhost without a word says what it does and what comes next", "[hints]") {
  const TempFolder folder;
  Process run({}, [&] {
    if (chdir(folder.path().c_str()) != 0) _exit(126);
  });
  REQUIRE(run.wait(std::chrono::milliseconds(700)) != 0);  // its example is not trained to the end here
  CHECK_THAT(run.err(), Contains("nothing is given, so this trains an example") && Contains("`ddhost help`"));
}
