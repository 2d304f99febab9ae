// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that a GPU hides most of the time, made once on purpose: the stand-in for the driver finds each in every run.
// Each is made in a process of its own, because a fault of a GPU stays until its process ends.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "gpu/cuda_fixture.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

constexpr uint64_t kNumel = 1000;
constexpr int kRuns = 10;

// What `body` throws, and what it prints, in a process of its own. "right": it ended without an error.
std::string in_a_process(const std::function<void(CudaDevice&)>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    std::string text = "right";
    try {
      CudaDevice gpu;
      body(gpu);
    } catch (const std::exception& e) {
      text = e.what();
    }
    const auto written = write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t n = 0; (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

void expect(bool ok, const char* what) {
  if (!ok) ddh::fail(DDH_INTERNAL, what);
}

void fill(CudaDevice& gpu, float* p, uint64_t numel, double value, ddh_stream* stream) {
  ddh::call(gpu.table->flatops->fill, gpu.context, p, DDH_F32, numel, value, stream);
}
float* floats(CudaDevice& gpu) { return static_cast<float*>(gpu.allocate(kNumel * sizeof(float))); }

// The mistake is found in every run, and the same work without it is right.
void check_found(const std::string& words, const std::function<void(CudaDevice&, bool mistake)>& work) {
  if (needs_stand_ins("only the stand-ins find mistakes in every run")) return;
  CHECK(in_a_process([&](CudaDevice& gpu) { work(gpu, false); }) == "right");
  for (int i = 0; i < kRuns; ++i) CHECK_THAT(in_a_process([&](CudaDevice& gpu) { work(gpu, true); }), Contains(words));
}

}  // namespace

TEST_CASE("a result that is read on another stream than it was made on is found", "[gpu]") {
  check_found("was not filled", [](CudaDevice& gpu, bool mistake) {
    float* const x = floats(gpu);
    fill(gpu, x, kNumel, 3, gpu.streams[0]);
    const auto seen = gpu.read(x, kNumel, gpu.streams[mistake ? 1 : 0]);
    expect(seen == std::vector<float>(kNumel, 3.0F), "the memory was not filled");
  });
}

TEST_CASE("a missing wait between two streams is found", "[gpu]") {
  check_found("wrong sum", [](CudaDevice& gpu, bool mistake) {
    float *const a = floats(gpu), *const b = floats(gpu);
    ddh_event* done = nullptr;
    ddh::call(gpu.table->stream->event_create, gpu.context, &done);
    fill(gpu, a, kNumel, 3, gpu.streams[0]);
    ddh::call(gpu.table->stream->record, gpu.context, done, gpu.streams[0]);
    if (!mistake) ddh::call(gpu.table->stream->wait, gpu.context, gpu.streams[1], done);
    ddh::call(gpu.table->flatops->add, gpu.context, b, a, kNumel, gpu.streams[1]);
    expect(gpu.read(b, kNumel, gpu.streams[1]) == std::vector<float>(kNumel, 3.0F), "a wrong sum");
    gpu.table->stream->event_destroy(gpu.context, done);
  });
}

TEST_CASE("memory that is freed while queued work uses it is found, with the kernel's name", "[gpu]") {
  check_found("fill32", [](CudaDevice& gpu, bool mistake) {
    const ddh_alloc_args args{sizeof(ddh_alloc_args), DDH_TAG_PARAM,  kNumel * sizeof(float),
                              DDH_MEM_DEVICE,         DDH_ALLOC_ZERO, "a test"};
    void* x = nullptr;
    ddh::call(gpu.table->allocate, gpu.context, &args, &x);
    fill(gpu, static_cast<float*>(x), kNumel, 3, gpu.streams[0]);
    if (!mistake) ddh::call(gpu.table->stream->synchronize, gpu.context, gpu.streams[0]);
    gpu.table->release(gpu.context, x, DDH_MEM_DEVICE);
    ddh::call(gpu.table->stream->synchronize, gpu.context, gpu.streams[0]);
  });
}

// The kernels go over the elements in strides of the grid, so a grid is never too large: the number of elements can be.
TEST_CASE("a kernel that is given one element too many is found, with its name", "[gpu]") {
  check_found("scale", [](CudaDevice& gpu, bool mistake) {
    float* const x = floats(gpu);
    ddh::call(gpu.table->flatops->scale, gpu.context, x, kNumel + (mistake ? 1 : 0), 2.0, nullptr);
    ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  });
}

TEST_CASE("a kernel that gets memory of the host is found", "[gpu]") {
  check_found("add", [](CudaDevice& gpu, bool mistake) {
    static std::vector<float> host(kNumel);
    float* const x = floats(gpu);
    ddh::call(gpu.table->flatops->add, gpu.context, x, mistake ? host.data() : x, kNumel, nullptr);
    ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  });
}

TEST_CASE("pinned memory that the host changes before a queued copy has read it is found", "[gpu]") {
  check_found("other values", [](CudaDevice& gpu, bool mistake) {
    auto* const pinned = static_cast<float*>(gpu.allocate(kNumel * sizeof(float), DDH_MEM_PINNED));
    float* const x = floats(gpu);
    std::fill_n(pinned, kNumel, 1.0F);
    ddh::call(gpu.table->copy->copy, gpu.context, x, DDH_MEM_DEVICE, pinned, DDH_MEM_PINNED, kNumel * sizeof(float),
              nullptr);
    if (!mistake) ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
    std::fill_n(pinned, kNumel, 2.0F);
    expect(gpu.read(x, kNumel) == std::vector<float>(kNumel, 1.0F), "the copy has other values");
    gpu.table->release(gpu.context, pinned, DDH_MEM_PINNED);
  });
}

TEST_CASE("a copy in the wrong direction is found", "[gpu]") {
  check_found("direction is wrong", [](CudaDevice& gpu, bool mistake) {
    std::vector<float> host(kNumel, 1.0F);
    float* const x = floats(gpu);
    const int32_t from = mistake ? DDH_MEM_DEVICE : DDH_MEM_HOST, to = mistake ? DDH_MEM_HOST : DDH_MEM_DEVICE;
    ddh::call(gpu.table->copy->copy, gpu.context, x, to, host.data(), from, kNumel * sizeof(float), nullptr);
    expect(gpu.read(x, kNumel) == host, "the copy has other values");
  });
}

TEST_CASE("memory of the GPU that nothing was written to holds no numbers", "[gpu]") {
  check_found("no zeros", [](CudaDevice& gpu, bool mistake) {
    const ddh_alloc_args args{sizeof(ddh_alloc_args),        DDH_TAG_PARAM, kNumel * sizeof(float), DDH_MEM_DEVICE,
                              mistake ? 0U : DDH_ALLOC_ZERO, "a test"};
    void* x = nullptr;
    ddh::call(gpu.table->allocate, gpu.context, &args, &x);
    expect(gpu.read(static_cast<float*>(x), kNumel) == std::vector<float>(kNumel, 0.0F), "there are no zeros");
    gpu.table->release(gpu.context, x, DDH_MEM_DEVICE);
  });
}

TEST_CASE("every thread may call the device, because each call makes the GPU's context its own", "[gpu]") {
  CHECK(in_a_process([](CudaDevice& gpu) {
          float* const x = floats(gpu);
          std::string failure;
          std::thread([&] {
            try {
              fill(gpu, x, kNumel, 3, nullptr);
            } catch (const std::exception& e) {
              failure = e.what();
            }
          }).join();
          ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
          expect(failure.empty(), failure.c_str());
        }) == "right");
}
