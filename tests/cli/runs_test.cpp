// SPDX-License-Identifier: Apache-2.0
//
// `ddhost runs`, the page of each run, and `ddhost compare`.
#include <catch2/catch.hpp>
#include <fstream>

#include "fixtures/harness/bad_run.hpp"
#include "fixtures/harness/processes.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

// Runs in a folder, and `ddhost runs` on them.
class RunsFolder {
 public:
  Said train(const std::string& name, const Words& more = {}) const {
    return call_ddhost(joined({"--model", toy_model(), "--nproc", "2", "train.steps=6", "run.quiet=true",
                               "run.sample_tokens=0", "run.dir=" + dir(name)},
                              more));
  }
  // `words`: the action first.
  Said runs(const Words& words) const { return call_ddhost(joined(joined({"runs"}, words), {"--in", root()})); }
  nlohmann::json json(const Words& words) const {
    const Said said = runs(joined(words, {"--json"}));
    INFO(said.err);
    return nlohmann::json::parse(said.out);
  }
  [[nodiscard]] std::string root() const { return folder_.path().string(); }
  [[nodiscard]] std::string dir(const std::string& name) const { return folder_.file(name); }

 private:
  TempFolder folder_;
};

}  // namespace

TEST_CASE("runs are listed, shown and compared, as text and as JSON", "[cli]") {
  const RunsFolder in;
  REQUIRE(in.train("a", {"checkpoint.every=3"}).code == 0);
  REQUIRE(in.train("b", {"--strategy", "zero3"}).code == 0);
  REQUIRE(in.train("c", {"optimizer.lr=0.02", "train.steps=4"}).code == 0);
  const Said list = in.runs({"ls"});
  for (const char* word : {"a ", "done", " toy ", " zero3 ", "samples/s"}) CHECK_THAT(list.out, Catch::Contains(word));
  CHECK_THAT(list.out, !Catch::Contains(".so"));  // the toy is given by its path
  const nlohmann::json all = in.json({"ls", "--last", "2"});
  REQUIRE(all.size() == 2);
  const nlohmann::json a = in.json({"show", "a"});
  CHECK(a["steps"] == 6);
  CHECK(a["ranks"] == 2);
  CHECK(a["state"] == "done");
  CHECK(a["checkpoints"].size() == 2);
  const RunRecord rows = read_run(in.dir("a"));
  CHECK(a["loss"] == rows.steps.back()["loss"]);
  CHECK_THAT(in.runs({"show", "a"}).out,
             Catch::Contains("train.steps") && Catch::Contains("step-6") && Catch::Contains("param"));

  const Said same = in.runs({"diff", "a", "b"});
  CHECK(same.code == 0);
  CHECK_THAT(same.out, Catch::Contains("strategy.plugin") && Catch::Contains("the same bits in all 6 rows"));
  const nlohmann::json diff = in.json({"diff", "a", "c"});
  CHECK(in.runs({"diff", "a", "c"}).code == 1);
  CHECK(diff["values"]["first"]["step"] == 1);  // the rate of the first step
  CHECK(diff["values"]["only_a"] == 2);

  const Said tail = in.runs({"tail", "a", "-n", "2"});
  CHECK_THAT(tail.out, Catch::Contains("step 6") && Catch::Contains("step 5") && !Catch::Contains("step 4"));
  const Said plot = in.runs({"plot", "a", "c", "--metric", "loss", "--width", "60"});
  CHECK_THAT(plot.out, Catch::Contains("a: loss") && Catch::Contains("c: loss") && Catch::Contains("┤"));
  CHECK(plot.out.find('\x1b') == std::string::npos);
  CHECK(in.json({"plot", "a"})[0]["points"].size() == 6);
  REQUIRE(in.runs({"plot", "a", "c", "--svg", in.dir("plot.svg")}).code == 0);
  CHECK_THAT(read_text(in.dir("plot.svg")), Catch::Contains("<svg") && Catch::Contains("c: loss"));
}

TEST_CASE("a name that is no run, and a value that no run has, are named", "[cli]") {
  const RunsFolder in;
  REQUIRE(in.train("first").code == 0);
  CHECK_THAT(in.runs({"show", "frist"}).err, Catch::Contains("did you mean 'first'"));
  CHECK_THAT(in.runs({"plot", "first", "--metric", "los"}).err, Catch::Contains("they have: loss"));
  CHECK_THAT(call_ddhost({"runs", "ls", in.dir("none")}).err, Catch::Contains("there is no folder"));
  CHECK_THAT(call_ddhost({"runs"}).err, Catch::Contains("runs needs an action"));
  CHECK_THAT(call_ddhost({"runs", "rm", "--older", "3"}).err, Catch::Contains("is no time"));
}

