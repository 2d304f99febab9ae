// SPDX-License-Identifier: Apache-2.0
//
// flat_kernels.cu: the kernels of flat_kernels.hpp by name, compiled to PTX.
#include "flat_kernels.hpp"

using CastF32ToBf16 = cuda::Cast<cuda::Bf16, cuda::F32>;
using CastF32ToF16 = cuda::Cast<cuda::F16, cuda::F32>;
using CastBf16ToF32 = cuda::Cast<cuda::F32, cuda::Bf16>;
using CastBf16ToF16 = cuda::Cast<cuda::F16, cuda::Bf16>;
using CastF16ToF32 = cuda::Cast<cuda::F32, cuda::F16>;
using CastF16ToBf16 = cuda::Cast<cuda::Bf16, cuda::F16>;

DDH_DEVICE_KERNEL(fill16, cuda::Fill<uint16_t>)
DDH_DEVICE_KERNEL(fill32, cuda::Fill<uint32_t>)
DDH_DEVICE_KERNEL(fill64, cuda::Fill<uint64_t>)
DDH_DEVICE_KERNEL(cast_f32_to_bf16, CastF32ToBf16)
DDH_DEVICE_KERNEL(cast_f32_to_f16, CastF32ToF16)
DDH_DEVICE_KERNEL(cast_bf16_to_f32, CastBf16ToF32)
DDH_DEVICE_KERNEL(cast_bf16_to_f16, CastBf16ToF16)
DDH_DEVICE_KERNEL(cast_f16_to_f32, CastF16ToF32)
DDH_DEVICE_KERNEL(cast_f16_to_bf16, CastF16ToBf16)
DDH_DEVICE_KERNEL(scale, cuda::Scale)
DDH_DEVICE_KERNEL(add, cuda::Add)
DDH_DEVICE_KERNEL(ordered_sum, cuda::OrderedSum)
DDH_DEVICE_KERNEL(exact_squares, cuda::ExactSquares)
