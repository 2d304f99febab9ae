// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/structs.hpp: the checks of each struct of the ABI that crosses the boundary: its minimum size, the fields
// that must be 0, and the flags that this build knows. copy_of and copy_out (ddh/sdk/plugin.hpp) use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "ddh/ddh.h"

#define DDH_HIDDEN __attribute__((visibility("hidden")))

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// A uint32_t field and the bits that it may have: 0 for a reserved field.
struct KnownBits {
  const char* field;
  size_t offset;
  uint32_t bits;
};

// The rule of a struct for copy_of and copy_out. A struct without a rule can't cross the boundary.
template <class T>
struct StructRule;

// Far more than any struct of the ABI: a larger struct_size is uninitialized.
constexpr uint32_t kMaxStructBytes = 4096;

#define DDH_STRUCT_RULE(T, MIN_SIZE, ...)                                      \
  template <>                                                                  \
  struct StructRule<T> {                                                       \
    static constexpr const char* name = #T;                                    \
    static constexpr uint32_t min_size = MIN_SIZE;                             \
    static constexpr std::initializer_list<KnownBits> known_bits{__VA_ARGS__}; \
  }
#define DDH_KNOWN_BITS(T, FIELD, BITS) \
  KnownBits { #FIELD, offsetof(T, FIELD), BITS }
#define DDH_RESERVED(T) DDH_KNOWN_BITS(T, reserved0, 0)

// ---- abi.h
DDH_STRUCT_RULE(ddh_build, DDH_BUILD_MIN_SIZE, DDH_RESERVED(ddh_build));
DDH_STRUCT_RULE(ddh_desc, DDH_DESC_MIN_SIZE);
DDH_STRUCT_RULE(ddh_module, DDH_MODULE_MIN_SIZE);
DDH_STRUCT_RULE(ddh_create, DDH_CREATE_MIN_SIZE, DDH_RESERVED(ddh_create));

// ---- kind/model.h
DDH_STRUCT_RULE(ddh_param_desc, DDH_PARAM_DESC_MIN_SIZE, DDH_RESERVED(ddh_param_desc),
                DDH_KNOWN_BITS(ddh_param_desc, attributes,
                               DDH_PARAM_NO_DECAY | DDH_PARAM_FROZEN | DDH_PARAM_SPARSE_GRAD));
DDH_STRUCT_RULE(ddh_buffer_desc, DDH_BUFFER_DESC_MIN_SIZE);
DDH_STRUCT_RULE(ddh_unit_desc, DDH_UNIT_DESC_MIN_SIZE);
DDH_STRUCT_RULE(ddh_program_desc, DDH_PROGRAM_DESC_MIN_SIZE);
DDH_STRUCT_RULE(ddh_layout_desc, DDH_LAYOUT_DESC_MIN_SIZE);
DDH_STRUCT_RULE(ddh_model_desc, DDH_MODEL_DESC_MIN_SIZE, DDH_RESERVED(ddh_model_desc),
                DDH_KNOWN_BITS(ddh_model_desc, reserved1, 0));
DDH_STRUCT_RULE(ddh_unit_view, DDH_UNIT_VIEW_MIN_SIZE);
DDH_STRUCT_RULE(ddh_batch_args, DDH_BATCH_ARGS_MIN_SIZE);
DDH_STRUCT_RULE(ddh_batch_info, DDH_BATCH_INFO_MIN_SIZE, DDH_RESERVED(ddh_batch_info));
DDH_STRUCT_RULE(ddh_unit_call, DDH_UNIT_CALL_MIN_SIZE, DDH_RESERVED(ddh_unit_call),
                DDH_KNOWN_BITS(ddh_unit_call, flags,
                               DDH_CALL_RECOMPUTED | DDH_CALL_FORWARD_ONLY | DDH_CALL_INPUT_GRAD_ONLY));
DDH_STRUCT_RULE(ddh_grad_block, DDH_GRAD_BLOCK_MIN_SIZE, DDH_RESERVED(ddh_grad_block));
DDH_STRUCT_RULE(ddh_estimate_args, DDH_ESTIMATE_ARGS_MIN_SIZE);
DDH_STRUCT_RULE(ddh_estimate, DDH_ESTIMATE_MIN_SIZE, DDH_RESERVED(ddh_estimate));
DDH_STRUCT_RULE(ddh_sample_args, DDH_SAMPLE_ARGS_MIN_SIZE);

// ---- kind/batch_view.h
DDH_STRUCT_RULE(ddh_sample_part, DDH_SAMPLE_PART_MIN_SIZE);

// ---- kind/optimizer.h, service/optim.h
DDH_STRUCT_RULE(ddh_update_args, DDH_UPDATE_ARGS_MIN_SIZE, DDH_RESERVED(ddh_update_args));
DDH_STRUCT_RULE(ddh_prepare_args, DDH_PREPARE_ARGS_MIN_SIZE);
DDH_STRUCT_RULE(ddh_step_block, DDH_STEP_BLOCK_MIN_SIZE);
DDH_STRUCT_RULE(ddh_decide_args, DDH_DECIDE_ARGS_MIN_SIZE);
DDH_STRUCT_RULE(ddh_optimizer_number, DDH_OPTIMIZER_NUMBER_MIN_SIZE, DDH_RESERVED(ddh_optimizer_number));
DDH_STRUCT_RULE(ddh_slot_desc, DDH_SLOT_DESC_MIN_SIZE, DDH_RESERVED(ddh_slot_desc));
DDH_STRUCT_RULE(ddh_optim_shard, DDH_OPTIM_SHARD_MIN_SIZE, DDH_RESERVED(ddh_optim_shard));

// ---- kind/strategy.h
constexpr uint32_t kKnownOpFlags =
    DDH_OP_GRADS_READY | DDH_OP_RECOMPUTED | DDH_OP_FORWARD_ONLY | DDH_OP_INPUT_GRAD_ONLY;
DDH_STRUCT_RULE(ddh_op, DDH_OP_MIN_SIZE, DDH_RESERVED(ddh_op), DDH_KNOWN_BITS(ddh_op, flags, kKnownOpFlags));
DDH_STRUCT_RULE(ddh_run_program, DDH_RUN_PROGRAM_MIN_SIZE);
DDH_STRUCT_RULE(ddh_attach_args, DDH_ATTACH_ARGS_MIN_SIZE, DDH_KNOWN_BITS(ddh_attach_args, flags, DDH_ATTACH_DRY));
DDH_STRUCT_RULE(ddh_plan, DDH_PLAN_MIN_SIZE, DDH_RESERVED(ddh_plan));
DDH_STRUCT_RULE(ddh_unit_use, DDH_UNIT_USE_MIN_SIZE, DDH_KNOWN_BITS(ddh_unit_use, flags, kKnownOpFlags));
DDH_STRUCT_RULE(ddh_step_begin_args, DDH_STEP_BEGIN_ARGS_MIN_SIZE);
DDH_STRUCT_RULE(ddh_state_entry, DDH_STATE_ENTRY_MIN_SIZE);

// ---- kind/comm.h, kind/device.h
DDH_STRUCT_RULE(ddh_comm_init, DDH_COMM_INIT_MIN_SIZE);
DDH_STRUCT_RULE(ddh_comm_plan, DDH_COMM_PLAN_MIN_SIZE);
DDH_STRUCT_RULE(ddh_device_info, DDH_DEVICE_INFO_MIN_SIZE);
DDH_STRUCT_RULE(ddh_device_usage, DDH_DEVICE_USAGE_MIN_SIZE, DDH_RESERVED(ddh_device_usage));
DDH_STRUCT_RULE(ddh_device_peak, DDH_DEVICE_PEAK_MIN_SIZE);

// ---- kind/format.h
DDH_STRUCT_RULE(ddh_file_tensor, DDH_FILE_TENSOR_MIN_SIZE);
DDH_STRUCT_RULE(ddh_format_info, DDH_FORMAT_INFO_MIN_SIZE);

// ---- kind/schedule.h, kind/monitor.h
DDH_STRUCT_RULE(ddh_schedule_args, DDH_SCHEDULE_ARGS_MIN_SIZE, DDH_RESERVED(ddh_schedule_args));
DDH_STRUCT_RULE(ddh_schedule_number, DDH_SCHEDULE_NUMBER_MIN_SIZE, DDH_RESERVED(ddh_schedule_number));
DDH_STRUCT_RULE(ddh_monitor_args, DDH_MONITOR_ARGS_MIN_SIZE);
DDH_STRUCT_RULE(ddh_row, DDH_ROW_MIN_SIZE, DDH_RESERVED(ddh_row));
DDH_STRUCT_RULE(ddh_event, DDH_EVENT_MIN_SIZE);

// ---- kind/codec.h
DDH_STRUCT_RULE(ddh_codec_args, DDH_CODEC_ARGS_MIN_SIZE, DDH_RESERVED(ddh_codec_args));
DDH_STRUCT_RULE(ddh_codec_state, DDH_CODEC_STATE_MIN_SIZE, DDH_RESERVED(ddh_codec_state));

// ---- service/*.h
DDH_STRUCT_RULE(ddh_alloc_args, DDH_ALLOC_ARGS_MIN_SIZE, DDH_KNOWN_BITS(ddh_alloc_args, flags, DDH_ALLOC_ZERO));
DDH_STRUCT_RULE(ddh_coll, DDH_COLL_MIN_SIZE);
DDH_STRUCT_RULE(ddh_window_args, DDH_WINDOW_ARGS_MIN_SIZE,
                DDH_KNOWN_BITS(ddh_window_args, flags, DDH_WINDOW_PERMANENT));
DDH_STRUCT_RULE(ddh_exchange_args, DDH_EXCHANGE_ARGS_MIN_SIZE, DDH_RESERVED(ddh_exchange_args));
DDH_STRUCT_RULE(ddh_reduce_args, DDH_REDUCE_ARGS_MIN_SIZE, DDH_RESERVED(ddh_reduce_args),
                DDH_KNOWN_BITS(ddh_reduce_args, flags,
                               DDH_REDUCE_ADD | DDH_REDUCE_NORM | DDH_REDUCE_TO_ALL | DDH_REDUCE_LATER));

}  // namespace DDH_HIDDEN
}  // namespace ddh
