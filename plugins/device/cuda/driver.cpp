// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace cuda DDH_HIDDEN {
namespace {

constexpr const char* kCure = "; install NVIDIA's driver, or choose --device cpu";

// The version in which cuGetProcAddress_v2 came.
constexpr int kOldestLookup = 12000;

// The oldest driver that compiles PTX of a CUDA version. cmake/cuda.cmake takes none before 12.4.
struct Oldest {
  int cuda, driver;
};
constexpr Oldest kOldestDrivers[] = {{12040, 550}, {12050, 555}, {12060, 560}, {12080, 570},
                                     {12090, 575}, {13000, 580}, {13010, 590}};

// 0: not known, as for a CUDA version that came later.
constexpr int oldest_driver(int cuda) {
  for (const Oldest& oldest : kOldestDrivers)
    if (oldest.cuda == cuda) return oldest.driver;
  return 0;
}
static_assert(oldest_driver(12040) == 550 && oldest_driver(13000) == 580 && oldest_driver(13990) == 0);

std::string version_text(int version) { return ddh::str(version / 1000, ".", version % 1000 / 10); }

}  // namespace

Driver Driver::open(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) ddh::fail(DDH_UNAVAILABLE, "no CUDA driver was found (", dlerror(), ")", kCure);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
  const auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
  if (find == nullptr) ddh::fail(DDH_UNAVAILABLE, "'", file, "' is no CUDA driver of version 12.0 or newer", kCure);
  Driver driver;
  const auto take = [&](const char* name, auto& function, int cuda_version) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult why{};
    const CUresult result = find(name, &found, cuda_version, CU_GET_PROC_ADDRESS_DEFAULT, &why);
    if (result != CUDA_SUCCESS || found == nullptr)
      ddh::fail(DDH_UNAVAILABLE, "the CUDA driver '", file, "' lacks ", name,
                ": it is too old, or the stub of a toolkit and no driver", kCure);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  // An older driver lacks some of the other functions, so its version is asked first.
#define DDH_CUDA_TAKE(F) take(#F, driver.F, kOldestLookup);
  DDH_CUDA_FIRST_FUNCTIONS(DDH_CUDA_TAKE)
#undef DDH_CUDA_TAKE
  int version = 0;
  driver.check(driver.cuDriverGetVersion(&version), "cuDriverGetVersion");
  if (version < CUDA_VERSION) {
    constexpr int kOldest = oldest_driver(CUDA_VERSION);
    ddh::fail(DDH_UNAVAILABLE, "the CUDA driver supports CUDA ", version_text(version),
              ", but the kernels of this build need CUDA ", version_text(CUDA_VERSION),
              kOldest == 0 ? "" : ddh::str(", which is in driver ", kOldest, " and newer"),
              "; update NVIDIA's driver (nvidia-smi shows its version), or choose --device cpu");
  }
#define DDH_CUDA_TAKE(F) take(#F, driver.F, CUDA_VERSION);
  DDH_CUDA_FUNCTIONS(DDH_CUDA_TAKE)
#undef DDH_CUDA_TAKE
  const CUresult started = driver.cuInit(0);
  if (started == CUDA_ERROR_NO_DEVICE) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    ddh::fail(DDH_UNAVAILABLE, "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES is ",
              visible == nullptr ? "not set" : ddh::str("'", visible, "'"), "); choose --device cpu");
  }
  if (started != CUDA_SUCCESS)
    ddh::fail(DDH_UNAVAILABLE, "the CUDA driver can't be started: ", driver.text_of(started),
              "; `nvidia-smi` shows more; --device cpu trains on the CPU");
  return driver;
}

std::string Driver::text_of(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  return ddh::str(text == nullptr ? "an unknown error" : text, " (", name == nullptr ? ddh::str(result) : name, ")");
}

void Driver::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  ddh::fail(result == CUDA_ERROR_OUT_OF_MEMORY ? DDH_RESOURCE_EXHAUSTED : DDH_INTERNAL, "CUDA's ", call,
            " failed: ", text_of(result));
}

}  // namespace DDH_HIDDEN
