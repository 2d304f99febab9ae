// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/driver/api.cpp: the functions of libcuda.so.1 that the plugins call, except those of streams
// (api_streams.cpp). What a GPU's driver would refuse is refused with the same code.
#include "driver/api.hpp"
#include "driver/for_nccl.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string_view>

namespace standin {
namespace {

thread_local int current_device = -1;  // of the current context
thread_local bool inside_work = false;

struct Error {
  CUresult code;
  const char *name, *text;
};
constexpr Error kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

bool is_gpu(CUdevice device) { return device >= 0 && static_cast<size_t>(device) < Driver::get().gpus.size(); }

// Writes text to the log that the caller may have asked for, as a driver's compiler does.
void write_log(const std::string& text, unsigned n, const CUjit_option* options, void** values) {
  char* log = nullptr;
  uintptr_t bytes = 0;
  for (unsigned i = 0; i < n; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = static_cast<char*>(values[i]);
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) bytes = reinterpret_cast<uintptr_t>(values[i]);
  }
  if (log != nullptr) std::snprintf(log, bytes, "%s\nptxas fatal : Ptx assembly aborted due to errors", text.c_str());
}

// Contexts are numbers from 1.
CUcontext context_of(CUdevice device) { return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1); }

}  // namespace

int device_now() { return current_device; }
bool is_inside_work() { return inside_work; }
InsideWork::InsideWork() { inside_work = true; }
InsideWork::~InsideWork() { inside_work = false; }

bool ignores(const char* call) {
  const char* const given = std::getenv("DDHOST_STANDIN_IGNORES");
  return given != nullptr && std::strcmp(given, call) == 0;
}

CUresult enter_result(bool needs_context) {
  const Driver& driver = Driver::get();
  if (!driver.is_initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (driver.sticky != CUDA_SUCCESS) return driver.sticky;
  if (needs_context && (!is_gpu(current_device) || driver.gpus[static_cast<size_t>(current_device)]->retained == 0))
    return CUDA_ERROR_INVALID_CONTEXT;
  return CUDA_SUCCESS;
}

}  // namespace standin

using namespace standin;

