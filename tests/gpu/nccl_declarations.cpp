// SPDX-License-Identifier: Apache-2.0
//
// The declarations of plugins/comm/nccl against nccl.h: sizes, places, values, and the number and sizes of arguments.
#include "declarations.hpp"

#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace {

template <class A, class B>
constexpr bool is_like =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_class_v<A> == std::is_class_v<B>;

template <class Mine, class Theirs>
struct SameCall : std::false_type {};
template <class R1, class... A1, class R2, class... A2>
requires(sizeof...(A1) == sizeof...(A2)) struct SameCall<R1(A1...), R2(A2...)>
    : std::bool_constant<is_like<R1, R2> && (is_like<A1, A2> && ...)> {
};

#define SAME_CALL(F) static_assert(SameCall<F##_t, decltype(F)>::value, #F)
SAME_CALL(ncclGetVersion);
SAME_CALL(ncclGetUniqueId);
SAME_CALL(ncclGetErrorString);
SAME_CALL(ncclGetLastError);
SAME_CALL(ncclCommInitRankConfig);
SAME_CALL(ncclCommFinalize);
SAME_CALL(ncclCommDestroy);
SAME_CALL(ncclCommAbort);
SAME_CALL(ncclCommGetAsyncError);
SAME_CALL(ncclCommRegister);
SAME_CALL(ncclCommDeregister);
SAME_CALL(ncclMemAlloc);
SAME_CALL(ncclMemFree);
#if NCCL_VERSION_CODE >= 22700
SAME_CALL(ncclCommWindowRegister);
SAME_CALL(ncclCommWindowDeregister);
static_assert(nccl::kWindowSymmetric == NCCL_WIN_COLL_SYMMETRIC);
#endif
SAME_CALL(ncclGroupStart);
SAME_CALL(ncclGroupEnd);
SAME_CALL(ncclSend);
SAME_CALL(ncclRecv);
SAME_CALL(ncclAllGather);
SAME_CALL(ncclBroadcast);
SAME_CALL(ncclAllReduce);
SAME_CALL(ncclReduceScatter);

#define SAME_VALUE(MINE, THEIRS) static_assert(static_cast<int>(nccl::MINE) == static_cast<int>(THEIRS), #THEIRS)
SAME_VALUE(kSuccess, ncclSuccess);
SAME_VALUE(kUnhandledCudaError, ncclUnhandledCudaError);
SAME_VALUE(kSystemError, ncclSystemError);
SAME_VALUE(kInternalError, ncclInternalError);
SAME_VALUE(kInvalidArgument, ncclInvalidArgument);
SAME_VALUE(kInvalidUsage, ncclInvalidUsage);
SAME_VALUE(kRemoteError, ncclRemoteError);
SAME_VALUE(kInProgress, ncclInProgress);
SAME_VALUE(kUint8, ncclUint8);
SAME_VALUE(kInt32, ncclInt32);
SAME_VALUE(kInt64, ncclInt64);
SAME_VALUE(kFloat16, ncclFloat16);
SAME_VALUE(kFloat32, ncclFloat32);
SAME_VALUE(kFloat64, ncclFloat64);
SAME_VALUE(kBfloat16, ncclBfloat16);
SAME_VALUE(kSum, ncclSum);
SAME_VALUE(kMax, ncclMax);
SAME_VALUE(kMin, ncclMin);

static_assert(nccl::Config::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
#define SAME_PLACE(MINE, THEIRS) static_assert(offsetof(nccl::Config, MINE) == offsetof(ncclConfig_t, THEIRS), #THEIRS)
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(net_name, netName);
#if NCCL_VERSION_CODE >= 22700
SAME_PLACE(comm_name, commName);
SAME_PLACE(cta_policy, CTAPolicy);
SAME_PLACE(nvls_ctas, nvlsCTAs);
static_assert(sizeof(nccl::Config) <= sizeof(ncclConfig_t));
#endif

}  // namespace
