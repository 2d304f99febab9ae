// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/nccl/api.cpp: the functions of libnccl.so.2 that the plugin calls. What NCCL would refuse is refused.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "driver/for_nccl.hpp"
#include "nccl/communicator.hpp"

using namespace standin;
using nccl::Comm;
using nccl::DataType;
using nccl::RedOp;
using nccl::Result;
using nccl::Stream;

namespace {

// The calls of this thread's group, by communicator and stream.
struct Collected {
  Comm comm;
  CUstream stream;
  std::unique_ptr<Operation> operation;
};
thread_local int depth = 0;
thread_local std::vector<Collected> collected;
thread_local bool registers = false;  // a window

// Whether the stand-in ignores a call, as if the program had not made it (DDHOST_STANDIN_IGNORES).
bool ignores(const char* call) {
  const char* const given = std::getenv("DDHOST_STANDIN_IGNORES");
  return given != nullptr && std::strcmp(given, call) == 0;
}

// Adds a line to the file of DDHOST_STANDIN_NCCL_CALLS.
void note(const std::string& line) {
  if (const char* const file = std::getenv("DDHOST_STANDIN_NCCL_CALLS"))
    std::ofstream(file, std::ios::app) << line + "\n";
}

Operation& operation_of(Comm comm, Stream stream) {
  for (const Collected& c : collected)
    if (c.comm == comm && c.stream == stream) return *c.operation;
  collected.push_back({comm, stream, std::make_unique<Operation>()});
  return *collected.back().operation;
}

uint64_t address_of(const void* p) { return reinterpret_cast<uint64_t>(p); }

struct Buffer {
  const void* p;
  uint64_t bytes;
  bool may_be_unknown = false;  // also to a strict NCCL
};

// Outside of a group a call is a group of its own.
template <class Body>
Result grouped(Comm comm, Stream stream, std::initializer_list<Buffer> buffers, Body&& body) {
  if (comm == nullptr || stream == nullptr) return nccl::kInvalidArgument;
  for (const Buffer& buffer : buffers)
    if (comm->windows.is_left_by(buffer.p, buffer.bytes)) return nccl::kInvalidArgument;
  const bool is_strict = std::getenv("DDHOST_STANDIN_NCCL_STRICT") != nullptr;
  for (const Buffer& buffer : buffers) {
    if (!is_strict || buffer.may_be_unknown || comm->knows(buffer.p, buffer.bytes)) continue;
    const std::string bytes = std::to_string(buffer.bytes);
    ddhost_standin_fault(
        ("NCCL: a call uses " + bytes + " bytes that are in no registration and in no window").c_str());
    return nccl::kInvalidArgument;
  }
  if (const Result now = comm->poll(); now == nccl::kRemoteError || comm->failed) return now;
  if (depth == 0) {  // a group of its own
    auto operation = std::make_unique<Operation>();
    body(*operation);
    comm->pending.push_back({std::move(operation), stream});
    note("operation");
    return nccl::kInProgress;
  }
  body(operation_of(comm, stream));
  return nccl::kSuccess;
}

// Never freed: queued work may still name it.
void retire(Comm comm) {
  serve_no_more(comm);
  static std::mutex mutex;
  static auto& retired = *std::make_unique<std::vector<Comm>>().release();
  const std::lock_guard lock(mutex);
  retired.push_back(comm);
}

Reduction reduction(const void* own, void* dst, uint64_t count, DataType type, RedOp op, Kind kind) {
  return {address_of(own), address_of(dst), count, {}, type, op, kind};
}

}  // namespace

