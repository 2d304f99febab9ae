// SPDX-License-Identifier: Apache-2.0
//
// LibTorch on a GPU that is not there: each reason is one sentence that says what to do.
#include <ATen/Context.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "ddh/sdk/torch/device.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

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

}  // namespace

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
  std::filesystem::create_symlink(std::string(DDHOST_BUILD_DIR) + "/plugins/csv.so", folder.file("libtorch_cuda.so"));
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
