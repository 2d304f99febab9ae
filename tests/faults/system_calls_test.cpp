// SPDX-License-Identifier: Apache-2.0
//
// One system call of a run fails, with each errno that its manual page gives and that a well-written caller can meet: also
// calls of libc and of the dynamic loader, which call_faults does not see. The run ends with a sentence and can be resumed, or
// it goes on with the same bits.
//
//   DDHOST_CALL=rename:2:28 build/tests/bin/system_calls     that one alone: the second rename, ENOSPC
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "ddh/sdk/kernels/counter_rng.hpp"
#include "fixtures/faults/call_errors.hpp"
#include "fixtures/faults/small_run.hpp"
#include "fixtures/harness/skip.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

struct Point {
  long number;
  int64_t call;  // over all processes
  int error;
  [[nodiscard]] std::string text() const {
    return call_name(number) + ":" + std::to_string(call) + ":" + std::to_string(error);
  }
};

// The dynamic loader and libc speak for themselves before main.
bool says_why(const std::string& err) {
  return err.find("ddhost: ") != std::string::npos ||
         err.find("error while loading shared libraries") != std::string::npos;
}

void check_point(const Point& point) {
  const TempFolder folder;
  fs::create_directory(folder.path() / "weights");
  TraceFault fault;
  fault.fail_number = point.number, fault.fail_at = point.call, fault.fail_errno = point.error;
  const TracedRun run = trace_run(small_run_words(folder), fault);
  INFO("DDHOST_CALL=" << point.text() << " (" << std::strerror(point.error) << "), exit " << run.code << "\n"
                      << run.err);
  require_no_raw_text(run.err);
  check_files(folder, run.err);
  if (run.code == 0) {
    CHECK(rows_of(folder.path() / "run") == reference().rows);
    CHECK((read_text(folder.file("weights/final.safetensors")) == reference().weights));
    return;
  }
  CHECK(run.code > 0);  // it did not hang
  // The loader ends by itself, for lack of memory without a word.
  if (!run.in_loader) {
    CHECK(run.code < 128);
    CHECK(says_why(run.err));
  }
  check_goes_on(folder, run.err);
}

std::vector<Point> all_points() {
  std::vector<Point> out;
  for (const auto& [number, count] : reference().run.by_number) {
    const auto known = call_errors().find(number);
    if (known == call_errors().end()) continue;
    for (int64_t call = 1; call <= count; ++call)
      for (const int error : known->second) out.push_back({number, call, error});
  }
  return out;
}

Point point_of(const std::string& text) {
  const size_t first = text.find(':'), second = text.find(':', first + 1);
  REQUIRE(second != std::string::npos);
  for (const auto& [number, all] : call_errors())
    if (call_name(number) == text.substr(0, first))
      return {number, std::stol(text.substr(first + 1)), std::stoi(text.substr(second + 1))};
  FAIL("no call is named as in " << text);
  return {};
}

// `count` of the points, drawn from a seed; all of them if it is 0. `only`: calls of this name.
void check_points(size_t count, uint64_t seed, const char* only) {
  if (const std::string why = why_no_trace(); !why.empty()) return skip(why);
  if (const char* one = std::getenv("DDHOST_CALL")) return check_point(point_of(one));
  std::vector<Point> points = all_points();
  const size_t all = points.size();
  if (only != nullptr) std::erase_if(points, [&](const Point& p) { return call_name(p.number) != only; });
  const ddh::CounterRng random(seed, "system calls");
  for (size_t i = 0; i + 1 < points.size(); ++i) std::swap(points[i], points[i + random.bits(i) % (points.size() - i)]);
  if (count > 0 && count < points.size()) points.resize(count);
  for (const Point& point : points) check_point(point);
  std::string kinds;
  for (const auto& [number, n] : reference().run.by_number)
    kinds += (call_errors().contains(number) ? " " : " (") + call_name(number) + " " + std::to_string(n) +
             (call_errors().contains(number) ? "" : ")");
  WARN(points.size() << " of " << all
                     << " failures of system calls. Calls of a run (in brackets: can't fail):" << kinds);
}

}  // namespace

TEST_CASE("a run in which any system call fails ends with a sentence, or with the same bits", "[faults]") {
  check_points(14, 1, nullptr);
}

TEST_CASE("the same, for every call", "[.all]") {
  const char* count = std::getenv("DDHOST_CALLS");  // fewer of them, and from another seed
  const char* seed = std::getenv("DDHOST_CALLS_SEED");
  check_points(count == nullptr ? 0 : std::strtoull(count, nullptr, 10),
               seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10), std::getenv("DDHOST_CALLS_NAMED"));
}
