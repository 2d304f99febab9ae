// SPDX-License-Identifier: Apache-2.0
//
// Every call of a whole run that asks the kernel for something fails once, with each likely error. The run ends with a
// sentence and leaves no file in the folder of its final weights, or it goes on and writes the same bits.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

struct Function {
  const char* name;
  std::vector<int> errors;
};
// In the order of tests/fixtures/faults/call_faults.c.
const std::array<Function, 18>& functions() {
  static const std::array<Function, 18> kFunctions = {{{"open", {EMFILE, EACCES, ENOMEM, ENOSPC}},
                                                       {"fopen", {EMFILE, EACCES}},
                                                       {"write", {ENOSPC, EIO, EINTR}},
                                                       {"pwrite", {ENOSPC, EIO, EINTR}},
                                                       {"fsync", {EIO, ENOSPC}},
                                                       {"fallocate", {ENOSPC, EINTR}},
                                                       {"ftruncate", {EIO, EINTR}},
                                                       {"linkat", {EACCES, ENOSPC, EEXIST}},
                                                       {"mkdir", {EACCES, ENOSPC}},
                                                       {"mmap", {ENOMEM}},
                                                       {"fork", {EAGAIN, ENOMEM}},
                                                       {"socket", {EMFILE}},
                                                       {"bind", {EACCES, ENOMEM}},
                                                       {"socketpair", {EMFILE}},
                                                       {"eventfd", {EMFILE}},
                                                       {"signalfd", {EMFILE}},
                                                       {"memfd_create", {EMFILE, ENOMEM}},
                                                       {"poll", {EINTR, ENOMEM}}}};
  return kFunctions;
}
using Counts = std::array<int64_t, 18>;

struct Point {
  size_t function = 0;
  int64_t call = 0;  // from 1; 0: none fails
  int error = 0;
};

struct Ended {
  int code;
  std::string err, weights;
  Counts counts;
  bool has_other_files;  // in the folder of the weights
};

Ended run_with(const Point& point) {
  const TempFolder folder;
  const std::string counter = folder.file("counter");
  std::ofstream(counter, std::ios::binary) << std::string(sizeof(Counts), '\0');
  fs::create_directory(folder.path() / "weights");
  const fs::path weights = folder.path() / "weights" / "w.safetensors";
  Process process(
      {"--model", toy_model(), "--strategy", "zero2", "--nproc", "2", "run.sample_tokens=0", "run.quiet=true",
       "train.steps=3", "run.dir=" + folder.file("run"), "train.save_final=" + weights.string()},
      [&] {
        setenv("DDH_CALLS", counter.c_str(), 1);
        setenv("DDH_CALLS_OF", std::to_string(point.function).c_str(), 1);
        setenv("DDH_CALLS_AT", std::to_string(point.call).c_str(), 1);
        setenv("DDH_CALLS_ERRNO", std::to_string(point.error).c_str(), 1);
        setenv("LD_PRELOAD", DDHOST_CALL_FAULTS, 1);
      });
  Ended end{};
  end.code = process.wait(std::chrono::seconds(120));  // a loaded machine
  end.err = process.err();
  end.weights = read_text(weights);
  const std::string bytes = read_text(counter);
  std::memcpy(end.counts.data(), bytes.data(), sizeof end.counts);
  for (const auto& entry : fs::directory_iterator(folder.path() / "weights"))
    if (entry.path().extension() != ".safetensors") end.has_other_files = true;
  return end;
}

const Ended& reference() {
  static const Ended kReference = run_with({});
  return kReference;
}

void check_point(const Point& point) {
  const Function& function = functions()[point.function];
  const Ended end = run_with(point);
  INFO(function.name << ", call " << point.call << " of " << reference().counts[point.function] << ": "
                     << std::strerror(point.error) << "; exit " << end.code << "\n"
                     << end.err);
  CHECK_FALSE(end.has_other_files);
  if (end.code == 0) {
    CHECK((end.weights == reference().weights));
    return;
  }
  CHECK(end.code > 0);  // not hanging
  CHECK(end.code < 128);
  CHECK_THAT(end.err, Catch::Contains("ddhost: "));
  CHECK((end.weights.empty() || end.weights == reference().weights));
}

// Every `stride`-th point. Returns the number of points tried.
int64_t check_points(int64_t stride) {
  REQUIRE(reference().code == 0);
  int64_t seen = 0, tried = 0;
  for (size_t f = 0; f < functions().size(); ++f)
    for (int64_t call = 1; call <= reference().counts[f]; ++call)
      for (const int error : functions()[f].errors)
        if (seen++ % stride == 0) {
          check_point({f, call, error});
          ++tried;
        }
  return tried;
}

}  // namespace

TEST_CASE("a run in which a call to the kernel fails ends with a sentence, or with the same bits", "[faults]") {
  const int64_t tried = check_points(13);
  WARN(tried << " failures of calls");
}

TEST_CASE("the same, for every call", "[.all]") {
  const int64_t tried = check_points(1);
  WARN(tried << " failures of calls");
}
