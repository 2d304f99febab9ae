// SPDX-License-Identifier: Apache-2.0
#include "library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <string_view>

namespace nccl DDH_HIDDEN {
namespace {

constexpr const char* kCure = "; install NVIDIA's NCCL (PyPI: nvidia-nccl-cu13), name its file with comm.library, or ";
constexpr const char* kOther = "choose --comm shm";
constexpr int kOldest = 21800;  // communicators that don't block, with a configuration

std::string text_of_version(int version) {
  return ddh::str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// Where pip installs NCCL for the LibTorch that is loaded; "" if none is. LibTorch uses the copy that is opened first.
std::string folder_beside_libtorch() {
  std::string folder;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const std::string_view name = info->dlpi_name, end = "/libtorch_cpu.so";
        if (!name.ends_with(end)) return 0;
        *static_cast<std::string*>(out) = ddh::str(name.substr(0, name.size() - end.size()), "/../../nvidia/nccl/lib");
        return 1;
      },
      &folder);
  return folder;
}

void* open_library(const std::string& file) {
  if (void* const opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
  std::string reason = dlerror();
  const std::string folder = folder_beside_libtorch();
  if (!folder.empty() && file.find('/') == std::string::npos) {
    if (void* const opened = dlopen(ddh::str(folder, "/", file).c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
    reason += ddh::str("; ", dlerror());
  }
  ddh::fail(DDH_UNAVAILABLE, "NCCL was not found (", reason, ")", kCure, kOther);
}

}  // namespace

Library Library::open(const std::string& file) {
  void* const opened = open_library(file);
  Library library;
  const auto take = [&](const char* name, auto*& function, bool required) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened, name));
    if (function == nullptr && required)
      ddh::fail(DDH_UNAVAILABLE, "'", file, "' lacks ", name, ": it is no NCCL, or an old one", kCure, kOther);
  };
#define DDH_NCCL_TAKE(F) take("nccl" #F, library.F, true);
#define DDH_NCCL_TAKE_IF_THERE(F) take("nccl" #F, library.F, false);
  DDH_NCCL_FUNCTIONS(DDH_NCCL_TAKE)
  DDH_NCCL_OPTIONAL_FUNCTIONS(DDH_NCCL_TAKE_IF_THERE)
#undef DDH_NCCL_TAKE
#undef DDH_NCCL_TAKE_IF_THERE
  if (library.GetVersion(&library.version) != kSuccess || library.version < kOldest)
    ddh::fail(DDH_UNAVAILABLE, "'", file, "' is NCCL ", library.version_text(), ", but ", text_of_version(kOldest),
              " or newer is needed", kCure, kOther);
  return library;
}

std::string Library::version_text() const { return text_of_version(version); }

std::string Library::text_of(Result result, Comm comm) const {
  const char* const text = GetErrorString(result);
  const char* const last = comm == nullptr ? nullptr : GetLastError(comm);
  const bool has_last = last != nullptr && *last != '\0';
  return ddh::str(text == nullptr ? "an unknown error" : text, " (result ", static_cast<int>(result), ")",
                  has_last ? ": " : "", has_last ? last : "");
}

}  // namespace DDH_HIDDEN
