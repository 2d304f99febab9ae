// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace cuda DDH_HIDDEN {
namespace {

constexpr const char* kCure = "; install NVIDIA's driver, or choose --device cpu";

// The oldest driver that compiles PTX of a CUDA version.
struct Oldest {
  int cuda, driver;
};
constexpr Oldest kOldestDrivers[] = {{12000, 525}, {12010, 530}, {12020, 535}, {12030, 545}, {12040, 550}, {12050, 555},
                                     {12060, 560}, {12080, 570}, {12090, 575}, {13000, 580}, {13010, 590}};

int oldest_driver() {
  int driver = 0;
  for (const Oldest& oldest : kOldestDrivers)
    if (oldest.cuda <= CUDA_VERSION) driver = oldest.driver;
  return driver;
}

std::string version_text(int version) { return ddh::str(version / 1000, ".", version % 1000 / 10); }

}  // namespace

Driver Driver::open(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) ddh::fail(DDH_UNAVAILABLE, "no CUDA driver was found (", dlerror(), ")", kCure);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
  const auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
  if (find == nullptr) ddh::fail(DDH_UNAVAILABLE, "'", file, "' is no CUDA driver of version 12.0 or newer", kCure);
  Driver driver;
  const auto take = [&](const char* name, auto& function) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult why{};
    const CUresult result = find(name, &found, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &why);
    if (result != CUDA_SUCCESS || found == nullptr)
      ddh::fail(DDH_UNAVAILABLE, "the CUDA driver '", file, "' lacks ", name,
                ": it is too old, or the stub of a toolkit and no driver", kCure);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
#define DDH_CUDA_TAKE(F) take(#F, driver.F);
  DDH_CUDA_FUNCTIONS(DDH_CUDA_TAKE)
#undef DDH_CUDA_TAKE
  int version = 0;
  driver.check(driver.cuDriverGetVersion(&version), "cuDriverGetVersion");
  if (version < CUDA_VERSION)
    ddh::fail(DDH_UNAVAILABLE, "the CUDA driver supports CUDA ", version_text(version),
              ", but the kernels of this build need CUDA ", version_text(CUDA_VERSION), ", which is in driver ",
              oldest_driver(),
              " and newer; update NVIDIA's driver (nvidia-smi shows its version), or choose --device cpu");
  const CUresult started = driver.cuInit(0);
  if (started == CUDA_ERROR_NO_DEVICE) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    ddh::fail(DDH_UNAVAILABLE, "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES is ",
              visible == nullptr ? "not set" : ddh::str("'", visible, "'"), "); choose --device cpu");
  }
  driver.check(started, "cuInit");
  return driver;
}

void Driver::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  ddh::fail(result == CUDA_ERROR_OUT_OF_MEMORY ? DDH_RESOURCE_EXHAUSTED : DDH_INTERNAL, "CUDA's ", call,
            " failed: ", text == nullptr ? "an unknown error" : text, " (", name == nullptr ? ddh::str(result) : name,
            ")");
}

}  // namespace DDH_HIDDEN
