// SPDX-License-Identifier: Apache-2.0
//
// The device cuda: memory, streams, flat operations with the bits of the CPU, refusals. It runs on the stand-in for the driver,
// and on a real one (place.hpp).
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>

#include "ddh/sdk/kernels/flat.hpp"
#include "engine/numerics/exact_norm.hpp"
#include "engine/numerics/kernels.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"
#include "gpu/cuda_fixture.hpp"
#include "gpu/linked_libraries.hpp"
#include "gpu/numbers.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

constexpr uint64_t kSizes[] = {1, 63, 64, 65, 100003};

template <class Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const ddh::Error& e) {
    return e.what();
  }
  return "";
}

// Memory that did not come from the device's allocate, as that of LibTorch. The thread has a context.
class ForeignMemory {
 public:
  explicit ForeignMemory(uint64_t bytes) {
    const auto allocate = reinterpret_cast<int (*)(float**, size_t)>(driver_function("cuMemAlloc_v2"));
    REQUIRE(allocate(&begin_, bytes) == 0);
  }
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;
  ~ForeignMemory() { reinterpret_cast<int (*)(float*)>(driver_function("cuMemFree_v2"))(begin_); }
  [[nodiscard]] float* begin() const { return begin_; }

 private:
  static void* driver_function(const char* name) {
    return dlsym(dlopen(driver_file().c_str(), RTLD_NOW | RTLD_NOLOAD), name);
  }
  float* begin_ = nullptr;
};

}  // namespace

TEST_CASE("flat operations of the GPU have the bits of the CPU", "[gpu]") {
  CudaDevice gpu;
  const ddh_flatops_api& flat = *gpu.table->flatops;
  for (const uint64_t n : kSizes) {
    std::vector<float> x = numbers(n, 1, true);
    const std::vector<float> y = numbers(n, 2, false);
    float* const dx = gpu.upload(x);
    const float* const dy = gpu.upload(y);
    ddh::call(flat.scale, gpu.context, dx, n, 0.3, nullptr);
    ddh::flat::scale(x.data(), n, 0.3F);
    check_same(gpu.read(dx, n), x);
    ddh::call(flat.add, gpu.context, dx, dy, n, nullptr);
    ddh::flat::add(x.data(), y.data(), n);
    check_same(gpu.read(dx, n), x);
    for (const int32_t dtype : {DDH_BF16, DDH_F16}) {
      std::vector<uint16_t> half(n);
      uint16_t* const dhalf = gpu.upload(half);
      ddh::call(flat.cast, gpu.context, dhalf, dtype, dy, DDH_F32, n, nullptr);
      ddh::flat::cast(half.data(), dtype, y.data(), DDH_F32, n);
      CHECK(gpu.read(dhalf, n) == half);
      ddh::call(flat.cast, gpu.context, dx, DDH_F32, dhalf, dtype, n, nullptr);
      ddh::flat::cast(x.data(), DDH_F32, half.data(), dtype, n);
      check_same(gpu.read(dx, n), x);
      ddh::call(flat.fill, gpu.context, dhalf, dtype, n, 0.1, nullptr);
      ddh::flat::fill(half.data(), dtype, n, 0.1);
      CHECK(gpu.read(dhalf, n) == half);
    }
    std::vector<double> wide(n + 1, 7);
    double* const dwide = gpu.upload(wide);
    ddh::call(flat.fill, gpu.context, dwide, DDH_F64, n, 0.1, nullptr);
    std::fill_n(wide.begin(), n, 0.1);
    CHECK(gpu.read(dwide, n + 1) == wide);
  }
  CHECK_THAT(refusal([&] { ddh::call(flat.fill, gpu.context, nullptr, DDH_I64, uint64_t{4}, 1.0, nullptr); }),
             Contains("fill has no dtype"));
}

