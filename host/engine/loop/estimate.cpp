// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

// False: the model has no estimates.
bool ask(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table, const ddh_estimate_args& args,
         ddh_estimate& out) {
  out = {};
  out.struct_size = sizeof out;
  try {
    call(PluginCall::kEstimate, table.estimate, model, &args, &out);
  } catch (const ddh::Error& error) {
    if (error.code() == DDH_NOT_FOUND) return false;
    throw;
  }
  const auto is_cost = [](double flops) { return std::isfinite(flops) && flops >= 0; };
  if (!is_cost(out.forward_flops) || !is_cost(out.backward_flops))
    call.blame(PluginCall::kEstimate, {}, "estimates ", out.forward_flops, " and ", out.backward_flops,
               " operations for position ", args.position, " of program ", args.program,
               "; they must be finite and not negative");
  return true;
}

}  // namespace

std::optional<WorkEstimate> estimate_program(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table,
                                             const ProgramOps& ops, uint32_t n_samples) {
  if (table.estimate == nullptr) return std::nullopt;
  WorkEstimate sum;
  sum.n_samples = n_samples;
  for (const ddh_op& op : ops.ops()) {
    if (op.phase == DDH_PHASE_RECOMPUTE) continue;
    ddh_estimate one{};
    if (!ask(call, model, table, {sizeof(ddh_estimate_args), ops.program(), op.position, n_samples}, one))
      return std::nullopt;
    if (op.phase == DDH_PHASE_BACKWARD) {
      sum.backward_flops += one.backward_flops;
      continue;
    }
    sum.forward_flops += one.forward_flops;
    if ((op.flags & DDH_OP_FORWARD_ONLY) == 0) sum.activation_bytes += one.activation_bytes;
  }
  return sum;
}

std::optional<double> call_flops(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table,
                                 const UnitWork& work, uint32_t n_samples) {
  ddh_estimate one{};
  if (table.estimate == nullptr ||
      !ask(call, model, table, {sizeof(ddh_estimate_args), work.program, work.position, n_samples}, one))
    return std::nullopt;
  return work.phase == DDH_PHASE_BACKWARD ? one.backward_flops : one.forward_flops;
}

std::optional<uint64_t> peak_activation_bytes(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table,
                                              const ProgramOps& ops, uint32_t n_samples) {
  if (table.estimate == nullptr) return std::nullopt;
  std::map<int32_t, ddh_estimate> positions;
  uint64_t now = 0, peak = 0;
  const auto reaches = [&](uint64_t more) { peak = std::max(peak, now + more); };
  for (const ddh_op& op : ops.ops()) {
    if (op.phase == DDH_PHASE_FORWARD || op.phase == DDH_PHASE_EVAL) {
      ddh_estimate& p = positions[op.position];
      if (!ask(call, model, table, {sizeof(ddh_estimate_args), ops.program(), op.position, n_samples}, p))
        return std::nullopt;
      p.lasting_bytes = std::min(p.lasting_bytes, p.activation_bytes);
      if ((op.flags & DDH_OP_FORWARD_ONLY) != 0) {
        reaches(p.forward_peak_bytes);
        continue;
      }
      reaches(p.activation_bytes + p.forward_peak_bytes);
      now += (op.flags & DDH_OP_RECOMPUTED) != 0 ? p.lasting_bytes : p.activation_bytes;
      continue;
    }
    const ddh_estimate& p = positions.at(op.position);
    if (op.phase == DDH_PHASE_RECOMPUTE) {
      now += p.activation_bytes - p.lasting_bytes;
      reaches(p.forward_peak_bytes);
    } else {
      reaches(p.backward_peak_bytes);
      now -= p.activation_bytes;
    }
  }
  return peak;
}

std::vector<ProgramWork> work_done(const WorkEstimates& estimates, const ddh_model_desc& model,
                                   const std::map<WorkKind, RunOutput::Work>& done) {
  std::vector<ProgramWork> out;
  for (const auto& [kind, work] : done)
    if (const auto found = estimates.find(kind); found != estimates.end())
      out.push_back({model.programs[kind.program]->name, found->second, work.samples, work.ms / 1e3});
  return out;
}

RankPeak rank_peak(const RunConfig& config, const Device& device, int threads) {
  RankPeak peak;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  peak.threads = std::max(1, std::min(threads, cores));  // more threads than cores are not faster
  const std::string compute = config.get<std::string>("precision.compute");
  const int32_t dtype = compute == "bf16" ? DDH_BF16 : compute == "fp16" ? DDH_F16 : DDH_F32;
  const std::optional<ddh_device_peak> one = device.peak(dtype);
  if (!one) return peak;
  peak.flops_per_s = one->flops_per_s * (device.is_host_memory() ? threads : 1);
  peak.type = one->dtype == DDH_BF16 ? "bf16" : one->dtype == DDH_F16 ? "fp16" : "fp32";
  return peak;
}

}  // namespace ddhost
