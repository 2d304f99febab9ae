// SPDX-License-Identifier: Apache-2.0
//
// LibTorch on a GPU that is not there: each reason is one sentence that says what to do.
#include <ATen/Context.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "ddh/sdk/torch/device.hpp"
#include "ddh/sdk/torch/errors.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"
#include "golden/compare.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

std::string refusal(const std::string& folder) {
  try {
    ddh::load_torch_cuda(folder);
  } catch (const ddh::Error& e) {
    return e.what();
  }
  return "";
}

// A host of a device whose streams have handles, but which runs no kernels for NVIDIA GPUs.
const void* other_accelerator(void*, const char* id) noexcept {
  static const ddh_stream_api streams = [] {
    ddh_stream_api t{};
    t.struct_size = sizeof t;
    t.native = [](void* h, ddh_stream*) noexcept { return h; };
    return t;
  }();
  return std::string_view(id) == DDH_STREAM_IFACE ? &streams : nullptr;
}

// A host that gives no memory of the device, and keeps what is logged. Its services are at `h`.
struct FullHost {
  bool has_memory = false;
  std::vector<uint64_t> asked_bytes;
  std::vector<std::string> log;

  [[nodiscard]] ddh_host raw() { return {sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, this, table}; }
  static const void* table(void*, const char* id) noexcept {
    static const ddh_alloc_api blocks = {
        sizeof(ddh_alloc_api), 0,
        [](void* h, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
          auto& self = *static_cast<FullHost*>(h);
          self.asked_bytes.push_back(args->bytes);
          *out = &self;
          return self.has_memory ? DDH_OK : ddh_fail(err, DDH_RESOURCE_EXHAUSTED, "GPU 0 has 5 bytes");
        },
        [](void*, void*) noexcept {}, nullptr};
    static const ddh_log_api log_table = {sizeof(ddh_log_api), 0, [](void* h, int32_t, const char* text) noexcept {
                                            static_cast<FullHost*>(h)->log.emplace_back(text);
                                          }};
    const std::string_view name = id;
    if (name == DDH_ALLOC_IFACE) return &blocks;
    return name == DDH_LOG_IFACE ? &log_table : nullptr;
  }
};

constexpr const char* kOutOfMemory =
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is "
    "free.";

}  // namespace

TEST_CASE("where LibTorch lacks memory of the GPU, the device's own sentence is given") {
  FullHost full;
  const ddh_host raw = full.raw();
  const ddh::Host host(&raw);
  const auto allocate = [&] {
    ddh::with_plain_errors(host, [] { throw c10::OutOfMemoryError(c10::SourceLocation{}, kOutOfMemory); });
  };
  CHECK_THROWS_WITH(allocate(), "GPU 0 has 5 bytes");
  CHECK((full.asked_bytes == std::vector<uint64_t>{uint64_t{3} << 29}));
  full.has_memory = true;  // in pieces that are too small
  CHECK(sentence_of(allocate) ==
        "CUDA out of memory; `ddhost plan --all-strategies` with the words of this run shows what takes less, and "
        "--fit takes it");
  for (const auto& [text, bytes] :
       {std::pair("Tried to allocate 20.00 MiB. ", uint64_t{20} << 20),
        std::pair("Tried to allocate 512 bytes. ", uint64_t{512}),
        std::pair("Tried to allocate 2.50 KiB", uint64_t{2560}), std::pair("no number", uint64_t{0})})
    CHECK(ddh::detail::wanted_bytes(text) == bytes);
}

TEST_CASE("an error of LibTorch is its sentence, without addresses of code") {
  FullHost full;
  const ddh_host raw = full.raw();
  const ddh::Host host(&raw);
  const std::string text = sentence_of(
      [&] { ddh::with_plain_errors(host, [] { TORCH_CHECK(false, "sizes do not match\nand much advice"); }); });
  CHECK(text == "LibTorch fails: sizes do not match");
}

TEST_CASE("a warning of LibTorch is in the log once") {
  FullHost full;
  const ddh_host raw = full.raw();
  const ddh::Host host(&raw);
  ddh::TorchWarnings warnings(host);
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  for (const char* text : {"a", "b", "a", "a"}) TORCH_WARN(text, " is not deterministic");
  const std::vector<std::string> once = {"LibTorch warns: a is not deterministic",
                                         "LibTorch warns: b is not deterministic"};
  CHECK((full.log == once));
}

TEST_CASE("ranks that share a GPU in one process know it until the last has ended") {
  const ddh::detail::RanksOfGpu alone(3);
  CHECK_FALSE(alone.are_several());
  {
    const ddh::detail::RanksOfGpu first(5);
    {
      const ddh::detail::RanksOfGpu second(5);
      CHECK((first.are_several() && second.are_several()));
    }
    CHECK(first.are_several());  // what it counted meanwhile is wrong
  }
  CHECK_FALSE(ddh::detail::RanksOfGpu(5).are_several());
  CHECK_FALSE(alone.are_several());
}

TEST_CASE("a LibTorch for CPUs is refused on a GPU, and says which one to give") {
  const TempFolder folder;
  CHECK_THAT(refusal(folder.path().string()), Contains("'" + folder.path().string() + "' is built for CPUs") &&
                                                  Contains("no libtorch_cuda.so") && Contains("DDHOST_LIBTORCH") &&
                                                  Contains("--device cpu"));
}

TEST_CASE("a LibTorch whose library for GPUs can't be loaded is refused with the loader's reason") {
  const TempFolder folder;
  std::ofstream(folder.file("libtorch_cuda.so")) << "no library";
  CHECK_THAT(refusal(folder.path().string()), Contains("can't be loaded (" + folder.file("libtorch_cuda.so")) &&
                                                  Contains("file too short") && Contains("--device cpu"));
}

TEST_CASE("a LibTorch that finds no GPU is refused") {
  const TempFolder folder;  // a library that loads, and brings no GPU
  std::filesystem::create_symlink(plugin_file("csv"), folder.file("libtorch_cuda.so"));
  CHECK_THAT(refusal(folder.path().string()), Contains("LibTorch finds no GPU") && Contains("--device cpu"));
}

TEST_CASE("the folder of LibTorch is that of the library in this process") {
  CHECK(std::filesystem::exists(ddh::torch_folder() + "/libtorch_cpu.so"));
}

TEST_CASE("LibTorch computes on the CPU if streams have no handles, and refuses devices other than NVIDIA's") {
  int handle = 0;
  const ddh_host accelerator{sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, &handle, other_accelerator};
  CHECK_THROWS_WITH(ddh::TorchDevice(ddh::Host(&accelerator)),
                    Contains("not on the run's device") && Contains("--device cpu"));
  const ddh_host processor{sizeof(ddh_host), DDH_ABI_MAJOR, DDH_ABI_MINOR, nullptr, other_accelerator};
  const ddh::TorchDevice device{ddh::Host(&processor)};
  CHECK(device.where().is_cpu());
  CHECK_FALSE(device.by_operators());
}

TEST_CASE("LibTorch on a GPU computes without TF32 and without sums in 16 bits, and in the same way in every run") {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(true);
  context.setAllowTF32CuDNN(true);
  context.setBenchmarkCuDNN(true);
  ddh::detail::settle_cuda_numerics();
  CHECK_FALSE(context.allowTF32CuBLAS());
  CHECK_FALSE(context.allowTF32CuDNN());
  CHECK_FALSE(context.benchmarkCuDNN());
  CHECK(context.allowFP16ReductionCuBLAS() != at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK);
  CHECK(context.deterministicAlgorithms());
  context.setDeterministicAlgorithms(false, /*warn_only=*/true);
}
