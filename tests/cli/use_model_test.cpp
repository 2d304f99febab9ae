// SPDX-License-Identifier: Apache-2.0
//
// Use of a trained model: ddhost eval and ddhost generate; and evaluations that end a run (train.patience).
#include <poll.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>

#include "fixtures/harness/listed.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

// 101 samples: seventeen micro-batches of 6, the last of which has 5.
const std::vector<std::string> kModel = {"model.samples=101", "model.metrics=2", "model.sampler=true",
                                         "data.micro_batch=6"};

// A model that was trained for some steps, and the last values that its run reported.
struct Trained {
  TempFolder folder;
  std::string weights = folder.file("weights.safetensors");
  nlohmann::json last;
  Trained() {
    const ToyRun run = ran(toy_run(kModel, {"train.epochs=6", "train.eval_every_epochs=3", "train.eval_batches=all",
                                            "optimizer.lr=0.01", "--save-final", weights}));
    REQUIRE(run.record.evaluations.size() == 2);
    last = run.record.evaluations.back();
  }
};

ToyRun use(const std::string& command, const std::vector<std::string>& options) {
  const TempFolder folder;
  Process process(joined({command, "model.plugin=" + toy_model(), "run.quiet=true"}, options));
  const int code = process.wait(std::chrono::seconds(60));
  return {code, process.command(), process.out(), process.err(), {}};
}

// "  loss   2.5" -> 2.5
double printed(const ToyRun& run, const std::string& name) {
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    double value = 0;
    if (words >> word >> value && word == name) return value;
  }
  return std::nan("");
}

}  // namespace

TEST_CASE("ddhost eval reports what the training run reported, under every strategy and in every world", "[cli]") {
  const Trained trained;
  std::string first;
  for (const std::string& strategy : listed_strategies()) {
    for (const char* world : {"1", "2", "3"}) {
      const ToyRun run =
          ran(use("eval", joined(kModel, {"--weights", trained.weights, "--strategy", strategy, "--nproc", world})));
      CHECK_THAT(run.out, Catch::StartsWith("eval: 101 samples\n"));
      for (const char* name : {"loss", "p1", "p2"})
        CHECK(printed(run, name) == trained.last.at(std::string("val_") + name));
      if (first.empty()) first = run.out;
      CHECK(run.out == first);
    }
  }
}

TEST_CASE("an evaluation of all samples counts each once, for any size of the last micro-batch", "[cli]") {
  const Trained trained;
  const ToyRun whole = ran(use("eval", joined(kModel, {"--weights", trained.weights, "data.micro_batch=101"})));
  for (const char* size : {"1", "6", "50", "100", "102"}) {
    for (const char* drop : {"true", "false", "null"}) {
      const ToyRun run =
          ran(use("eval", joined(kModel, {"--weights", trained.weights, std::string("data.micro_batch=") + size,
                                          std::string("data.drop_last=") + drop})));
      CHECK_THAT(run.out, Catch::StartsWith("eval: 101 samples\n"));
      CHECK(printed(run, "loss") == Approx(printed(whole, "loss")).epsilon(1e-12));
    }
  }
  const ToyRun some = ran(use("eval", joined(kModel, {"--weights", trained.weights, "train.eval_batches=3"})));
  CHECK_THAT(some.out, Catch::StartsWith("eval: 18 samples\n"));
  for (const char* drop : {"true", "false", "null"}) {
    const ToyRun more = ran(use("eval", joined(kModel, {"--weights", trained.weights, "train.eval_batches=40",
                                                        std::string("data.drop_last=") + drop})));
    CHECK_THAT(more.out, Catch::StartsWith("eval: 101 samples\n"));
  }
}

