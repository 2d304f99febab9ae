// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"

#include <array>
#include <cstring>
#include <string_view>

namespace cuda DDH_HIDDEN {
namespace {

CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
CUevent event_of(ddh_event* event) { return reinterpret_cast<CUevent>(event); }
CUgraphExec graph_of(ddh_graph* graph) { return reinterpret_cast<CUgraphExec>(graph); }

}  // namespace

// A host function in a queue, and where its error goes.
struct Context::Job {
  Context& context;
  ddh_stream_fn fn;
  void* arg;
};

Context::Context(const Driver& driver, const Settings& settings, int32_t index)
    : Context(driver, settings, index, RetainContext()) {
  enter();
  main_ = create_stream();
  zeroing_ = create_stream();
}

Context::Context(const Driver& driver, const Settings& settings, int32_t index, RetainContext)
    : driver_(driver), index_(index), graphs_(settings.graphs) {
  driver_.check(driver_.cuDeviceGet(&device_, index), "cuDeviceGet");
  std::array<char, 48> name{};
  driver_.check(driver_.cuDeviceGetName(name.data(), static_cast<int>(name.size()), device_), "cuDeviceGetName");
  name_ = name.data();
  check_capability();
  driver_.check(driver_.cuDeviceGetUuid(&uuid_, device_), "cuDeviceGetUuid");
  uint8_t uuid[16];
  std::memcpy(uuid, uuid_.bytes, sizeof uuid);
  nvml_ = Nvml::open(settings.nvml, uuid);
  driver_.check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Context::~Context() {
  driver_.cuCtxSetCurrent(context_);
  for (CUstream stream : {main_, zeroing_}) {
    if (stream == nullptr) continue;  // the constructor has failed
    driver_.cuStreamSynchronize(stream);
    driver_.cuStreamDestroy(stream);
  }
  for (const auto& [image, module] : modules_) driver_.cuModuleUnload(module);
  driver_.cuCtxSetCurrent(nullptr);
  driver_.cuDevicePrimaryCtxRelease(device_);
}

// The kernels are PTX for 8.0 (DDHOST_NVCC_FLAGS), which the driver compiles for newer GPUs only.
void Context::check_capability() const {
  constexpr int kOldest = 8;
  int major = 0, minor = 0;
  driver_.check(driver_.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_),
                "cuDeviceGetAttribute");
  driver_.check(driver_.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_),
                "cuDeviceGetAttribute");
  if (major >= kOldest) return;
  ddh::fail(DDH_UNAVAILABLE, "GPU ", index_, " (", name_, ") has compute capability ", major, ".", minor,
            ", but the kernels need ", kOldest,
            ".0 or newer (A100, RTX 30); choose another GPU with CUDA_VISIBLE_DEVICES, or --device cpu");
}