TEST_CASE("the exact sum of squares on the GPU equals the host's", "[gpu]") {
  CudaDevice gpu;
  for (const uint64_t n : kSizes) {
    for (const bool finite : {true, false}) {
      const std::vector<float> x = finite ? small_numbers(n, 3) : numbers(n, 4, true);
      ddhost::ExactSum expected;
      const uint64_t first = expected.add_range(x.data(), n);
      std::vector<uint64_t> words(DDH_SQUARES_WORDS, 0);
      words.back() = UINT64_MAX;
      uint64_t* const sums = gpu.upload(words);
      ddh::call(gpu.table->flatops->exact_squares, gpu.context, gpu.upload(x), n, sums, nullptr);
      words = gpu.read(sums, words.size());
      CHECK(words.back() == first);
      ddhost::ExactSum mine;
      std::vector<int64_t> sent(words.begin(), words.end() - 1);
      mine.merge(sent.data());
      CHECK(mine.words() == expected.words());
    }
  }
}

TEST_CASE("an ordered sum on the GPU equals the host's for any number of sources", "[gpu]") {
  CudaDevice gpu;
  constexpr uint64_t n = 70;
  for (const uint32_t count : {1U, 4U, 5U, 150U}) {
    std::vector<std::vector<float>> values;
    std::vector<const float*> host, device;
    for (uint32_t k = 0; k < count; ++k) values.push_back(small_numbers(n, k));
    for (const std::vector<float>& v : values) host.push_back(v.data()), device.push_back(gpu.upload(v));
    for (const uint32_t block : {1U, 3U, 48U}) {
      for (const uint32_t flags : {0U, DDH_SUM_FROM_DST, DDH_SUM_ROUNDED, DDH_SUM_FROM_DST | DDH_SUM_ROUNDED}) {
        std::vector<float> sum = small_numbers(n, 999);
        float* const dsum = gpu.upload(sum);
        ddh::call(gpu.table->flatops->ordered_sum, gpu.context, dsum, device.data(), count, block, flags, n, nullptr);
        ddhost::kernels::ordered_sum(sum.data(), {host.data(), count, block, (flags & DDH_SUM_ROUNDED) != 0}, 0, n,
                                     (flags & DDH_SUM_FROM_DST) != 0);
        check_same(gpu.read(dsum, n), sum);
      }
    }
  }
}

TEST_CASE("streams see each other's work after an event, and on the stand-in not without one", "[gpu]") {
  CudaDevice gpu;
  const ddh_stream_api& streams = *gpu.table->stream;
  constexpr uint64_t n = 100;
  for (const bool waits : {true, false}) {
    if (!waits && needs_stand_ins("a GPU may run work of two streams in the right order by chance")) break;
    auto* const a = static_cast<float*>(gpu.allocate(n * sizeof(float)));
    auto* const b = static_cast<float*>(gpu.allocate(n * sizeof(float)));
    ddh_event* done = nullptr;
    ddh::call(streams.event_create, gpu.context, &done);
    ddh::call(gpu.table->flatops->fill, gpu.context, a, DDH_F32, n, 3.0, gpu.streams[0]);
    ddh::call(streams.record, gpu.context, done, gpu.streams[0]);
    if (waits) ddh::call(streams.wait, gpu.context, gpu.streams[1], done);
    ddh::call(gpu.table->flatops->add, gpu.context, b, a, n, gpu.streams[1]);
    const bool seen = gpu.read(b, n, gpu.streams[1]) == std::vector<float>(n, 3.0F);
    CHECK(seen == waits);
    streams.event_destroy(gpu.context, done);
    ddh::call(streams.synchronize, gpu.context, gpu.streams[0]);
  }
}

