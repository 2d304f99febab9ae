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

// Calls that destroy report nothing, so only release is tried. The thread that begins a capture also ends it.
TEST_CASE("each call of the device may come from a new thread, because it makes the GPU's context the thread's own",
          "[gpu]") {
  if (needs_stand_ins("a GPU's driver takes some of these calls without a context")) return;
  CHECK(in_a_process([](CudaDevice&) {
          CudaDevice gpu(/*graphs=*/true);
          const ddh_device_api& device = *gpu.table;
          const ddh_stream_api& streams = *device.stream;
          void* const h = gpu.context;
          ddh_stream* const s = gpu.streams[0];
          float* const x = floats(gpu);
          fill(gpu, x, kNumel, 3, s);  // the kernel is loaded
          ddh_event* event = nullptr;
          ddh_graph* graph = nullptr;
          const auto free_bytes = [&] {
            ddh_device_info info{sizeof(ddh_device_info), 0, 0, 0, {}, {}, {}};
            ddh::call(device.info, gpu.inst(), h, &info);
            return info.free_bytes;
          };
          std::string wrong;
          const auto on_thread = [&](const char* name, const std::function<void()>& call) {
            std::thread([&] {
              try {
                call();
              } catch (const std::exception& e) {
                wrong += ddh::str(name, ": ", e.what(), "; ");
              }
            }).join();
          };
          on_thread("info", [&] { (void)free_bytes(); });
          for (const int32_t memory : {DDH_MEM_DEVICE, DDH_MEM_PINNED}) {
            void* block = nullptr;
            const ddh_alloc_args args{sizeof(ddh_alloc_args), DDH_TAG_PARAM, 4096, memory, DDH_ALLOC_ZERO, "a test"};
            on_thread("allocate", [&] { ddh::call(device.allocate, h, &args, &block); });
            const uint64_t before = free_bytes();
            std::thread([&] { device.release(h, block, memory); }).join();
            if (memory == DDH_MEM_DEVICE && free_bytes() <= before) wrong += "release has freed nothing; ";
          }
          ddh_stream* created = nullptr;
          on_thread("create", [&] { ddh::call(streams.create, h, "test", &created); });
          on_thread("event_create", [&] { ddh::call(streams.event_create, h, &event); });
          on_thread("record", [&] { ddh::call(streams.record, h, event, s); });
          on_thread("wait", [&] { ddh::call(streams.wait, h, gpu.streams[1], event); });
          on_thread("synchronize", [&] { ddh::call(streams.synchronize, h, s); });
          on_thread("run", [&] {
            const auto nothing = [](void*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; };
            ddh::call(streams.run, h, s, nothing, nullptr, nullptr, 0U, "a test");
          });
          on_thread("copy", [&] {
            ddh::call(device.copy->copy, h, x, DDH_MEM_DEVICE, x, DDH_MEM_DEVICE, kNumel * sizeof(float), s);
          });
          on_thread("fill of integers", [&] { ddh::call(device.flatops->fill, h, x, DDH_I32, kNumel, 0.0, s); });
          on_thread("launch", [&] { fill(gpu, x, kNumel, 4, s); });
          on_thread("the first launch of a kernel", [&] { ddh::call(device.flatops->scale, h, x, kNumel, 2.0, s); });
          for (const char* name : {"the first capture, which loads kernels", "capture"}) {
            streams.graph_destroy(h, std::exchange(graph, nullptr));
            on_thread(name, [&] {
              ddh::call(streams.capture_begin, h, s, "a test");
              fill(gpu, x, kNumel, 5, s);
              ddh::call(streams.capture_end, h, s, &graph);
            });
          }
          on_thread("graph_launch", [&] { ddh::call(streams.graph_launch, h, graph, s); });
          expect(wrong.empty(), wrong.c_str());
          expect(gpu.read(x, kNumel, s) == std::vector<float>(kNumel, 5.0F), "the calls did not take effect");
          streams.graph_destroy(h, graph);
          streams.event_destroy(h, event);
          streams.destroy(h, created);
        }) == "right");
}