TEST_CASE("ddhost eval evaluates each program that the training programs name, and writes no folder", "[cli]") {
  const TempFolder folder;
  const std::string weights = folder.file("w.safetensors");
  const std::vector<std::string> two = {"model.programs=2", "model.evals=2"};
  ran(toy_run(two, {"train.steps=2", "--save-final", weights}));
  const auto runs = [] { return std::filesystem::exists(std::filesystem::current_path() / "runs"); };
  const bool had_runs = runs();
  const ToyRun both = ran(use("eval", joined(two, {"--weights", weights})));
  CHECK_THAT(both.out, Catch::Contains("eval: 4096 samples") && Catch::Contains("second eval: 2048 samples"));
  const ToyRun one = ran(use("eval", joined(two, {"--weights", weights, "train.programs=[\"second\"]"})));
  CHECK_THAT(one.out, Catch::StartsWith("second eval: 2048 samples"));
  CHECK(runs() == had_runs);
}

TEST_CASE("an evaluation holds only parameters: no gradients and no optimizer state", "[cli]") {
  // A device with room for the parameters and little more. Training needs four times as much.
  const Trained trained;
  const std::vector<std::string> small = joined(
      kModel, {"--device", "sim", "--comm", "loop", "device.capacity_bytes=40000", "model.hidden=70", "run.nproc=1"});
  const TempFolder folder;
  const std::string weights = folder.file("w.safetensors");
  ran(toy_run(kModel, {"model.hidden=70", "train.steps=1", "--save-final", weights}));
  check_refused(toy_run(small, {"train.steps=1"}), {"memory"});
  ran(use("eval", joined(small, {"--weights", weights})));
}

TEST_CASE("ddhost generate prints the text of the training run, and the requested number of samples", "[cli]") {
  const Trained trained;
  const std::vector<std::string> options = joined(kModel, {"--weights", trained.weights, "--length", "12"});
  const ToyRun one = ran(use("generate", options));
  CHECK_THAT(one.out, Catch::StartsWith("tokens 0 "));
  CHECK(std::count(one.out.begin(), one.out.end(), ' ') == 13);
  const ToyRun flags =
      ran(use("generate", joined(options, {"--seed", "1338", "--temperature", "0.7", "--top-k", "5", "--prompt", "abc",
                                           "--strategy", "zero3", "--nproc", "3"})));
  const ToyRun words = ran(use("generate", joined(options, {"run.seed=1338", "run.sample_temperature=0.7",
                                                            "run.sample_top_k=5", "run.sample_prompt=abc"})));
  CHECK(flags.out == words.out);
  CHECK(flags.out != one.out);
  const ToyRun three = ran(use("generate", joined(options, {"--samples", "3"})));
  CHECK_THAT(three.out, Catch::StartsWith("--- sample 1 of 3 ---\n" + one.out));
  const ToyRun second = ran(use("generate", joined(options, {"--seed", "1338"})));
  CHECK_THAT(three.out, Catch::Contains("--- sample 2 of 3 ---\n" + second.out));
  CHECK(second.out != one.out);
}

// A pseudo-terminal, and what a program has written to it.
class Terminal {
 public:
  Terminal() : main_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    REQUIRE(main_ >= 0);
    REQUIRE(grantpt(main_) == 0);
    REQUIRE(unlockpt(main_) == 0);
    program_ = open(ptsname(main_), O_RDWR | O_NOCTTY);
    REQUIRE(program_ >= 0);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    close(program_);
    close(main_);
  }
  [[nodiscard]] int program() const { return program_; }
  [[nodiscard]] std::string text() const {
    std::string out;
    char part[4096];
    for (pollfd ready{main_, POLLIN, 0}; poll(&ready, 1, 100) > 0 && (ready.revents & POLLIN) != 0;) {
      const ssize_t n = read(main_, part, sizeof part);
      if (n <= 0) break;
      out.append(part, static_cast<size_t>(n));
    }
    return out;
  }

 private:
  int main_, program_ = -1;
};

