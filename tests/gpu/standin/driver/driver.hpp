// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/driver/driver.hpp: the state of the stand-in for NVIDIA's driver, behind the functions of libcuda.so.1.
//
// The environment says what machine it pretends to be:
//   DDHOST_STANDIN_GPUS      number of GPUs (1)
//   DDHOST_STANDIN_BYTES     memory of each (268435456)
//   DDHOST_STANDIN_VERSION   CUDA version that the driver supports (13000); an old one lacks newer functions
//   DDHOST_STANDIN_INIT      what cuInit returns, such as 999 of a driver that is broken (0)
//   DDHOST_STANDIN_CAPABILITY   compute capability of each ("8.0")
//   DDHOST_STANDIN_IGNORES   "cuStreamWaitEvent": the call has no effect and says that all is well; also
//                            cuCtxSetCurrent
//   DDHOST_STANDIN_ORDER     "late", or a number: the seed of a random order (queues.hpp)
//   DDHOST_STANDIN_WAITS     a file: each process adds a line with the number of times that the host waited for a GPU
//   DDHOST_STANDIN_STREAMS   number of streams that there may be at a time (any)
// GPU 0 has the UUID GPU-01010101-0101-..., GPU 1 GPU-02020202-..., and so on. Each has one instance (MIG): of GPU 0 it is
// MIG-81818181-8181-..., of GPU 1 MIG-82828282-... CUDA_VISIBLE_DEVICES may have numbers and beginnings of these names.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/memory.hpp"
#include "driver/queues.hpp"
#include "ptx/program.hpp"

namespace standin {

struct Gpu {
  Gpu(int physical_index, int byte_of_uuid, uint64_t bytes)
      : index(physical_index), uuid_byte(byte_of_uuid), memory(bytes) {}
  const int index;      // on the machine, before CUDA_VISIBLE_DEVICES
  const int uuid_byte;  // all bytes of its UUID
  DeviceMemory memory;
  int retained = 0;  // holders of its primary context
};

struct Function {
  const ptx::Kernel* kernel = nullptr;
};
struct LoadedModule {
  ptx::Module module;
  std::vector<std::unique_ptr<Function>> functions;
};
struct Graph {
  std::vector<std::function<void()>> works;
};
struct Event {
  Mark mark;
};

class Driver {
 public:
  static Driver& get();

  std::mutex mutex;  // held by every function of the API
  std::vector<std::unique_ptr<Gpu>> gpus;
  PinnedMemory pinned;
  Queues queues;
  std::vector<std::unique_ptr<LoadedModule>> modules;
  CUresult sticky = CUDA_SUCCESS;  // after a fault of a kernel every call returns it
  // Calls in which the host waits for a stream or an event, or for which a driver may wait: copies from and to host memory
  // that is not pinned, and calls that free memory or take pinned memory.
  uint64_t host_waits = 0;

  // Whether cuInit was called in this process, and not in the one that forked it.
  [[nodiscard]] bool is_initialized() const;
  CUresult initialize();

  // The memory that work on a GPU reaches at an address; nullptr: none.
  void* reach(int device, uint64_t address, uint64_t bytes);
  // Where copies find [address, address + bytes): device memory, or the host's own. nullptr: it leaves its block.
  void* copy_place(uint64_t address, uint64_t bytes);
  // Of the block that holds the address; nothing: no block does.
  std::optional<CUmemorytype> memory_type(uint64_t address);
  // Device or pinned memory: copies of it run in the order of their stream. Other memory is copied at once.
  bool is_asynchronous(uint64_t address, uint64_t bytes);
  // Writes `host_waits` if no context is held any more.
  void report_waits() const;
  // Prints a sentence and makes every later call fail.
  void fault(const std::string& sentence, CUresult result);

 private:
  Driver();
  int initialized_in_ = 0;  // process id
};

[[nodiscard]] int version();
[[nodiscard]] std::pair<int, int> compute_capability();
[[nodiscard]] size_t most_streams();

}  // namespace standin
