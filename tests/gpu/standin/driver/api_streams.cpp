// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/driver/api_streams.cpp: streams, events, copies and launches of libcuda.so.1. There is no default stream:
// work on one is refused, because it would be ordered with all other streams.
#include <cstdio>
#include <cstring>
#include <utility>

#include "driver/api.hpp"
#include "driver/for_nccl.hpp"

namespace standin {
namespace {

using StreamPtr = std::shared_ptr<Stream>;
StreamPtr* handle_of(CUstream stream) { return reinterpret_cast<StreamPtr*>(stream); }
Event& event_of(CUevent event) { return *reinterpret_cast<Event*>(event); }

// Calls body(stream) with the mutex held.
template <class Body>
CUresult on_stream(CUstream stream, Body&& body) {
  return api(true, [&] { return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(*handle_of(stream)); });
}

// The thread makes a call that no capture of its own may see.
CUresult refuse_captures(const char* call) {
  return Driver::get().queues.invalidate_captures(call) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult finish(const Mark& mark) {
  if (const CUresult refused = refuse_captures("a wait of the host"); refused != CUDA_SUCCESS) return refused;
  ++Driver::get().host_waits;
  Driver::get().queues.complete(mark);
  return Driver::get().sticky;
}

void copy_now(uint64_t dst, uint64_t src, uint64_t bytes) {
  Driver& driver = Driver::get();
  void* const to = driver.copy_place(dst, bytes);
  const void* const from = driver.copy_place(src, bytes);
  if (to == nullptr || from == nullptr)
    return driver.fault("a copy leaves its block, or the block was released", CUDA_ERROR_ILLEGAL_ADDRESS);
  std::memcpy(to, from, bytes);
}

CUresult copy(uint64_t dst, uint64_t src, uint64_t bytes, const StreamPtr& stream) {
  Driver& driver = Driver::get();
  if (driver.copy_place(dst, bytes) == nullptr || driver.copy_place(src, bytes) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (!driver.is_asynchronous(src, bytes)) {  // the driver has read ordinary host memory when it returns
    const auto* const begin = reinterpret_cast<const char*>(src);
    const auto kept = std::make_shared<std::vector<char>>(begin, begin + bytes);
    ++driver.host_waits;
    Queues::push(*stream, [=] { copy_now(dst, reinterpret_cast<uint64_t>(kept->data()), bytes); });
    return CUDA_SUCCESS;
  }
  Queues::push(*stream, [=] { copy_now(dst, src, bytes); });
  if (driver.is_asynchronous(dst, bytes)) return CUDA_SUCCESS;
  return finish(Queues::mark(stream));  // and has written it
}

void run_kernel(const ptx::Kernel& kernel, const std::vector<char>& args, uint32_t blocks, uint32_t threads,
                int device) {
  Driver& driver = Driver::get();
  if (driver.sticky != CUDA_SUCCESS) return;
  try {
    const ptx::Reach reach = [&](uint64_t address, uint64_t bytes, bool) {
      return driver.reach(device, address, bytes);
    };
    // Not the first thread begins, so that a missing barrier shows.
    ptx::execute(kernel, args.data(), blocks, threads, reach, threads / 2);
  } catch (const std::exception& e) {
    driver.fault(e.what(), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int, int) {
  return api(true, [&] {
    if (Driver::get().queues.n_streams() >= most_streams()) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = reinterpret_cast<CUstream>(std::make_unique<StreamPtr>(Driver::get().queues.create(device_now())).release());
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamDestroy(CUstream stream) {
  return on_stream(stream, [&](StreamPtr& mine) {
    if (const CUresult refused = refuse_captures("cuStreamDestroy"); refused != CUDA_SUCCESS) return refused;
    Driver::get().queues.destroy(mine);
    std::unique_ptr<StreamPtr>(&mine).reset();
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamSynchronize(CUstream stream) {
  return on_stream(stream, [&](StreamPtr& mine) { return finish(Queues::mark(mine)); });
}
CUresult cuStreamQuery(CUstream stream) {
  return on_stream(stream, [&](StreamPtr& mine) {
    const Mark mark = Queues::mark(mine);
    if (Queues::is_done(mark)) return CUDA_SUCCESS;
    Driver::get().queues.advance(mark);
    return Driver::get().sticky == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : Driver::get().sticky;
  });
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int) {
  if (ignores("cuStreamWaitEvent")) return CUDA_SUCCESS;
  return on_stream(stream, [&](StreamPtr& mine) {
    if (mine->recording != nullptr) return refuse_captures("a wait for an event");  // of work outside of the capture
    Queues::push_wait(*mine, event_of(event).mark);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventCreate(CUevent* out, unsigned int) {
  return api(true, [&] {
    *out = reinterpret_cast<CUevent>(std::make_unique<Event>().release());
    return CUDA_SUCCESS;
  });
}
CUresult cuEventDestroy(CUevent event) {
  return api(true, [&] {
    std::unique_ptr<Event>(&event_of(event)).reset();
    return CUDA_SUCCESS;
  });
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return on_stream(stream, [&](StreamPtr& mine) {
    if (mine->recording != nullptr) return refuse_captures("an event");
    event_of(event).mark = Queues::mark(mine);
    return CUDA_SUCCESS;
  });
}
CUresult cuEventQuery(CUevent event) {
  return api(true, [&] {
    const Mark mark = event_of(event).mark;
    if (Queues::is_done(mark)) return CUDA_SUCCESS;
    Driver::get().queues.advance(mark);
    return CUDA_ERROR_NOT_READY;
  });
}
void ddhost_standin_complete(CUevent event) {
  api(true, [&] {
    Driver::get().queues.complete(event_of(event).mark);
    return CUDA_SUCCESS;
  });
}
CUresult cuEventSynchronize(CUevent event) {
  return api(true, [&] { return finish(event_of(event).mark); });
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  return on_stream(stream, [&](StreamPtr& mine) {
    if (mine->recording != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    mine->recording = std::make_unique<Recording>();
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  return on_stream(stream, [&](StreamPtr& mine) {
    *out = nullptr;
    const std::unique_ptr<Recording> recorded = std::exchange(mine->recording, nullptr);
    if (recorded == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (recorded->fault != nullptr) {
      std::fprintf(stderr, "stand-in GPU: a capture was ended by %s\n", recorded->fault);
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    *out = reinterpret_cast<CUgraph>(std::make_unique<Graph>(Graph{std::move(recorded->works)}).release());
    return CUDA_SUCCESS;
  });
}
CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, unsigned long long) {
  return api(true, [&] {
    *out = reinterpret_cast<CUgraphExec>(std::make_unique<Graph>(*reinterpret_cast<Graph*>(graph)).release());
    return CUDA_SUCCESS;
  });
}
CUresult cuGraphDestroy(CUgraph graph) {
  return api(true, [&] {
    std::unique_ptr<Graph>(reinterpret_cast<Graph*>(graph)).reset();
    return CUDA_SUCCESS;
  });
}
CUresult cuGraphExecDestroy(CUgraphExec graph) {
  return api(true, [&] {
    std::unique_ptr<Graph>(reinterpret_cast<Graph*>(graph)).reset();
    return CUDA_SUCCESS;
  });
}
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  return on_stream(stream, [&](StreamPtr& mine) {
    if (mine->recording != nullptr) return refuse_captures("the launch of a graph");
    Queues::push(*mine, [works = reinterpret_cast<Graph*>(graph)->works] {
      for (const auto& work : works) work();
    });
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* arg) {
  return on_stream(stream, [&](StreamPtr& mine) {
    Queues::push(*mine, [=] {
      const InsideWork inside;
      function(arg);
    });
    return CUDA_SUCCESS;
  });
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return on_stream(stream, [&](StreamPtr& mine) { return copy(dst, src, bytes, mine); });
}
CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes, CUstream stream) {
  return on_stream(stream, [&](StreamPtr& mine) {
    Queues::push(*mine, [=] {
      void* const to = Driver::get().reach(mine->device, dst, bytes);
      if (to == nullptr) return Driver::get().fault("a memset leaves its block", CUDA_ERROR_ILLEGAL_ADDRESS);
      std::memset(to, value, bytes);
    });
    return CUDA_SUCCESS;
  });
}
CUresult cuLaunchKernel(CUfunction function, unsigned int blocks, unsigned int blocks_y, unsigned int blocks_z,
                        unsigned int threads, unsigned int threads_y, unsigned int threads_z, unsigned int shared_bytes,
                        CUstream stream, void** params, void** extra) {
  return on_stream(stream, [&](StreamPtr& mine) {
    constexpr unsigned int kMostThreads = 1024;
    const bool is_flat = blocks_y == 1 && blocks_z == 1 && threads_y == 1 && threads_z == 1;
    if (!is_flat || blocks == 0 || threads == 0 || threads > kMostThreads || shared_bytes != 0 || extra != nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    const ptx::Kernel& kernel = *reinterpret_cast<Function*>(function)->kernel;
    const auto* const given = static_cast<const char*>(params[0]);
    const std::vector<char> args(given, given + kernel.param_bytes);
    const int device = mine->device;
    Queues::push(*mine,
                 [&kernel, args, blocks, threads, device] { run_kernel(kernel, args, blocks, threads, device); });
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
