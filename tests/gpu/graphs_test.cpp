// SPDX-License-Identifier: Apache-2.0
//
// Graphs of the device cuda: what is captured runs when the graph is launched, and what a graph can't replay is refused.
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "ddh/sdk/kernels/graph.hpp"
#include "gpu/cuda_fixture.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

constexpr uint64_t kNumel = 100;
constexpr const char* kImage =
    "//\n.version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k(\n.param .u64 k_param_0\n)\n{\nret;\n}\n";

void add(CudaDevice& gpu, float* dst, const float* src) {
  ddh::call(gpu.table->flatops->add, gpu.context, dst, src, kNumel, gpu.streams[0]);
}
void begin(CudaDevice& gpu) {
  ddh::call(gpu.table->stream->capture_begin, gpu.context, gpu.streams[0], "the work of this test");
}
std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const ddh::Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("captured work runs when its graph is launched, as often as that, in the stream's order", "[gpu]") {
  CudaDevice gpu(true);
  float* const sum = gpu.upload(std::vector<float>(kNumel, 1.0F));
  float* const step = gpu.upload(std::vector<float>(kNumel, 2.0F));
  ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  begin(gpu);
  add(gpu, sum, step);
  add(gpu, step, step);
  ddh_graph* graph = nullptr;
  ddh::call(gpu.table->stream->capture_end, gpu.context, gpu.streams[0], &graph);
  CHECK(gpu.read(sum, kNumel, gpu.streams[0]) == std::vector<float>(kNumel, 1.0F));
  for (int i = 0; i < 3; ++i) ddh::call(gpu.table->stream->graph_launch, gpu.context, graph, gpu.streams[0]);
  CHECK(gpu.read(sum, kNumel, gpu.streams[0]) == std::vector<float>(kNumel, 1.0F + 2 + 4 + 8));
  gpu.table->stream->graph_destroy(gpu.context, graph);
}

TEST_CASE("calls that a graph can't replay are refused inside of a capture, with the call and the capture's name",
          "[gpu]") {
  CudaDevice gpu(true);
  float* const x = gpu.upload(std::vector<float>(kNumel, 1.0F));
  std::vector<float> host(kNumel);
  ddh_event* event = nullptr;
  const ddh_stream_api& streams = *gpu.table->stream;
  ddh::call(streams.event_create, gpu.context, &event);
  ddh::call(streams.synchronize, gpu.context, nullptr);
  ddh_kernel* kernel = nullptr;
  ddh_event* other = nullptr;
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"find of a new kernel",
       [&] { ddh::call(gpu.table->kernels->find, gpu.context, kImage, "k", uint64_t{8}, &kernel); }},
      {"event_create", [&] { ddh::call(streams.event_create, gpu.context, &other); }},
      {"synchronize", [&] { ddh::call(streams.synchronize, gpu.context, gpu.streams[0]); }},
      {"record", [&] { ddh::call(streams.record, gpu.context, event, gpu.streams[0]); }},
      {"wait", [&] { ddh::call(streams.wait, gpu.context, gpu.streams[0], event); }},
      {"allocate", [&] { gpu.allocate(64); }},
      {"run", [&] { ddh::run_on_stream(streams, gpu.context, gpu.streams[0], ddh::Accesses(), "a test", [] {}); }},
      {"copy from or to memory of the host",
       [&] {
         ddh::call(gpu.table->copy->copy, gpu.context, host.data(), DDH_MEM_HOST, x, DDH_MEM_DEVICE,
                   kNumel * sizeof(float), gpu.streams[0]);
       }},
  };
  for (const auto& [name, call] : calls) {
    begin(gpu);
    add(gpu, x, x);
    CHECK_THAT(refusal(call), Contains(std::string("asked for ") + name + " inside the capture of 'the work of this"));
    ddh::call(streams.capture_end, gpu.context, gpu.streams[0], nullptr);
    call();  // afterwards it is possible again
  }
  CHECK(gpu.read(x, kNumel, gpu.streams[0]) == std::vector<float>(kNumel, 1.0F));
  for (ddh_event* made : {event, other}) streams.event_destroy(gpu.context, made);
}