extern "C" {

int ddhost_standin_device_now() { return device_now(); }
void* ddhost_standin_reach(int device, uint64_t address, uint64_t bytes) {
  return Driver::get().reach(device, address, bytes);
}
void ddhost_standin_fault(const char* sentence) { Driver::get().fault(sentence, CUDA_ERROR_ILLEGAL_ADDRESS); }

CUresult cuInit(unsigned int) {
  if (is_inside_work()) return CUDA_ERROR_NOT_PERMITTED;
  const std::lock_guard lock(Driver::get().mutex);
  return Driver::get().initialize();
}
CUresult cuDriverGetVersion(int* out) {
  *out = version();
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult code, const char** out) {
  for (const auto& error : kErrors) {
    if (error.code != code) continue;
    *out = error.name;
    return CUDA_SUCCESS;
  }
  *out = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult code, const char** out) {
  for (const auto& error : kErrors) {
    if (error.code != code) continue;
    *out = error.text;
    return CUDA_SUCCESS;
  }
  *out = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int* out) {
  return api(false, [&] {
    *out = static_cast<int>(Driver::get().gpus.size());
    return CUDA_SUCCESS;
  });
}
CUresult cuDeviceGet(CUdevice* out, int index) {
  return api(false, [&] {
    if (!is_gpu(index)) return CUDA_ERROR_INVALID_DEVICE;
    *out = index;
    return CUDA_SUCCESS;
  });
}
CUresult cuDeviceGetName(char* out, int bytes, CUdevice device) {
  return api(false, [&] {
    if (!is_gpu(device)) return CUDA_ERROR_INVALID_DEVICE;
    const int index = Driver::get().gpus[static_cast<size_t>(device)]->index;
    std::snprintf(out, static_cast<size_t>(bytes), "stand-in GPU %d", index);
    return CUDA_SUCCESS;
  });
}
CUresult cuDeviceGetUuid(CUuuid* out, CUdevice device) {
  return api(false, [&] {
    if (!is_gpu(device)) return CUDA_ERROR_INVALID_DEVICE;
    std::memset(out->bytes, Driver::get().gpus[static_cast<size_t>(device)]->uuid_byte, sizeof out->bytes);
    return CUDA_SUCCESS;
  });
}
CUresult cuDeviceGetAttribute(int* out, CUdevice_attribute attribute, CUdevice device) {
  return api(false, [&] {
    if (!is_gpu(device)) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *out = compute_capability().first;
        return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *out = compute_capability().second;
        return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *out = 2;  // few, so that kernels loop
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return api(false, [&] {
    if (!is_gpu(device)) return CUDA_ERROR_INVALID_DEVICE;
    ++Driver::get().gpus[static_cast<size_t>(device)]->retained;
    *out = context_of(device);
    return CUDA_SUCCESS;
  });
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return api(false, [&] {
    if (!is_gpu(device)) return CUDA_ERROR_INVALID_DEVICE;
    --Driver::get().gpus[static_cast<size_t>(device)]->retained;
    Driver::get().report_waits();
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxSetCurrent(CUcontext context) {
  if (ignores("cuCtxSetCurrent")) return CUDA_SUCCESS;
  return api(false, [&] {
    current_device = static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxGetCurrent(CUcontext* out) {
  return api(false, [&] {
    *out = current_device < 0 ? nullptr : context_of(current_device);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return api(true, [&] {
    const DeviceMemory& memory = Driver::get().gpus[static_cast<size_t>(current_device)]->memory;
    *free_bytes = memory.free_bytes();
    *total_bytes = memory.capacity_bytes();
    return CUDA_SUCCESS;
  });
}
CUresult cuMemAlloc(CUdeviceptr* out, size_t bytes) {
  return api(true, [&] {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (Driver::get().queues.invalidate_captures("an allocation")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *out = Driver::get().gpus[static_cast<size_t>(current_device)]->memory.allocate(bytes);
    return *out == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  });
}
CUresult cuMemFree(CUdeviceptr p) {
  return api(true, [&] {
    if (Driver::get().queues.invalidate_captures("cuMemFree")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    ++Driver::get().host_waits;
    for (const auto& gpu : Driver::get().gpus)
      if (gpu->memory.release(p)) return CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_VALUE;
  });
}
CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned int) {
  return api(true, [&] {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (Driver::get().queues.invalidate_captures("cuMemHostAlloc")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    ++Driver::get().host_waits;
    *out = Driver::get().pinned.allocate(bytes);
    return *out == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  });
}
CUresult cuMemFreeHost(void* p) {
  return api(true, [&] {
    if (Driver::get().queues.invalidate_captures("cuMemFreeHost")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    ++Driver::get().host_waits;
    return Driver::get().pinned.release(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr p) {
  return api(true, [&] {
    if (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) return CUDA_ERROR_INVALID_VALUE;
    const std::optional<CUmemorytype> type = Driver::get().memory_type(p);
    if (!type) return CUDA_ERROR_INVALID_VALUE;  // memory that the driver does not know
    std::memcpy(out, &*type, sizeof *type);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned n, CUjit_option* options, void** values) {
  return api(true, [&] {
    if (Driver::get().queues.invalidate_captures("cuModuleLoadDataEx")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const auto* const text = static_cast<const char*>(image);
    if (std::strncmp(text, "//", 2) != 0 && std::strncmp(text, ".version", 8) != 0) return CUDA_ERROR_INVALID_IMAGE;
    if (const char* given = std::strstr(text, "\n.version "); given != nullptr) {
      int major = 0, minor = 0;
      std::sscanf(given, "\n.version %d.%d", &major, &minor);
      if (major >= 9 && version() < 13000 + minor * 10) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    }
    auto loaded = std::make_unique<LoadedModule>();
    try {
      loaded->module = ptx::parse(text);
    } catch (const std::exception& e) {
      write_log(e.what(), n, options, values);
      return CUDA_ERROR_INVALID_PTX;
    }
    *out = reinterpret_cast<CUmodule>(loaded.get());
    Driver::get().modules.push_back(std::move(loaded));
    return CUDA_SUCCESS;
  });
}
CUresult cuModuleUnload(CUmodule module) {
  return api(true, [&] {
    const auto n = std::erase_if(Driver::get().modules, [&](const std::unique_ptr<LoadedModule>& loaded) {
      return reinterpret_cast<CUmodule>(loaded.get()) == module;
    });
    return n == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}
CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  return api(true, [&] {
    auto& loaded = *reinterpret_cast<LoadedModule*>(module);
    const auto found = loaded.module.kernels.find(name);
    if (found == loaded.module.kernels.end()) return CUDA_ERROR_NOT_FOUND;
    loaded.functions.push_back(std::make_unique<Function>(Function{&found->second}));
    *out = reinterpret_cast<CUfunction>(loaded.functions.back().get());
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  return api(true, [&] {
    if (index != 0) return CUDA_ERROR_INVALID_VALUE;  // kernels of this project have one argument
    *offset = 0;
    *bytes = reinterpret_cast<Function*>(function)->kernel->param_bytes;
    return CUDA_SUCCESS;
  });
}

// The newest form of a function is found under its plain name, as in NVIDIA's driver. A driver lacks what came later.
CUresult cuGetProcAddress(const char* name, void** out, int, cuuint64_t, CUdriverProcAddressQueryResult* found) {
  static void* const self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&cuInit), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  const bool came_later = std::strcmp(name, "cuFuncGetParamInfo") == 0 && version() < 12040;
  *out = came_later ? nullptr : dlsym(self, (std::string(name) + "_v2").c_str());
  if (*out == nullptr && !came_later) *out = dlsym(self, name);
  if (found != nullptr) *found = *out == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  return *out == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

}  // extern "C"
