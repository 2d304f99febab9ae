// SPDX-License-Identifier: Apache-2.0
//
// declarations.hpp: the types and functions of NCCL that are used, so that nccl.h is not needed to build. Where nccl.h is
// there, tests/gpu/nccl_declarations.cpp compares them with it.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

struct ncclComm;           // a communicator
struct ncclWindow_vidmem;  // a registered window
struct CUstream_st;        // a stream of CUDA

namespace nccl {

using Comm = ncclComm*;
using Stream = CUstream_st*;
using Window = ncclWindow_vidmem*;

constexpr int kWindowSymmetric = 1;  // collectives use it at the same offset on every rank

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
enum DataType : int { kUint8 = 1, kInt32 = 2, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum RedOp : int { kSum = 0, kMax = 2, kMin = 3 };

struct UniqueId {
  char internal[128];
};

// Of NCCL 2.27; older and newer libraries accept it by `size` and `version`. Numbers that are not given are kUndefined.
struct Config {
  static constexpr int kUndefined = INT_MIN;
  static constexpr unsigned kMagic = 0xcafebeef, kVersion = 22700;
  size_t size = sizeof(Config);
  unsigned magic = kMagic;
  unsigned version = kVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
};

}  // namespace nccl

extern "C" {
using ncclGetVersion_t = nccl::Result(int* version);
using ncclGetUniqueId_t = nccl::Result(nccl::UniqueId* out);
using ncclGetErrorString_t = const char*(nccl::Result result);
using ncclGetLastError_t = const char*(nccl::Comm comm);
using ncclCommInitRankConfig_t = nccl::Result(nccl::Comm* out, int n_ranks, nccl::UniqueId id, int rank,
                                              nccl::Config* config);
using ncclCommFinalize_t = nccl::Result(nccl::Comm comm);
using ncclCommDestroy_t = nccl::Result(nccl::Comm comm);
using ncclCommAbort_t = nccl::Result(nccl::Comm comm);
using ncclCommGetAsyncError_t = nccl::Result(nccl::Comm comm, nccl::Result* out);
using ncclCommRegister_t = nccl::Result(nccl::Comm comm, void* p, size_t bytes, void** handle);
using ncclCommDeregister_t = nccl::Result(nccl::Comm comm, void* handle);
using ncclMemAlloc_t = nccl::Result(void** out, size_t bytes);
using ncclMemFree_t = nccl::Result(void* p);
using ncclCommWindowRegister_t = nccl::Result(nccl::Comm comm, void* p, size_t bytes, nccl::Window* window, int flags);
using ncclCommWindowDeregister_t = nccl::Result(nccl::Comm comm, nccl::Window window);
using ncclGroupStart_t = nccl::Result();
using ncclGroupEnd_t = nccl::Result();
using ncclSend_t = nccl::Result(const void* send, size_t count, nccl::DataType type, int peer, nccl::Comm comm,
                                nccl::Stream stream);
using ncclRecv_t = nccl::Result(void* recv, size_t count, nccl::DataType type, int peer, nccl::Comm comm,
                                nccl::Stream stream);
using ncclAllGather_t = nccl::Result(const void* send, void* recv, size_t send_count, nccl::DataType type,
                                     nccl::Comm comm, nccl::Stream stream);
using ncclBroadcast_t = nccl::Result(const void* send, void* recv, size_t count, nccl::DataType type, int root,
                                     nccl::Comm comm, nccl::Stream stream);
using ncclAllReduce_t = nccl::Result(const void* send, void* recv, size_t count, nccl::DataType type, nccl::RedOp op,
                                     nccl::Comm comm, nccl::Stream stream);
using ncclReduceScatter_t = nccl::Result(const void* send, void* recv, size_t recv_count, nccl::DataType type,
                                         nccl::RedOp op, nccl::Comm comm, nccl::Stream stream);
}