TEST_CASE("what is given back inside of a capture is freed after it, and the capture is good", "[gpu]") {
  if (needs_stand_ins("a driver gives memory in large blocks, so its free memory does not count single releases"))
    return;
  CudaDevice gpu(true);
  const auto free_bytes = [&] {
    ddh_device_info info{};
    info.struct_size = sizeof info;
    ddh::call(gpu.table->info, gpu.inst(), gpu.context, &info);
    return info.free_bytes;
  };
  float* const x = gpu.upload(std::vector<float>(kNumel, 1.0F));
  ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  const uint64_t before = free_bytes();
  const auto allocate = [&](int32_t memory) {
    const ddh_alloc_args args{sizeof(ddh_alloc_args), DDH_TAG_PARAM, 4096, memory, 0, "a test"};
    void* p = nullptr;
    ddh::call(gpu.table->allocate, gpu.context, &args, &p);
    return p;
  };
  for (const bool keeps : {true, false}) {
    void *const block = allocate(DDH_MEM_DEVICE), *const pinned = allocate(DDH_MEM_PINNED);
    ddh_stream* stream = nullptr;
    ddh::call(gpu.table->stream->create, gpu.context, "a test", &stream);
    CHECK(free_bytes() == before - 4096);
    begin(gpu);
    gpu.table->release(gpu.context, block, DDH_MEM_DEVICE);
    gpu.table->release(gpu.context, pinned, DDH_MEM_PINNED);
    gpu.table->stream->destroy(gpu.context, stream);
    add(gpu, x, x);
    CHECK(free_bytes() == before - 4096);
    ddh_graph* graph = nullptr;
    ddh::call(gpu.table->stream->capture_end, gpu.context, gpu.streams[0], keeps ? &graph : nullptr);
    CHECK(free_bytes() == before);
    gpu.table->stream->graph_destroy(gpu.context, graph);
  }
}

TEST_CASE("other threads allocate, record and wait while one thread captures", "[gpu]") {
  CudaDevice gpu(true);
  float* const x = gpu.upload(std::vector<float>(kNumel, 1.0F));
  ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  std::atomic<bool> ends = false;
  std::string error;
  uint64_t rounds = 0;
  std::thread other([&] {
    error = refusal([&] {
      for (; !ends || rounds == 0; ++rounds) {
        const ddh_alloc_args args{sizeof(ddh_alloc_args), DDH_TAG_PARAM, 64, DDH_MEM_DEVICE, 0, "a test"};
        void* p = nullptr;
        ddh::call(gpu.table->allocate, gpu.context, &args, &p);
        gpu.table->release(gpu.context, p, DDH_MEM_DEVICE);
        ddh::call(gpu.table->stream->synchronize, gpu.context, gpu.streams[1]);
      }
    });
  });
  std::string refused;
  for (int i = 0; i < 50 && refused.empty(); ++i)
    refused = refusal([&] {
      begin(gpu);
      add(gpu, x, x);
      ddh_graph* graph = nullptr;
      ddh::call(gpu.table->stream->capture_end, gpu.context, gpu.streams[0], &graph);
      gpu.table->stream->graph_destroy(gpu.context, graph);
    });
  ends = true;
  other.join();
  CHECK(refused.empty());
  CHECK(error.empty());
  CHECK(rounds > 0);
}

TEST_CASE("a second thread's capture is refused while one is going on, which it does not disturb", "[gpu]") {
  CudaDevice gpu(true);
  const ddh_stream_api& streams = *gpu.table->stream;
  float* const x = gpu.upload(std::vector<float>(kNumel, 1.0F));
  ddh::call(streams.synchronize, gpu.context, nullptr);
  begin(gpu);
  add(gpu, x, x);
  std::string refused;
  std::thread([&] {
    refused = refusal([&] { ddh::call(streams.capture_begin, gpu.context, gpu.streams[1], "other work"); });
    ddh::ErrorBuffer ignored;
    (void)streams.capture_end(gpu.context, gpu.streams[1], nullptr, ignored.get());
  }).join();
  CHECK_THAT(refused, Contains("can't begin the capture of 'other work' while another thread captures"));
  CHECK_THAT(refusal([&] { gpu.allocate(64); }), Contains("inside the capture of 'the work of this test'"));
  ddh_graph* graph = nullptr;
  ddh::call(streams.capture_end, gpu.context, gpu.streams[0], &graph);
  ddh::call(streams.graph_launch, gpu.context, graph, gpu.streams[0]);
  CHECK(gpu.read(x, kNumel, gpu.streams[0]) == std::vector<float>(kNumel, 2.0F));
  streams.graph_destroy(gpu.context, graph);
}

