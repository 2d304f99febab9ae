// SPDX-License-Identifier: Apache-2.0
#include "engine/services/run_codec.hpp"

#include <cstring>
#include <set>
#include <string>

#include "ddh/kind/strategy.h"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr uint32_t kMostCodecRounds = 64, kMostStates = 1U << 20;

bool is_legal_name(const char* name) {
  return name != nullptr && *name != '\0' &&
         std::strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == std::strlen(name);
}

}  // namespace

uint64_t RunCodec::plan(const ddh_codec_args& args) {
  uint64_t bytes = 0;
  call_(PluginCall::kPlan, table_.plan, inst_, &args, &bytes);
  return bytes;
}

void RunCodec::attach(const ddh_codec_args& args) {
  call_(PluginCall::kAttach, table_.attach, inst_, &args);
  is_attached_ = true;
}

const ddh_param_desc& RunCodec::param_of(int32_t param) const {
  if (param < 0 || static_cast<uint32_t>(param) >= model_.n_params)
    ddh::fail(DDH_OUT_OF_RANGE, "the strategy asks the codec for parameter ", param, " of ", model_.n_params);
  return *model_.params[param];
}

uint32_t RunCodec::max_rounds(int32_t param) const {
  const ddh_param_desc& desc = param_of(param);
  const PluginCaller::Entered entered = call_.enter(PluginCall::kRounds);
  const uint32_t rounds = table_.max_rounds(inst_, param);
  if (rounds > kMostCodecRounds)
    call_.blame(PluginCall::kRounds, {}, "says that parameter '", desc.name, "' has ", rounds, " rounds; the most are ",
                kMostCodecRounds);
  return rounds;
}

uint32_t RunCodec::rounds(int32_t param, int64_t step) const {
  const uint32_t most = max_rounds(param);
  const PluginCaller::Entered entered = call_.enter(PluginCall::kRounds);
  const uint32_t rounds = table_.rounds(inst_, param, step);
  if (rounds > most)
    call_.blame(PluginCall::kRounds, {}, "says that parameter '", param_of(param).name, "' has ", rounds,
                " rounds in step ", step, ", but max_rounds gives ", most);
  return rounds;
}

void RunCodec::require_round(int32_t param, uint32_t round) const {
  if (round >= max_rounds(param))
    ddh::fail(DDH_OUT_OF_RANGE, "the strategy asks the codec for round ", round, " of parameter '",
              param_of(param).name, "', which has ", max_rounds(param));
}

uint64_t RunCodec::message_numel(int32_t param, uint32_t round) const {
  require_round(param, round);
  const PluginCaller::Entered entered = call_.enter(PluginCall::kRounds);
  const uint64_t numel = table_.message_numel(inst_, param, round);
  if (numel > uint64_t{1} << 40)
    call_.blame(PluginCall::kRounds, {}, "says that a message of parameter '", param_of(param).name, "' has ", numel,
                " elements");
  return numel;
}

void RunCodec::encode(int32_t param, uint32_t round, float* grad, float* message) const {
  require_round(param, round);
  call_(PluginCall::kEncode, table_.encode, inst_, param, round, grad, message);
}

void RunCodec::decode(int32_t param, uint32_t round, const float* message, float* grad) const {
  require_round(param, round);
  call_(PluginCall::kDecode, table_.decode, inst_, param, round, message, grad);
}

std::vector<ddh_codec_state> RunCodec::state() const {
  std::vector<ddh_codec_state> out;
  if (!is_attached_ || table_.state_count == nullptr || table_.state == nullptr) return out;
  const uint32_t count = table_.state_count(inst_);
  if (count > kMostStates) call_.blame(PluginCall::kState, {}, "says that it has ", count, " arrays");
  std::set<std::string> seen;
  for (uint32_t i = 0; i < count; ++i) {
    ddh_codec_state& s = out.emplace_back();
    s.struct_size = sizeof s;
    call_(PluginCall::kState, table_.state, inst_, i, &s);
    const auto refuse = [&](const auto&... what) { call_.blame(PluginCall::kState, {}, "array ", i, " ", what...); };
    if (!is_legal_name(s.name)) refuse("has no name of lower case, digits and '_'");
    if (s.param < -1 || s.param >= static_cast<int32_t>(model_.n_params))
      refuse("'", s.name, "' names parameter ", s.param, " of ", model_.n_params);
    if (s.scope != DDH_SCOPE_SHARED && s.scope != DDH_SCOPE_RANK) refuse("'", s.name, "' has scope ", s.scope);
    if (s.data == nullptr || s.numel == 0) refuse("'", s.name, "' has no data");
    if (!seen.insert(ddh::str(s.name, '/', s.param)).second)
      refuse("'", s.name, "' occurs twice for parameter ", s.param);
  }
  return out;
}

}  // namespace ddhost
