// SPDX-License-Identifier: Apache-2.0
#include "engine/calls/rank_record.hpp"

namespace ddhost {
namespace {

struct CallFacts {
  const char* name;
  bool waits_for_ranks = false;
  bool is_preparation = false;
};

// In the order of PluginCall.
constexpr std::array<CallFacts, static_cast<size_t>(PluginCall::kCount)> kFacts = {{
    {"no call"},
    {"create", false, true},
    {"get_interface"},
    {"destroy"},
    {"attach", false, true},
    {"plan"},
    {"materialize", false, true},
    {"step_begin"},
    {"acquire"},
    {"release"},
    {"next_block"},
    {"grads_ready"},
    {"step"},
    {"state"},
    {"state_read"},
    {"state_write"},
    {"trains_later"},
    {"rhythm"},
    {"settle"},
    {"state_commit"},
    {"slot"},
    {"needs"},
    {"prepare", false, true},
    {"update"},
    {"migrate"},
    {"show"},
    {"describe", false, true},
    {"batch_create"},
    {"batch_destroy"},
    {"forward"},
    {"backward"},
    {"gradient_block"},
    {"metrics"},
    {"discard"},
    {"derive"},
    {"contribution"},
    {"estimate"},
    {"begin (ddh.sampler)"},
    {"next (ddh.sampler)"},
    {"text (ddh.sampler)"},
    {"view (ddh.batch_view)"},
    {"init", true, true},
    {"group_info"},
    {"group_create", true},
    {"all_reduce", true},
    {"reduce_scatter", true},
    {"all_gather", true},
    {"broadcast", true},
    {"all_to_all", true},
    {"send", true},
    {"recv", true},
    {"barrier", true},
    {"ordered_sum", true},
    {"a collective", true},
    {"buffer_allocate", true},
    {"buffer_release"},
    {"poll"},
    {"region_create", true},
    {"marks_create", true},
    {"mark_wait", true},
    {"abort"},
    {"finalize", true},
    {"open", false, true},
    {"allocate"},
    {"copy"},
    {"synchronize"},
    {"work"},
    {"lr"},
    {"step_done"},
    {"observe"},
    {"number"},
    {"begin", false, true},
    {"row"},
    {"event"},
    {"end"},
    {"rounds"},
    {"encode"},
    {"decode"},
}};

const CallFacts& facts(PluginCall call) {
  const auto at = static_cast<size_t>(call);
  return kFacts[at < kFacts.size() ? at : 0];
}

}  // namespace

const char* call_name(PluginCall call) { return facts(call).name; }
bool waits_for_ranks(PluginCall call) { return facts(call).waits_for_ranks; }
bool is_preparation(PluginCall call) { return facts(call).is_preparation; }

}  // namespace ddhost
