// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/usable_values.hpp: values from which no run can go on, in the tensors of a checkpoint: those of a parameter or
// a buffer that are not finite, and a NaN of an optimizer's slot. A slot may hold an infinity, and a buffer with
// DDH_SYNC_NEVER any value.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/checkpoint_layout.hpp"

namespace ddhost {

// The index, from 0, of the first of `values` from which no run can go on. They are whole elements of the tensor, in its
// dtype, at any address.
std::optional<uint64_t> first_unusable(const StoredTensor& tensor, const char* values, uint64_t bytes);

// The same of the values of a model's buffer.
std::optional<uint64_t> first_unusable(const ddh_buffer_desc& buffer, const void* values);

// The index of the first of `numel` fp32 values that is NaN or infinite.
std::optional<uint64_t> first_nonfinite(const float* values, uint64_t numel);

// How many of `values` are NaN or infinite; 0 for dtypes that have no such values.
uint64_t count_nonfinite(int32_t dtype, const char* values, uint64_t bytes);

// "parameter 'w' is not finite from element 7 on", or "optimizer state 'exp_avg/w' is NaN from element 7 on".
std::string unusable_text(const StoredTensor& tensor, uint64_t element);

// Why a buffer of a run may hold such values, and the cure.
inline constexpr const char* kUnusableBufferReason =
    "the model computes it from its forwards, and begins with the value of train.init_from or its own; lower "
    "optimizer.lr, or correct the file or the model (a buffer with DDH_SYNC_NEVER may hold any value)";

}  // namespace ddhost
