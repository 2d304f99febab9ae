// SPDX-License-Identifier: Apache-2.0
//
// A run of two agents that find each other by variables, as tasks of torchrun. One system call of one of them, or of its rank,
// fails: calls of the store, of the link between agents, of gloo, of libc. Both agents end, and one says why, or both go on
// with the same bits. Afterwards the run can be resumed.
//
//   DDHOST_CALL=0:connect:2:111 build/tests/bin/agent_calls     that one alone: task 0, its second connect, ECONNREFUSED
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <sstream>
#include <thread>
#include <utility>

#include "ddh/sdk/kernels/counter_rng.hpp"
#include "fixtures/faults/call_errors.hpp"
#include "fixtures/faults/traced_run.hpp"
#include "fixtures/harness/skip.hpp"
#include "fixtures/harness/torchrun_task.hpp"

using namespace ddhost::test;

namespace {

struct Point {
  int task;
  long number;
  int64_t call;  // over all processes of the task
  int error;
  [[nodiscard]] std::string text() const {
    return std::to_string(task) + ":" + call_name(number) + ":" + std::to_string(call) + ":" + std::to_string(error);
  }
};

std::vector<std::string> words(const TempFolder& folder, bool resumes) {
  std::vector<std::string> out = {"--model",
                                  toy_model(),
                                  "model.layers=1",
                                  "run.quiet=true",
                                  "run.nproc=2",
                                  "run.sample_tokens=0",
                                  "comm.plugin=gloo",
                                  "strategy.plugin=zero2",
                                  "train.steps=3",
                                  "checkpoint.every=1",
                                  "data.micro_batch=2",
                                  "launch.heartbeat=5",
                                  "launch.timeout=10",
                                  "run.dir=" + folder.file("run"),
                                  "train.save_final=" + folder.file("final.safetensors")};
  if (resumes) out.insert(out.end(), {"--resume", "auto"});
  return out;
}

struct Ended {
  TracedRun traced;
  int other_code = 0;  // of the task that is not traced
  std::string err;     // of both
};

Ended run_both(const TempFolder& folder, int traced_task, const TraceFault& fault, bool resumes) {
  int other_code = 0;
  std::string other_err;
  sigset_t child_signals, before;  // for trace_run alone
  sigemptyset(&child_signals);
  sigaddset(&child_signals, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &child_signals, &before);
  std::jthread other([&] {  // of a thread of its own, because trace_run waits for all children of its thread
    Process process(words(folder, resumes), [&] {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      be_torchrun_task(folder, 1 - traced_task, 2);
    });
    try {
      other_code = process.wait(std::chrono::seconds(40));  // longer than launch.timeout
      other_err = process.err();
    } catch (const std::exception& e) {
      other_code = -1;
      other_err = e.what();
    }
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  TracedRun traced = trace_run(words(folder, resumes), fault, torchrun_variables(folder, traced_task, 2));
  other.join();
  const std::string err = traced.err + other_err;
  return {std::move(traced), other_code, err};
}

struct Reference {
  std::string rows, weights;
  std::array<TracedRun, 2> tasks;
};
const Reference& reference() {
  static const Reference kReference = [] {
    Reference out;
    for (const int task : {0, 1}) {
      const TempFolder folder;
      Ended end = run_both(folder, task, {}, false);
      INFO(end.err);
      REQUIRE(end.traced.code == 0);
      REQUIRE(end.other_code == 0);
      out.rows = rows_of(folder.path() / "run");
      out.weights = read_text(folder.file("final.safetensors"));
      out.tasks[static_cast<size_t>(task)] = std::move(end.traced);
    }
    REQUIRE_FALSE(out.weights.empty());
    return out;
  }();
  return kReference;
}

void check_results(const TempFolder& folder) {
  CHECK(rows_of(folder.path() / "run") == reference().rows);
  CHECK((read_text(folder.file("final.safetensors")) == reference().weights));
}

// Both agents, without a tracer.
void check_goes_on(const TempFolder& folder) {
  std::vector<std::unique_ptr<Process>> tasks;
  for (const int task : {0, 1})
    tasks.push_back(std::make_unique<Process>(words(folder, true), [&] { be_torchrun_task(folder, task, 2); }));
  for (const auto& task : tasks) {
    const int code = task->wait(std::chrono::seconds(60));
    INFO("resumed: " << tasks[0]->err() << tasks[1]->err());
    REQUIRE(code == 0);
  }
}

// Whether the call was made.
bool check_point(const Point& point) {
  const TempFolder folder;
  TraceFault fault;
  fault.fail_number = point.number, fault.fail_at = point.call, fault.fail_errno = point.error;
  const Ended end = run_both(folder, point.task, fault, false);
  INFO("DDHOST_CALL=" << point.text() << " (" << std::strerror(point.error) << "), exit " << end.traced.code
                      << " and of the other task " << end.other_code << "\n"
                      << end.err);
  require_no_raw_text(end.traced.err);
  if (end.traced.code == 0 && end.other_code == 0) {
    check_results(folder);
    return end.traced.reached;
  }
  // The loader ends by itself, for lack of memory without a word. Then the other task waits for launch.timeout.
  CHECK(end.other_code > 0);
  CHECK(end.other_code < 128);
  CHECK_THAT(end.err, Catch::Contains("ddhost: "));
  if (!end.traced.in_loader) {
    CHECK(end.traced.code > 0);
    CHECK(end.traced.code < 128);
  }
  std::filesystem::remove(folder.file("final.safetensors"));  // as the refusal to overwrite it asks
  check_goes_on(folder);
  if (end.err.find("metrics.jsonl") == std::string::npos) CHECK(rows_of(folder.path() / "run") == reference().rows);
  CHECK((read_text(folder.file("final.safetensors")) == reference().weights));
  return end.traced.reached;
}

std::vector<Point> all_points() {
  std::vector<Point> out;
  for (const int task : {0, 1})
    for (const auto& [number, count] : reference().tasks[static_cast<size_t>(task)].by_number) {
      const auto known = call_errors().find(number);
      if (known == call_errors().end()) continue;
      for (int64_t call = 1; call <= count; ++call)
        for (const int error : known->second) out.push_back({task, number, call, error});
    }
  return out;
}

Point point_of(const std::string& text) {
  std::istringstream in(text);
  std::string task, name, call, error;
  std::getline(in, task, ':'), std::getline(in, name, ':'), std::getline(in, call, ':'), std::getline(in, error);
  for (const auto& [number, all] : call_errors())
    if (call_name(number) == name) return {std::stoi(task), number, std::stol(call), std::stoi(error)};
  FAIL("no call is named as in " << text);
  return {};
}

// Counts of waits differ from run to run, so a few calls are not made.
void check_points(const std::vector<Point>& points) {
  size_t made = 0;
  for (const Point& point : points) made += check_point(point) ? 1 : 0;
  CHECK(2 * made >= points.size());
  WARN(made << " failures of system calls");
}

}  // namespace

TEST_CASE("two agents of which a system call fails end with a sentence, or with the same bits", "[faults]") {
  if (const std::string why = why_no_trace(); !why.empty()) return skip(why);
  if (const char* one = std::getenv("DDHOST_CALL")) return check_points({point_of(one)});
  check_points({{0, SYS_bind, 1, EADDRINUSE},
                {0, SYS_listen, 1, EADDRINUSE},
                {0, SYS_accept4, 1, EMFILE},
                {0, SYS_sendto, 1, ENOBUFS},
                {1, SYS_socket, 1, EMFILE},
                {1, SYS_connect, 1, ECONNREFUSED},
                {1, SYS_recvfrom, 1, EINTR},
                {1, SYS_setsockopt, 2, EPERM},
                {1, SYS_epoll_ctl, 2, ENOMEM},
                {1, SYS_clone3, 1, EAGAIN}});
}

TEST_CASE("the same, for calls that a seed draws", "[.all]") {
  if (const std::string why = why_no_trace(); !why.empty()) return skip(why);
  const char* count = std::getenv("DDHOST_CALLS");
  const char* seed = std::getenv("DDHOST_CALLS_SEED");
  std::vector<Point> points = all_points();
  const ddh::CounterRng random(seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10), "system calls of agents");
  for (size_t i = 0; i + 1 < points.size(); ++i) std::swap(points[i], points[i + random.bits(i) % (points.size() - i)]);
  WARN("of " << points.size());
  points.resize(std::min<size_t>(points.size(), count == nullptr ? 400 : std::strtoull(count, nullptr, 10)));
  check_points(points);
}