extern "C" {

Result ncclGetVersion(int* version) {
  const char* const given = std::getenv("DDHOST_STANDIN_NCCL_VERSION");
  *version = given == nullptr ? 22809 : std::atoi(given);
  return nccl::kSuccess;
}
Result ncclGetUniqueId(nccl::UniqueId* out) {
  *out = make_board();
  return nccl::kSuccess;
}
const char* ncclGetErrorString(Result result) {
  switch (result) {
    case nccl::kSuccess:
      return "no error";
    case nccl::kInvalidArgument:
      return "invalid argument";
    case nccl::kInvalidUsage:
      return "invalid usage";
    case nccl::kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "another error";
  }
}
const char* ncclGetLastError(Comm) { return ""; }

Result ncclCommInitRankConfig(Comm* out, int n_ranks, nccl::UniqueId id, int rank, nccl::Config* config) {
  *out = nullptr;
  if (config->magic != nccl::Config::kMagic || config->size < sizeof(nccl::Config)) return nccl::kInvalidArgument;
  const bool is_known = n_ranks >= 1 && n_ranks <= kMostRanks && rank >= 0 && rank < n_ranks;
  if (!is_known || config->blocking != 0) return nccl::kInvalidArgument;
  if (ddhost_standin_device_now() < 0) return nccl::kUnhandledCudaError;
  const bool has_policy = config->cta_policy != nccl::Config::kUndefined;
  const char* const debug = std::getenv("NCCL_DEBUG");
  note("init, CTA policy " + (has_policy ? std::to_string(config->cta_policy) : "of its own") + ", NCCL_DEBUG " +
       (debug == nullptr ? "not set" : debug));
  Board* const board = open_board(id);
  if (board == nullptr) return nccl::kSystemError;
  *out = std::make_unique<ncclComm>(board, n_ranks, rank).release();
  return nccl::kInProgress;
}
Result ncclCommGetAsyncError(Comm comm, Result* out) {
  *out = comm->poll();
  return nccl::kSuccess;
}
Result ncclCommFinalize(Comm comm) {
  if (depth > 0 || !comm->pending.empty()) return nccl::kInvalidUsage;
  comm->complete();
  comm->finalizing = true;
  comm->board->members[comm->rank].finalized = 1;
  return nccl::kInProgress;
}
Result ncclCommDestroy(Comm comm) {
  if (!comm->finalizing || !comm->registered.empty() || !comm->windows.empty()) return nccl::kInvalidUsage;
  retire(comm);
  return nccl::kSuccess;
}
Result ncclCommAbort(Comm comm) {
  if (ignores("ncclCommAbort")) return nccl::kSuccess;
  comm->aborting = true;
  comm->board->members[comm->rank].aborted = 1;
  comm->windows.remove_all();
  retire(comm);
  return nccl::kSuccess;
}

Result ncclCommRegister(Comm comm, void* p, size_t bytes, void** handle) {
  if (std::getenv("DDHOST_STANDIN_NCCL_NO_BUFFERS") != nullptr) return nccl::kSystemError;
  if (bytes == 0 || !comm->registered.emplace(static_cast<char*>(p), bytes).second) return nccl::kInvalidArgument;
  *handle = p;
  note("register");
  return nccl::kSuccess;
}
Result ncclCommDeregister(Comm comm, void* handle) {
  if (ignores("ncclCommDeregister")) return nccl::kSuccess;
  return comm->registered.erase(static_cast<char*>(handle)) == 1 ? nccl::kSuccess : nccl::kInvalidArgument;
}

Result ncclMemAlloc(void** out, size_t bytes) { return allocate_memory(out, bytes); }
Result ncclMemFree(void* p) { return free_memory(p); }
Result ncclCommWindowRegister(Comm comm, void* p, size_t bytes, nccl::Window* window, int flags) {
  if (ignores("ncclCommWindowRegister")) {
    *window = static_cast<nccl::Window>(p);
    return nccl::kSuccess;
  }
  if (flags != nccl::kWindowSymmetric || bytes == 0) return nccl::kInvalidArgument;
  const Result begun = comm->windows.begin(p, bytes, window);
  if (begun != nccl::kInProgress || depth == 0) return begun;
  registers = true;
  return nccl::kSuccess;
}
Result ncclCommWindowDeregister(Comm comm, nccl::Window window) {
  if (ignores("ncclCommWindowDeregister")) return nccl::kSuccess;
  return comm->windows.remove(window);
}

Result ncclGroupStart() {
  ++depth;
  return nccl::kSuccess;
}
Result ncclGroupEnd() {
  if (ignores("ncclGroupEnd")) return nccl::kSuccess;
  if (depth == 0) return nccl::kInvalidUsage;
  if (--depth > 0) return nccl::kSuccess;
  const bool any = std::exchange(registers, false) || !collected.empty();
  for (Collected& c : collected) {
    c.comm->pending.push_back({std::move(c.operation), c.stream});
    note("operation");
  }
  collected.clear();
  return any ? nccl::kInProgress : nccl::kSuccess;
}

Result ncclSend(const void* send, size_t count, DataType type, int peer, Comm comm, Stream stream) {
  return grouped(comm, stream, {{send, count * bytes_of(type)}}, [&](Operation& operation) {
    operation.messages.push_back({peer, true, address_of(send), count * bytes_of(type), kSendRecv});
  });
}
Result ncclRecv(void* recv, size_t count, DataType type, int peer, Comm comm, Stream stream) {
  return grouped(comm, stream, {{recv, count * bytes_of(type), true}}, [&](Operation& operation) {
    operation.messages.push_back({peer, false, address_of(recv), count * bytes_of(type), kSendRecv});
  });
}
Result ncclAllGather(const void* send, void* recv, size_t send_count, DataType type, Comm comm, Stream stream) {
  const uint64_t bytes = send_count * bytes_of(type), all_bytes = bytes * static_cast<uint64_t>(comm->size);
  return grouped(comm, stream, {{send, bytes}, {recv, all_bytes}}, [&](Operation& operation) {
    for (int peer = 0; peer < comm->size; ++peer) {
      const uint64_t place = address_of(recv) + static_cast<uint64_t>(peer) * bytes;
      operation.messages.push_back({peer, true, address_of(send), bytes, kAllGather});
      operation.messages.push_back({peer, false, place, bytes, kAllGather});
    }
  });
}
Result ncclBroadcast(const void* send, void* recv, size_t count, DataType type, int root, Comm comm, Stream stream) {
  const uint64_t bytes = count * bytes_of(type);
  return grouped(comm, stream, {{comm->rank == root ? send : recv, bytes}, {recv, bytes}}, [&](Operation& operation) {
    for (int peer = 0; peer < comm->size && comm->rank == root; ++peer)
      operation.messages.push_back({peer, true, address_of(send), bytes, kBroadcast});
    operation.messages.push_back({root, false, address_of(recv), bytes, kBroadcast});
  });
}
Result ncclAllReduce(const void* send, void* recv, size_t count, DataType type, RedOp op, Comm comm, Stream stream) {
  const uint64_t bytes = count * bytes_of(type);
  return grouped(comm, stream, {{send, bytes}, {recv, bytes}}, [&](Operation& operation) {
    operation.reductions.push_back(reduction(send, recv, count, type, op, kAllReduce));
    operation.reductions.back().own_offset_of.assign(static_cast<size_t>(comm->size), 0);
  });
}
Result ncclReduceScatter(const void* send, void* recv, size_t recv_count, DataType type, RedOp op, Comm comm,
                         Stream stream) {
  const uint64_t bytes = recv_count * bytes_of(type), all_bytes = bytes * static_cast<uint64_t>(comm->size);
  return grouped(comm, stream, {{send, all_bytes}, {recv, bytes}}, [&](Operation& operation) {
    operation.reductions.push_back(reduction(send, recv, recv_count, type, op, kReduceScatter));
    for (uint64_t r = 0; r < static_cast<uint64_t>(comm->size); ++r)
      operation.reductions.back().own_offset_of.push_back(r * recv_count * bytes_of(type));
  });
}

}  // extern "C"