TEST_CASE("the host can't read memory of the GPU", "[gpu]") {
  if (needs_stand_ins("some GPUs share their memory with the host")) return;
  CudaDevice gpu;
  auto* const x = static_cast<float*>(gpu.allocate(4096));
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    _exit(*static_cast<volatile float*>(x) == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
}

TEST_CASE("host functions are refused memory of the GPU, and get pinned memory", "[gpu]") {
  CudaDevice gpu;
  auto* const x = static_cast<float*>(gpu.allocate(4096));
  const auto run = [&](const void* p) {
    ddh::run_on_stream(*gpu.table->stream, gpu.context, nullptr, ddh::Accesses().reads(p, 4), "an update", [] {});
  };
  CHECK_THAT(refusal([&] { run(x); }), Contains("an update computes on the host") && Contains("--device cpu"));
  void* const pinned = gpu.allocate(64, DDH_MEM_PINNED);
  CHECK(refusal([&] { run(pinned); }).empty());
  ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  gpu.table->release(gpu.context, pinned, DDH_MEM_PINNED);
}

TEST_CASE("host functions run in the order of their stream, and their errors reach the host", "[gpu]") {
  CudaDevice gpu;
  const ddh_stream_api& streams = *gpu.table->stream;
  int value = 0;
  const auto run = [&](auto body) {
    ddh::run_on_stream(streams, gpu.context, nullptr, ddh::Accesses(), "a test", body);
  };
  run([&value] { value = 7; });
  if (on_stand_ins()) CHECK(value == 0);  // late on purpose
  run([&value] { value *= 2; });
  ddh::call(streams.synchronize, gpu.context, nullptr);
  CHECK(value == 14);
  run([] { ddh::fail(DDH_INTERNAL, "this test fails on purpose"); });
  CHECK_THAT(refusal([&] { ddh::call(streams.synchronize, gpu.context, nullptr); }), Contains("fails on purpose"));
}

TEST_CASE("a copy whose direction is wrong is refused", "[gpu]") {
  CudaDevice gpu;
  float host[4] = {};
  auto* const x = static_cast<float*>(gpu.allocate(sizeof host));
  CHECK_THAT(refusal([&] {
               ddh::call(gpu.table->copy->copy, gpu.context, host, DDH_MEM_DEVICE, x, DDH_MEM_DEVICE, sizeof host,
                         nullptr);
             }),
             Contains("direction is wrong"));
}

TEST_CASE("memory of the GPU that a library took from the driver is copied in both directions", "[gpu]") {
  CudaDevice gpu;
  const std::vector<float> values = {1, 2, 3, 4};
  const uint64_t bytes = values.size() * sizeof(float);
  float* const own = gpu.upload(values);
  ForeignMemory foreign(bytes);
  float* const inside = foreign.begin() + 1;
  const auto copy = [&](void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t n) {
    ddh::call(gpu.table->copy->copy, gpu.context, dst, dst_memory, src, src_memory, n, nullptr);
  };
  copy(foreign.begin(), DDH_MEM_DEVICE, own, DDH_MEM_DEVICE, bytes);
  copy(inside, DDH_MEM_DEVICE, values.data(), DDH_MEM_HOST, sizeof(float));
  CHECK(gpu.read(foreign.begin(), 4) == std::vector<float>{1, 1, 3, 4});
  copy(own, DDH_MEM_DEVICE, foreign.begin(), DDH_MEM_DEVICE, bytes);
  CHECK(gpu.read(own, 4) == std::vector<float>{1, 1, 3, 4});
  float host = 0;
  auto* const pinned = static_cast<float*>(gpu.allocate(bytes, DDH_MEM_PINNED));
  copy(pinned, DDH_MEM_PINNED, inside, DDH_MEM_DEVICE, sizeof(float));
  ddh::call(gpu.table->stream->synchronize, gpu.context, nullptr);
  CHECK(*pinned == 1);
  CHECK_THAT(refusal([&] { copy(&host, DDH_MEM_HOST, inside, DDH_MEM_HOST, sizeof host); }),
             Contains("direction is wrong"));
  CHECK_THAT(refusal([&] { copy(pinned, DDH_MEM_DEVICE, inside, DDH_MEM_DEVICE, sizeof host); }),
             Contains("direction is wrong"));
  const auto job = [&] {
    const ddh_access access{inside, sizeof(float), DDH_ACCESS_READ, 0};
    const ddh_stream_fn nothing = [](void*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; };
    ddh::call(gpu.table->stream->run, gpu.context, nullptr, nothing, nullptr, &access, 1, "a test");
  };
  CHECK_THAT(refusal(job), Contains("which the host can't access"));
  gpu.table->release(gpu.context, pinned, DDH_MEM_PINNED);
}

TEST_CASE("a GPU without enough memory says what it has", "[gpu]") {
  CudaDevice gpu;
  const std::string sentence = refusal([&] { gpu.allocate(uint64_t{1} << 40); });
  CHECK_THAT(sentence, Contains("GPU 0 (") && Contains("are free"));
  if (on_stand_ins()) CHECK_THAT(sentence, Contains("stand-in GPU 0") && Contains("268435456 bytes"));
}

TEST_CASE("a kernel whose argument has another size is refused", "[gpu]") {
  CudaDevice gpu;
  const char* const image =
      "//\n.version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k(\n.param .u64 k_param_0\n)\n{\nret;\n}\n";
  ddh_kernel* kernel = nullptr;
  const auto find = [&](const char* name, uint64_t bytes) {
    ddh::call(gpu.table->kernels->find, gpu.context, image, name, bytes, &kernel);
  };
  CHECK_THAT(refusal([&] { find("k", 12); }), Contains("takes an argument of 8 bytes, not 12"));
  CHECK_THAT(refusal([&] { find("other", 8); }), Contains("no kernel 'other'"));
  CHECK(refusal([&] { find("k", 8); }).empty());
}

TEST_CASE("kernels that the driver can't compile are refused with the first line of its compiler's log", "[gpu]") {
  CudaDevice gpu;
  const char* const image =
      "//\n.version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k(\n.param .u64 "
      "k_param_0\n)\n{\nnothing;\n}\n";
  ddh_kernel* kernel = nullptr;
  const std::string sentence =
      refusal([&] { ddh::call(gpu.table->kernels->find, gpu.context, image, "k", uint64_t{8}, &kernel); });
  CHECK_THAT(sentence, Contains("can't compile kernels for GPU 0 (") && Contains("rebuild the plugin"));
  if (on_stand_ins()) CHECK_THAT(sentence, Contains("): PTX line 9: no 'nothing' in this interpreter: a PTX JIT"));
}

TEST_CASE("a GPU without streams is refused, and its context is given back", "[gpu]") {
  if (needs_stand_ins("only the stand-in can have too few streams")) return;
  const int streams = GENERATE(0, 1);
  const TempFolder folder;
  const Setting file("DDHOST_STANDIN_WAITS", folder.file("waits"));  // written when no context is held
  const Setting most("DDHOST_STANDIN_STREAMS", std::to_string(streams));
  CHECK_THAT(refusal([] { const CudaDevice gpu; }), Contains("cuStreamCreateWithPriority failed: out of memory"));
  CHECK(!read_text(folder.file("waits")).empty());
}

TEST_CASE("the stand-in counts calls for which a driver may make the host wait", "[gpu]") {
  if (needs_stand_ins("a driver does not count them")) return;
  int before = 0;  // in this process
  const auto waits_of = [&](const std::function<void(CudaDevice&)>& body) {
    const TempFolder folder;
    const Setting file("DDHOST_STANDIN_WAITS", folder.file("waits"));
    {
      CudaDevice gpu;
      body(gpu);
    }
    const int now = std::stoi(read_text(folder.file("waits")));
    return now - std::exchange(before, now);
  };
  waits_of([](CudaDevice&) {});
  const int none = waits_of([](CudaDevice&) {});
  CHECK(waits_of([](CudaDevice& gpu) {
          gpu.table->release(gpu.context, gpu.allocate(64, DDH_MEM_PINNED), DDH_MEM_PINNED);
        }) == none + 2);
  CHECK(waits_of([](CudaDevice& gpu) { gpu.allocate(64); }) == none + 2);  // zeros, and its release
  // The same, both copies, and the wait for the second.
  CHECK(waits_of([](CudaDevice& gpu) { gpu.read(gpu.upload(std::vector<float>(16)), 16); }) == none + 5);
}

TEST_CASE("a GPU that is too old for the kernels is refused with its compute capability", "[gpu]") {
  if (needs_stand_ins("only the stand-in can be an older GPU, or have an older driver")) return;
  setenv("DDHOST_STANDIN_CAPABILITY", "7.5", 1);
  CHECK_THAT(refusal([] { const CudaDevice gpu; }),
             Contains("stand-in GPU 0") && Contains("compute capability 7.5") && Contains("need 8.0"));
  setenv("DDHOST_STANDIN_CAPABILITY", "12.1", 1);
  CHECK(refusal([] { const CudaDevice gpu; }).empty());
  unsetenv("DDHOST_STANDIN_CAPABILITY");
}

TEST_CASE("a missing or foreign driver is refused with one sentence", "[gpu]") {
  CHECK_THAT(refusal([] { (void)CudaPlugin("libcuda-none.so.1").count(); }),
             Contains("no CUDA driver was found") && Contains("libcuda-none.so.1") && Contains("--device cpu"));
  CHECK_THAT(refusal([] { (void)CudaPlugin("libm.so.6").count(); }), Contains("is no CUDA driver"));
#ifdef TOOLKIT_STUB
  if (access(TOOLKIT_STUB, R_OK) != 0) return skip(std::string("there is no toolkit here with ") + TOOLKIT_STUB);
  CHECK_THAT(refusal([] { (void)CudaPlugin(TOOLKIT_STUB).count(); }),
             Contains("lacks cuInit") && Contains("the stub of a toolkit"));
#else
  WARN("not tested: the toolkit of this build has no stub of the driver");
#endif
}

TEST_CASE("an old driver is refused with its version", "[gpu]") {
  if (needs_stand_ins("only the stand-in can be an older GPU, or have an older driver")) return;
  const auto refusal_of = [](const char* version) {
    const Setting old("DDHOST_STANDIN_VERSION", version);
    return refusal([] { (void)CudaPlugin().count(); });
  };
  CHECK_THAT(refusal_of("12040"), Contains("supports CUDA 12.4") && Contains("update"));
  CHECK_THAT(refusal_of("12020"), Contains("supports CUDA 12.2") && Contains("update"));  // it lacks functions
  CHECK(CudaPlugin().count() == 1);
}

TEST_CASE("a driver that can't be started is refused with its reason and what to do", "[gpu]") {
  if (needs_stand_ins("only the stand-in can be a broken driver")) return;
  const auto refusal_of = [](const char* code) {
    const Setting broken("DDHOST_STANDIN_INIT", code);
    return refusal([] { (void)CudaPlugin().count(); });
  };
  CHECK_THAT(refusal_of("999"), Contains("the CUDA driver can't be started: unknown error (CUDA_ERROR_UNKNOWN)") &&
                                    Contains("`nvidia-smi`") && Contains("--device cpu"));
  CHECK_THAT(refusal_of("803"), Contains("unsupported display driver") && Contains("--device cpu"));
}

TEST_CASE("the plugin links no CUDA library", "[gpu]") {
  if (needs_stand_ins("what the plugins link is a question to the build")) return;
  const std::vector<std::string> lines = ddhost::test::linked_libraries("cuda.so");
  for (const std::string& line : lines)
    for (const char* foreign : {"cuda", "nvrtc", "nccl", "torch"}) CHECK(line.find(foreign) == std::string::npos);
  CHECK(!lines.empty());
}