void Context::enter() const { driver_.check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

ddh_device_info Context::info() {
  enter();
  size_t free_bytes = 0, total_bytes = 0;
  driver_.check(driver_.cuMemGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo");
  ddh_device_info out{sizeof(ddh_device_info), index_, total_bytes, free_bytes, {}, "cuda", {}};
  std::strncpy(out.name, name_.c_str(), sizeof out.name - 1);
  std::memcpy(out.uuid, uuid_.bytes, sizeof out.uuid);
  return out;
}

ddh_device_usage Context::usage() {
  if (!nvml_) ddh::fail(DDH_UNIMPLEMENTED, "NVIDIA's management library was not found; the GPU is not measured");
  return nvml_->usage();
}

void* Context::allocate(const ddh_alloc_args& args) {
  refuse_capture("allocate");
  enter();
  const bool zero = (args.flags & DDH_ALLOC_ZERO) != 0;
  if (args.memory == DDH_MEM_PINNED) {
    void* p = nullptr;
    const CUresult result = driver_.cuMemHostAlloc(&p, args.bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "the system gives no more page-locked memory (cuMemHostAlloc)");
    driver_.check(result, "cuMemHostAlloc");
    if (zero) std::memset(p, 0, args.bytes);
    return p;
  }
  CUdeviceptr p = 0;
  const CUresult result = driver_.cuMemAlloc(&p, args.bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    const ddh_device_info now = info();
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "GPU ", index_, " (", name_, ") has ", now.total_bytes, " bytes, of which ",
              now.free_bytes, " are free");
  }
  driver_.check(result, "cuMemAlloc");
  if (zero) {
    driver_.check(driver_.cuMemsetD8Async(p, 0, args.bytes, zeroing_), "cuMemsetD8Async");
    driver_.check(driver_.cuStreamSynchronize(zeroing_), "cuStreamSynchronize");
  }
  auto* const out =
      reinterpret_cast<char*>(p);  // NOLINT(performance-no-int-to-ptr): the driver's addresses are integers
  const std::lock_guard lock(mutex_);
  device_blocks_[out] = args.bytes;
  return out;
}

void Context::release(void* p, int32_t memory) {
  if (p == nullptr) return;
  free_outside_capture([this, p, memory] {
    enter();
    if (memory == DDH_MEM_PINNED) return driver_.check(driver_.cuMemFreeHost(p), "cuMemFreeHost");
    {
      const std::lock_guard lock(mutex_);
      device_blocks_.erase(static_cast<const char*>(p));
    }
    driver_.check(driver_.cuMemFree(address(p)), "cuMemFree");
  });
}

CUstream Context::create_stream() {
  refuse_capture("create of a stream");
  enter();
  CUstream out = nullptr;
  driver_.check(driver_.cuStreamCreateWithPriority(&out, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreateWithPriority");
  return out;
}

ddh_stream* Context::stream_create(const char*) { return reinterpret_cast<ddh_stream*>(create_stream()); }

void Context::stream_destroy(ddh_stream* handle) {
  free_outside_capture([this, stream = stream_of(handle)] {
    enter();
    driver_.cuStreamSynchronize(stream);
    driver_.check(driver_.cuStreamDestroy(stream), "cuStreamDestroy");
  });
}

ddh_event* Context::event_create() {
  refuse_capture("event_create");
  enter();
  CUevent out = nullptr;
  driver_.check(driver_.cuEventCreate(&out, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return reinterpret_cast<ddh_event*>(out);
}

void Context::event_destroy(ddh_event* event) {
  free_outside_capture([this, event] {
    enter();
    driver_.check(driver_.cuEventDestroy(event_of(event)), "cuEventDestroy");
  });
}

void Context::record(ddh_event* event, ddh_stream* stream) {
  refuse_capture("record");
  enter();
  driver_.check(driver_.cuEventRecord(event_of(event), stream_of(stream)), "cuEventRecord");
}

void Context::wait(ddh_stream* stream, ddh_event* event) {
  refuse_capture("wait");
  enter();
  driver_.check(driver_.cuStreamWaitEvent(stream_of(stream), event_of(event), 0), "cuStreamWaitEvent");
}

void Context::synchronize(ddh_stream* stream) {
  refuse_capture("synchronize");
  enter();
  driver_.check(driver_.cuStreamSynchronize(stream_of(stream)), "cuStreamSynchronize");
  const std::lock_guard lock(failure_mutex_);
  if (failure_) throw *failure_;
}

void Context::run(ddh_stream* stream, ddh_stream_fn fn, void* arg, const ddh_access* accesses, uint32_t n,
                  const char* name) {
  refuse_capture("run");
  enter();
  for (uint32_t i = 0; i < n; ++i) {
    if (accesses[i].bytes > 0 && is_device_memory(accesses[i].data))
      ddh::fail(DDH_UNIMPLEMENTED, name, " computes on the host with memory of GPU ", index_,
                ", which the host can't access; use a kernel, or --device cpu");
  }
  auto job = std::make_unique<Job>(Job{*this, fn, arg});
  const CUhostFn call = [](void* p) {
    const std::unique_ptr<Job> mine(static_cast<Job*>(p));
    try {
      ddh::call(mine->fn, mine->arg);
    } catch (const ddh::Error& error) {
      mine->context.fail_once(error);
    }
  };
  driver_.check(driver_.cuLaunchHostFunc(stream_of(stream), call, job.get()), "cuLaunchHostFunc");
  (void)job.release();  // NOLINT(bugprone-unused-return-value): `call` deletes it
}

void Context::fail_once(const ddh::Error& error) {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) failure_ = error;
}

bool Context::is_own_block(const void* p) {
  const std::lock_guard lock(mutex_);
  auto block = device_blocks_.upper_bound(static_cast<const char*>(p));
  if (block == device_blocks_.begin()) return false;
  --block;
  return static_cast<const char*>(p) < block->first + block->second;
}

// Libraries have memory of their own, such as LibTorch's caching allocator. The driver knows it too.
bool Context::is_device_memory(const void* p) {
  if (is_own_block(p)) return true;
  CUmemorytype type = CU_MEMORYTYPE_HOST;
  const CUresult result = driver_.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(p));
  if (result == CUDA_ERROR_INVALID_VALUE) return false;  // pageable memory of the host
  driver_.check(result, "cuPointerGetAttribute");
  return type == CU_MEMORYTYPE_DEVICE;
}

void Context::check_kind(const char* side, const void* p, int32_t said) {
  const bool is_device = is_device_memory(p);
  if (is_device == (said == DDH_MEM_DEVICE)) return;
  ddh::fail(DDH_INVALID_ARGUMENT, "a copy ", side, " memory of the ", is_device ? "host" : "GPU",
            " was given memory of the ", is_device ? "GPU" : "host", "; its direction is wrong");
}

void Context::copy(void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes,
                   ddh_stream* stream) {
  if (bytes == 0) return;
  if (dst_memory == DDH_MEM_HOST || src_memory == DDH_MEM_HOST) refuse_capture("copy from or to memory of the host");
  enter();
  check_kind("to", dst, dst_memory);
  check_kind("from", src, src_memory);
  driver_.check(driver_.cuMemcpyAsync(address(dst), address(src), bytes, stream_of(stream)), "cuMemcpyAsync");
}

void Context::set_zero(void* dst, uint64_t bytes, ddh_stream* stream) {
  if (bytes == 0) return;
  enter();
  driver_.check(driver_.cuMemsetD8Async(address(dst), 0, bytes, stream_of(stream)), "cuMemsetD8Async");
}

void Context::refuse_capture(const char* call) const {
  if (!is_capturing()) return;
  ddh::fail(DDH_FAILED_PRECONDITION, "device 'cuda' was asked for ", call, " inside the capture of '", capture_,
            "', but a graph replays work of the GPU without the host; move the call out of the capture, or set ",
            "device.graphs=false");
}

template <class Free>
void Context::free_outside_capture(Free&& free) {
  if (!is_capturing()) return free();
  to_be_freed_.emplace_back(std::forward<Free>(free));
}

void Context::leave_capture() noexcept {
  if (!is_capturing()) return;
  capturing_ = std::thread::id();
  for (const std::function<void()>& free : std::exchange(to_be_freed_, {})) ddh::guard(nullptr, free);
}

void Context::capture_begin(ddh_stream* stream, const char* name) {
  if (!graphs_) ddh::fail(DDH_UNIMPLEMENTED, "this run uses no graphs; set device.graphs=true");
  load_flat_kernels();
  refuse_capture("capture_begin");
  std::thread::id none;
  if (!capturing_.compare_exchange_strong(none, std::this_thread::get_id()))
    ddh::fail(DDH_FAILED_PRECONDITION, "device 'cuda' can't begin the capture of '", name,
              "' while another thread captures, because it captures one graph at a time; begin after its capture_end");
  capture_ = name;
  try {
    enter();
    driver_.check(driver_.cuStreamBeginCapture(stream_of(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                  "cuStreamBeginCapture");
  } catch (...) {
    leave_capture();
    throw;
  }
  has_captured_ = true;
}

ddh_graph* Context::capture_end(ddh_stream* stream) {
  enter();
  CUgraph recorded = nullptr;
  const CUresult ended = driver_.cuStreamEndCapture(stream_of(stream), &recorded);
  leave_capture();
  driver_.check(ended, "cuStreamEndCapture");
  CUgraphExec out = nullptr;
  const CUresult result = driver_.cuGraphInstantiateWithFlags(&out, recorded, 0);
  driver_.cuGraphDestroy(recorded);
  driver_.check(result, "cuGraphInstantiateWithFlags");
  return reinterpret_cast<ddh_graph*>(out);
}

void Context::capture_discard(ddh_stream* stream) {
  CUgraph recorded = nullptr;
  driver_.cuCtxSetCurrent(context_);
  if (driver_.cuStreamEndCapture(stream_of(stream), &recorded) == CUDA_SUCCESS && recorded != nullptr)
    driver_.cuGraphDestroy(recorded);
  leave_capture();
}

void Context::graph_launch(ddh_graph* graph, ddh_stream* stream) {
  refuse_capture("graph_launch");
  enter();
  driver_.check(driver_.cuGraphLaunch(graph_of(graph), stream_of(stream)), "cuGraphLaunch");
}

void Context::graph_destroy(ddh_graph* graph) {
  free_outside_capture([this, graph] {
    enter();
    driver_.check(driver_.cuGraphExecDestroy(graph_of(graph)), "cuGraphExecDestroy");
  });
}

CUmodule Context::load(const char* image) const {
  std::array<char, 4096> log{};  // of the driver's compiler
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver takes numbers as pointers
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  CUmodule out = nullptr;
  const CUresult result = driver_.cuModuleLoadDataEx(&out, image, 2, options, static_cast<void**>(values));
  const std::string_view text = log.data(), line = text.substr(0, text.find('\n'));
  if (result != CUDA_SUCCESS && !line.empty())
    ddh::fail(DDH_INTERNAL, "the CUDA driver can't compile kernels for GPU ", index_, " (", name_, "): ", line, ": ",
              driver_.text_of(result), "; rebuild the plugin, or update NVIDIA's driver");
  driver_.check(result, "cuModuleLoadDataEx");
  return out;
}

ddh_kernel* Context::kernel_find(const void* image, const char* name, uint64_t arg_bytes) {
  return reinterpret_cast<ddh_kernel*>(const_cast<Kernel*>(&find(static_cast<const char*>(image), name, arg_bytes)));
}

const Kernel& Context::find(const char* image, const char* name, uint64_t arg_bytes) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Kernel>& kernel = kernels_[{image, name}];
  if (kernel == nullptr) {
    refuse_capture("find of a new kernel");
    enter();
    CUmodule& module = modules_[image];
    if (module == nullptr) module = load(image);
    Kernel found;
    const CUresult result = driver_.cuModuleGetFunction(&found.function, module, name);
    if (result == CUDA_ERROR_NOT_FOUND)
      ddh::fail(DDH_NOT_FOUND, "an image has no kernel '", name, "'; rebuild the plugin");
    driver_.check(result, "cuModuleGetFunction");
    size_t offset = 0, bytes = 0;
    driver_.check(driver_.cuFuncGetParamInfo(found.function, 0, &offset, &bytes), "cuFuncGetParamInfo");
    found.arg_bytes = bytes;
    kernel = std::make_unique<Kernel>(found);
  }
  if (kernel->arg_bytes != arg_bytes)
    ddh::fail(DDH_INVALID_ARGUMENT, "kernel '", name, "' takes an argument of ", kernel->arg_bytes, " bytes, not ",
              arg_bytes, "; rebuild the plugin");
  return *kernel;
}

void Context::launch(const Kernel& kernel, uint32_t blocks, uint32_t threads, const void* arg, ddh_stream* stream) {
  enter();
  void* args[] = {const_cast<void*>(arg)};
  driver_.check(driver_.cuLaunchKernel(kernel.function, blocks, 1, 1, threads, 1, 1, 0, stream_of(stream),
                                       static_cast<void**>(args), nullptr),
                "cuLaunchKernel");
}

}  // namespace DDH_HIDDEN