TEST_CASE("a terminal gets control characters of a model's text and names as numbers, a file gets the text as it is",
          "[cli]") {
  const std::vector<std::string> rude =
      joined(kModel, {"model.sample_word=\x1b]0;title\x07", "model.metric_name=\x1b[31mred", "train.steps=2"});
  const TempFolder folder;
  const std::string weights = folder.file("w.safetensors");
  const ToyRun trained = ran(toy_run(rude, {"--save-final", weights, "run.sample_tokens=3", "run.quiet=false"}));
  CHECK_THAT(trained.out, Catch::Contains("\n\x1b]0;title\x07 "));
  CHECK_THAT(trained.err, !Catch::Contains("\x1b"));
  for (const char* command : {"generate", "eval"}) {
    const std::vector<std::string> words =
        joined({command, "model.plugin=" + toy_model(), "--weights", weights, "run.quiet=true"}, rude);
    const Terminal terminal;
    Process process(words, [&] { dup2(terminal.program(), STDOUT_FILENO); });
    const int code = process.wait();
    INFO(process.command() << "\n" << process.err());
    REQUIRE(code == 0);
    const std::string shown = terminal.text();
    CHECK_THAT(shown, Catch::Contains(command == std::string("eval") ? "\\x1b[31mred" : "\\x1b]0;title\\x07 "));
    CHECK(shown.find('\x1b') == std::string::npos);
    CHECK(shown.find('\x07') == std::string::npos);
  }
}

TEST_CASE("ddhost generate prints the text while it is generated", "[cli]") {
  const Trained trained;
  Process process(
      joined({"generate", "model.plugin=" + toy_model(), "run.quiet=true", "--weights", trained.weights, "--nproc", "1",
              "--length", "5000", "--device", "sim", "--comm", "loop", "device.delay_us=2000"},
             kModel));
  std::string out;
  for (int i = 0; i < 2000 && out.size() < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    out = process.out();
  }
  CHECK_THAT(out, Catch::StartsWith("tokens 0 "));
  CHECK(out.back() != '\n');  // more text follows
}

TEST_CASE("a model of phases is evaluated by train.programs, and samples as its last phase was evaluated", "[cli]") {
  const Trained trained;
  const std::vector<std::string> options = joined(kModel, {"--weights", trained.weights, "model.programs=2"});
  const auto phases = [](const std::string& first, const std::string& last) {
    return R"(train.phases=[{"program": ")" + first + R"(", "steps": 1}, {"program": ")" + last + R"(", "steps": 1}])";
  };
  const std::string both = phases("train", "second");
  const ToyRun all = ran(use("eval", joined(options, {both, "train.cycles=2", "model.evals=2"})));
  CHECK_THAT(all.out, Catch::Contains("second eval: ") && Catch::StartsWith("eval: "));
  const ToyRun second =
      ran(use("eval", joined(options, {both, "train.cycles=2", "model.evals=2", "train.programs=[\"second\"]"})));
  CHECK_THAT(second.out, Catch::StartsWith("second eval: "));
  // Nothing evaluates the first program.
  const std::vector<std::string> of_second = joined(options, {"model.evals=2", "model.eval_name="});
  check_refused(use("generate", joined(of_second, {phases("second", "train")})), {"no program for its sampler"});
  ran(use("generate", joined(of_second, {both})));
  ran(use("generate", joined(of_second, {phases("second", "train"), "train.programs=[\"second\"]"})));
}

TEST_CASE("a run ends after train.patience evaluations without an improvement", "[cli]") {
  // Rates so high that the loss gets worse soon.
  const std::vector<std::string> options = joined(kModel, {"train.steps=200", "train.eval_every=5", "optimizer.lr=0.3",
                                                           "schedule.type=constant", "run.quiet=false"});
  const ToyRun run = ran(toy_run(options, {"train.patience=3"}));
  const std::vector<nlohmann::json>& rows = run.record.evaluations;
  REQUIRE(rows.size() > 3);
  CHECK(run.record.steps.size() == rows.size() * 5);
  CHECK(run.record.steps.size() < 200);
  const auto val = [&](size_t i) { return rows[i].at("val_loss").get<double>(); };
  double best = val(0);
  for (size_t i = 1; i + 3 < rows.size(); ++i) best = std::min(best, val(i));
  for (size_t i = rows.size() - 3; i < rows.size(); ++i) CHECK(val(i) >= best);
  CHECK_THAT(run.err,
             Catch::Contains("val_loss has not improved in 3 evaluations") && Catch::Contains("train.patience"));
  const ToyRun seldom = ran(toy_run(options, {"train.patience=3", "monitor.every=1000"}));
  REQUIRE(seldom.record.steps.size() == 1);  // the last, as after any other end
  CHECK(seldom.record.steps.front().at("step") == rows.size() * 5);
  const ToyRun rising = ran(toy_run(options, {"train.patience=3", "train.patience_metric=p1", "train.patience_mode=max",
                                              "optimizer.lr=0.001", "train.steps=40"}));
  CHECK(rising.record.steps.size() == 40);  // the probability of targets rises all the way
}