TEST_CASE("a page about each run is in its folder, also after a failure", "[cli]") {
  const RunsFolder in;
  REQUIRE(in.train("good").code == 0);
  const std::string page = read_text(in.dir("good") + "/report.html");
  for (const char* word : {"<svg", "state done", "param", "forward", "train.steps", "grad_norm"})
    CHECK_THAT(page, Catch::Contains(word));
  CHECK(page.size() < 300'000);
  const Said bad =
      in.train("bad", {"--strategy", test_plugin("bad_strategy"), "strategy.at=step", "strategy.fault=silent"});
  REQUIRE(bad.code == 1);
  CHECK_FALSE(fs::exists(in.dir("bad")));  // no step was done, and nothing stays
  const Said late = in.train("late", {"--model", test_plugin("bad_model"), "model.at=forward", "model.fault=segv",
                                      "model.step=3", "run.quiet=false"});
  INFO(late.err);
  REQUIRE(late.code == 1);
  CHECK_THAT(late.out, Catch::Contains("page: " + in.dir("late") + "/report.html"));
  CHECK_THAT(read_text(in.dir("late") + "/report.html"), Catch::Contains("state failed") && Catch::Contains("forward"));
  CHECK(in.json({"show", "late"})["state"] == "failed");
  // What the ranks had counted until then.
  for (const char* word : {"<td>param", "<td>optim", "backward s", "all tags"})
    CHECK_THAT(read_text(in.dir("late") + "/report.html"), Catch::Contains(word));
  CHECK_THAT(in.runs({"show", "late"}).out, Catch::Contains("highest peak"));
  REQUIRE(in.train("none", {"run.report=false"}).code == 0);
  CHECK_FALSE(fs::exists(in.dir("none") + "/report.html"));
  const Said said = in.runs({"show", "none", "--html"});
  CHECK(said.out == in.dir("none") + "/report.html\n");
  CHECK(fs::exists(in.dir("none") + "/report.html"));
}

TEST_CASE("a page that can't be written is a warning, and the run ends well", "[cli]") {
  const RunsFolder in;
  fs::create_directories(in.dir("a") + "/report.html");
  const Said said = in.train("a");
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK_THAT(said.err, Catch::Contains("warning: ") && Catch::Contains("report.html' was not written"));
}

TEST_CASE("rm removes runs that have ended, and nothing that a run does not write", "[cli]") {
  const RunsFolder in;
  for (const char* name : {"a", "b", "c"}) REQUIRE(in.train(name, {"checkpoint.every=3"}).code == 0);
  std::ofstream(in.dir("b") + "/notes.txt") << "mine";
  std::ofstream(in.dir("b") + "/profile-notes.json") << "mine";
  std::ofstream(in.dir("a") + "/profile-2.json") << "of a run that went on";
  CHECK(in.runs({"rm", "a"}).code == 1);  // nobody answers
  CHECK(fs::exists(in.dir("a")));
  const Said some = in.runs({"rm", "a", "b", "--yes"});
  CHECK(some.code == 1);
  CHECK_THAT(some.err, Catch::Contains("holds 2 files that no run writes") && Catch::Contains("--all-files"));
  CHECK_FALSE(fs::exists(in.dir("a")));
  CHECK(fs::exists(in.dir("b") + "/metrics.jsonl"));
  CHECK(in.json({"rm", "--older", "1h", "--yes"})["removed"].empty());
  CHECK(in.json({"rm", "--older", "0s", "--yes", "--all-files"})["removed"].size() == 2);
  CHECK(fs::is_empty(in.root()));
}

TEST_CASE("a run that is named twice is removed once", "[cli]") {
  const RunsFolder in;
  REQUIRE(in.train("a").code == 0);
  const Said said = in.runs({"rm", "a", "a", "--yes"});
  CHECK(said.code == 0);
  CHECK(said.err.empty());
  CHECK_FALSE(fs::exists(in.dir("a")));
}

TEST_CASE("rm removes the output of ranks, but no other folder of its name", "[cli]") {
  const RunsFolder in;
  for (const char* name : {"a", "b", "c"}) REQUIRE(in.train(name, {"launch.output=files", "--comm", "shm"}).code == 0);
  REQUIRE(fs::exists(in.dir("a") + "/output/rank-0.txt"));
  std::ofstream(in.dir("b") + "/output/results.csv") << "mine";
  fs::create_directories(in.dir("c") + "/output/rank-7.txt");
  CHECK(in.runs({"rm", "a", "--yes"}).code == 0);
  CHECK_FALSE(fs::exists(in.dir("a")));
  for (const char* name : {"b", "c"}) {
    const Said said = in.runs({"rm", name, "--yes"});
    CHECK(said.code == 1);
    CHECK_THAT(said.err, Catch::Contains("'output'") && Catch::Contains("--all-files"));
    CHECK(fs::exists(in.dir(name) + "/output/rank-0.txt"));
  }
  CHECK(read_text(in.dir("b") + "/output/results.csv") == "mine");
}

TEST_CASE("a run that is alive is shown as running, and is not removed", "[cli]") {
  const RunsFolder in;
  Process process(
      {"--model", toy_model(), "--nproc", "2", "train.steps=1000000", "run.quiet=true", "run.dir=" + in.dir("a")});
  REQUIRE(soon([&] { return read_text(in.dir("a") + "/metrics.jsonl").find("\"step\":3") != std::string::npos; }));
  CHECK(in.json({"show", "a"})["state"] == "running");
  const Said said = in.runs({"rm", "a", "--yes"});
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Catch::Contains("its run has not ended"));
  const Said older = in.runs({"rm", "--older", "0s", "--yes"});  // that it goes on is no failure
  CHECK(older.code == 0);
  CHECK_THAT(older.err, Catch::Contains("is left out: its run has not ended"));
  CHECK(fs::exists(in.dir("a") + "/metrics.jsonl"));
  kill(process.pid(), SIGINT);
  CHECK(process.wait() == 130);
  CHECK(in.json({"show", "a"})["state"] == "stopped");
  CHECK_THAT(read_text(in.dir("a") + "/report.html"), Catch::Contains("state stopped"));
}