TEST_CASE("the driver makes a capture invalid when the host waits inside of it", "[gpu]") {
  CudaDevice gpu(true);
  float* const x = gpu.upload(std::vector<float>(kNumel, 1.0F));
  ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  void* const library = dlopen(driver_file().c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto synchronize = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuStreamSynchronize"));
  begin(gpu);
  add(gpu, x, x);
  CHECK(synchronize(gpu.streams[0]) == 900);  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
  ddh_graph* graph = nullptr;
  CHECK_THAT(refusal([&] { ddh::call(gpu.table->stream->capture_end, gpu.context, gpu.streams[0], &graph); }),
             Contains("cuStreamEndCapture"));
}

TEST_CASE("without device.graphs a capture is refused with the option's name", "[gpu]") {
  CudaDevice gpu;
  CHECK_THAT(refusal([&] { begin(gpu); }), Contains("device.graphs=true"));
}

namespace {

// A kernel "k" that stores `number` at the address that is its argument.
std::string storing(int number) {
  return "//\n.version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k(\n.param .u64 k_param_0\n)\n{\n"
         ".reg .b32 %r<2>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [k_param_0];\nmov.u32 %r1, " +
         std::to_string(number) + ";\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
}

const ddh_device_api* g_table = nullptr;  // of the device that HostOf shows to a plugin's code

// The services of a device, as a plugin sees them.
class HostOf {
 public:
  explicit HostOf(const CudaDevice& gpu) : host_{sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, gpu.context, &table} {
    g_table = gpu.table;
  }
  [[nodiscard]] const ddh_host* get() const { return &host_; }

 private:
  static const void* table(void*, const char* id) noexcept {
    const std::string_view name = id;
    if (name == DDH_STREAM_IFACE) return g_table->stream;
    if (name == DDH_KERNELS_IFACE) return g_table->kernels;
    return nullptr;
  }
  ddh_host host_;
};

ddh::KernelGroup group_of(const std::string& image, uint32_t* dst) {
  ddh::KernelGroup group;
  group.add(image.c_str(), "k", dst, 1);
  return group;
}

}  // namespace

TEST_CASE("groups whose kernels are of different images, but equal in all else, have graphs of their own", "[gpu]") {
  CudaDevice gpu(true);
  const HostOf services(gpu);
  const ddh::Host host(services.get());
  const std::string images[] = {storing(5), storing(6)};
  uint32_t* const x = gpu.upload(std::vector<uint32_t>{0});
  ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  {
    ddh::Graphs graphs(host);
    for (int i = 0; i < 3; ++i)
      for (uint32_t k = 0; k < 2; ++k) {
        graphs.queue(group_of(images[k], x), "a test", gpu.streams[0]);
        CHECK(gpu.read(x, 1, gpu.streams[0]) == std::vector<uint32_t>{5 + k});
      }
    CHECK(graphs.replays() == 4);
  }
}

TEST_CASE("groups that are queued once take no place among the 1024 graphs; further groups run kernel by kernel",
          "[gpu]") {
  constexpr uint32_t kMany = 1100, kMostGraphs = 1024;
  CudaDevice gpu(true);
  const HostOf services(gpu);
  const ddh::Host host(services.get());
  const std::string image = storing(5);
  uint32_t* const x = gpu.upload(std::vector<uint32_t>(2 * kMany, 0));
  ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  {
    ddh::Graphs graphs(host);
    for (uint32_t i = 0; i < kMany; ++i) graphs.queue(group_of(image, x + i), "a test", gpu.streams[0]);
    CHECK(graphs.replays() == 0);
    for (uint32_t i = kMany; i < 2 * kMany; ++i)
      for (int turn = 0; turn < 2; ++turn) graphs.queue(group_of(image, x + i), "a test", gpu.streams[0]);
    CHECK(graphs.replays() == kMostGraphs);
    CHECK(gpu.read(x, 2 * kMany, gpu.streams[0]) == std::vector<uint32_t>(2 * kMany, 5));
  }
}