TEST_CASE("evaluations by epochs run at the end of an epoch, for each value of data.drop_last", "[cli]") {
  const auto steps_of = [](const std::vector<std::string>& options) {
    std::vector<int64_t> steps;
    const ToyRun run = ran(toy_run(joined(kModel, {"train.eval_every_epochs=2"}), options));
    for (const nlohmann::json& row : run.record.evaluations) steps.push_back(row.at("step"));
    return steps;
  };
  using Steps = std::vector<int64_t>;                                            // of 12 samples
  CHECK(steps_of({"train.steps=40"}) == Steps{17, 34});                          // 204 of 202, 408 of 404
  CHECK(steps_of({"train.steps=40", "data.drop_last=true"}) == Steps{16, 32});   // 8 in each epoch
  CHECK(steps_of({"train.epochs=4", "data.drop_last=false"}) == Steps{18, 36});  // 9 in each
}

TEST_CASE("an impossible evaluation, generation or patience gets one sentence", "[cli]") {
  const Trained trained;
  const std::vector<std::string> weights = joined(kModel, {"--weights", trained.weights});
  check_refused(use("eval", kModel), {"ddhost eval needs a trained model", "--weights"});
  check_refused(use("generate", kModel), {"ddhost generate needs a trained model", "--weights"});
  check_refused(use("eval", joined(kModel, {"--weights", "/no/such.safetensors"})), {"/no/such.safetensors"});
  check_refused(use("eval", joined(weights, {"model.width=6"})), {"shape"});
  check_refused(use("eval", joined(weights, {"--prompt", "x"})), {"--prompt"});
  check_refused(use("generate", joined(weights, {"model.sampler=false"})), {"'toy' has no sampler"});
  check_refused(use("generate", joined(weights, {"model.eval_name="})), {"no program for its sampler"});
  check_refused(use("generate", joined(weights, {"--length", "0"})), {"--length", "nothing to generate"});
  check_refused(use("generate", joined(weights, {"--prompt", "?"})), {"can't read the prompt '?'"});
  check_refused(use("generate", joined(weights, {"--condition", "101"})),
                {"run.sample_condition=101", "which has 101"});
  const std::vector<std::string> two = {
      "model.programs=2",   "model.evals=2",    "train.programs=[\"train\",\"second\"]",
      "train.eval_every=1", "train.patience=2", "train.steps=2"};
  check_refused(toy_run(two),
                {"train.patience_metric='loss'", "2 programs", "give one of eval.loss, second eval.loss"});
  ran(toy_run(two, {"train.patience_metric=second eval.loss"}));
  check_refused(toy_run({"train.patience=2"}), {"train.patience=2", "train.eval_every"});
  check_refused(toy_run({"train.patience=2", "train.eval_every=1", "train.patience_metric=acc"}),
                {"train.patience_metric='acc'", "they report loss"});
  check_refused(toy_run({"train.eval_every=2", "train.eval_every_epochs=1"}),
                {"train.eval_every=2 and train.eval_every_epochs=1", "leave one out"});
  check_refused(toy_run({"train.eval_every=2", "train.eval_batches=most"}), {"train.eval_batches", "integer"});
}