TEST_CASE("10,000 runs are listed within seconds", "[cli]") {
  const RunsFolder in;
  REQUIRE(in.train("one").code == 0);
  for (int i = 0; i < 9'999; ++i) {
    const fs::path folder = in.dir("run-" + std::to_string(i));
    fs::create_directory(folder);
    fs::create_hard_link(in.dir("one") + "/metrics.jsonl", folder / "metrics.jsonl");
    fs::create_hard_link(in.dir("one") + "/config.json", folder / "config.json");
  }
  const auto begin = std::chrono::steady_clock::now();
  const Said list = in.runs({"ls"});
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  CHECK(std::count(list.out.begin(), list.out.end(), '\n') == 10'001);
}

TEST_CASE("compare measures strategies, goes on after an interruption, and keeps its tables", "[cli]") {
  const TempFolder folder;
  const Words words = {
      "compare", "--strategies", "ddp,zero1", "zero3",    "--model", toy_model(), "--nproc",
      "2",       "--steps",      "8",         "--rounds", "2",       "--out",     folder.file("compare")};
  const Said said = call_ddhost(words);
  INFO(said.err);
  REQUIRE(said.code == 0);
  for (const char* word :
       {"ddp", "zero1", "zero3", "samples/s", "1.00x", "base", "same bits, 8 steps", "100.0 %", "use "})
    CHECK_THAT(said.out, Catch::Contains(word));
  for (const char* name : {"compare.md", "compare.csv", "compare.html"})
    CHECK(fs::file_size(folder.file(std::string("compare/") + name)) > 100);
  const fs::path last = folder.path() / "compare/rounds/case-2-round-2";
  REQUIRE(fs::exists(last / "metrics.jsonl"));
  fs::remove_all(last);
  const Said again = call_ddhost(joined(words, {"--json"}));
  REQUIRE(again.code == 0);
  CHECK(std::count(again.err.begin(), again.err.end(), '(') == 5);  // from an earlier command
  const auto json = nlohmann::json::parse(again.out);
  REQUIRE(json.size() == 3);
  for (const auto& one : json) {
    CHECK(one["same_bits"] == true);
    CHECK(one["items_per_s"].size() == 2);
    CHECK(one["losses"].size() == 8);
    CHECK(one["pss_bytes_of_all"] > 1e6);
  }
  CHECK(json[0]["sent_bytes_per_step"] > 0);
  CHECK_THAT(call_ddhost(joined(words, {"optimizer.lr=0.5"})).err, Catch::Contains("a comparison with other settings"));
}

TEST_CASE("Ctrl-C ends a comparison, and the same command goes on from there", "[cli]") {
  const TempFolder folder;
  const Words words = {
      "compare", "--strategies", "ddp,zero1", "--model", toy_model(),           "--nproc", "2", "--steps",
      "300",     "--rounds",     "3",         "--out",   folder.file("compare")};
  Process process(words);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (process.err().find("toy.so zero1: ") == std::string::npos && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  kill(process.pid(), SIGINT);
  const int code = process.wait();
  INFO(process.err());
  CHECK(code == 130);
  CHECK_THAT(process.err(), Catch::Contains("interrupted; the same command goes on from here"));
  const Said again = call_ddhost(words);
  INFO(again.err);
  CHECK(again.code == 0);
  size_t earlier = 0;
  for (size_t at = 0; (at = again.err.find("(from an earlier command)", at)) != std::string::npos; ++at) ++earlier;
  CHECK(earlier >= 2);
  CHECK_THAT(again.out, Catch::Contains("same bits, 300 steps"));
}

TEST_CASE("compare names what it can't measure, and measures the rest", "[cli]") {
  const TempFolder folder;
  const auto compare = [&](const std::string& name, const Words& words) {
    return call_ddhost(
        joined({"compare", "--nproc", "2", "--steps", "5", "--rounds", "1", "--out", folder.file(name)}, words));
  };
  CHECK_THAT(compare("one", {"--strategies", "ddp", "--model", toy_model()}).err,
             Catch::Contains("two strategies or more"));
  const Said none = compare("none", {"--strategies", "ddp,zero1", "--model", "./no_such_model.so"});
  CHECK(none.code == 1);
  CHECK(none.out.empty());
  CHECK_THAT(none.err, Catch::Contains("no_such_model.so") && Catch::Contains("there is nothing to compare"));
  CHECK_THAT(none.err, Catch::Contains("zero1: fails as ./no_such_model.so ddp"));  // the reason is told once
  CHECK(std::count(none.err.begin(), none.err.end(), '\n') == 3);
  CHECK(!fs::exists(folder.file("none/compare.md")));
  const Said some =
      compare("some", {"--strategies", "ddp", "./nothing.so", "zero1", "train.clip_norm=0.5", "--model", toy_model()});
  CHECK(some.code == 1);
  CHECK_THAT(some.out, Catch::Contains("nothing.so: not measured") && Catch::Contains("zero1"));
  CHECK_THAT(compare("dir", {"--strategies", "ddp,zero1", "run.dir=x"}).err, Catch::Contains("run.dir can't be given"));
}

TEST_CASE("tune prints the configuration of the fastest, with which a run starts", "[cli]") {
  const TempFolder folder;
  const Words words = {"tune",
                       "--strategies",
                       "ddp,zero1",
                       "--model",
                       toy_model(),
                       "--nproc",
                       "2",
                       "--steps",
                       "6",
                       "--rounds",
                       "1",
                       "--memory",
                       "1GiB",
                       "data.micro_batch=4",
                       "train.grad_accum_steps=2",
                       "optimizer.lr=0.03",
                       "--out",
                       folder.file("tune"),
                       "--json"};
  const Said said = call_ddhost(words);
  INFO(said.err);
  REQUIRE(said.code == 0);
  const auto tuned = nlohmann::json::parse(said.out);
  CHECK(tuned["cases"].size() == 2);
  const auto& config = tuned["config"];
  CHECK(config["data"]["micro_batch"].get<int>() * config["train"]["grad_accum_steps"].get<int>() == 8);
  CHECK(config["optimizer"]["lr"] == 0.03);
  CHECK(config == nlohmann::json::parse(read_text(folder.file("tune/tuned.json"))));
  std::ofstream(folder.file("mine.json")) << config.dump();
  const Said run =
      call_ddhost({"--config", folder.file("mine.json"), "train.steps=3", "run.dir=" + folder.file("run")});
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto used = nlohmann::json::parse(read_text(folder.file("run/config.json")));
  CHECK(used["strategy"] == config["strategy"]);
  CHECK(used["data"] == config["data"]);
}
