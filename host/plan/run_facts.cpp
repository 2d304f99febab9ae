// SPDX-License-Identifier: Apache-2.0
#include "plan/run_facts.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/text.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "engine/record/run_history.hpp"

namespace ddhost {
namespace {

// "model name : AMD EPYC 9R14"; other processors have other fields, or none.
std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

Json machine(const PreparedRun& run) {
  utsname names{};
  static_cast<void>(::uname(&names));
  const auto memory = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return {{"host", plain_text(names.nodename)},
          {"system", plain_text(ddh::str(names.sysname, " ", names.release, " ", names.machine))},
          {"processor", plain_text(processor())},
          {"instructions", run.instruction_set},
          {"cores", std::thread::hardware_concurrency()},
          {"threads_per_rank", run.threads_per_rank},
          {"memory_bytes", memory}};
}

Json plugins(const PreparedRun& run) {
  Json out = Json::array();
  const auto add = [&](const Plugin& plugin) {
    const ddh_desc& desc = *plugin.desc;
    out.push_back({{"kind", kind_name(desc.kind)},
                   {"id", plugin.id()},
                   {"version", desc.version},
                   {"file", plain_text(plugin.file.string())}});
    for (const auto& [key, text] :
         {std::pair("vendor", desc.vendor), std::pair("url", desc.url), std::pair("license", desc.license)})
      if (text != nullptr && *text != '\0') out.back()[key] = plain_text(text);
  };
  add(run.model);
  add(run.strategy);
  for (const RunPlan::Optimizer& optimizer : run.optimizers) add(optimizer.plugin);
  for (const RunPlan::Optimizer& follower : run.followers) add(follower.plugin);
  add(run.schedule);
  for (const RunPlan::PhaseSchedule& schedule : run.phase_schedules) add(schedule.plugin);
  add(run.comm);
  if (run.has_host_comm()) add(run.host_comm);
  if (run.has_inside_comm()) add(run.inside_comm);
  if (run.has_codec()) add(run.codec);
  add(run.device);
  for (const Plugin& monitor : run.monitors) add(monitor);
  return out;
}

}  // namespace

std::string run_facts(const PreparedRun& run, const std::vector<std::string>& warnings) {
  Json facts = {{"launcher", ::getppid()}, {"began", time_text()}, {"version", DDHOST_VERSION}};
  facts["machine"] = machine(run);
  facts["plugins"] = plugins(run);
  facts["given"] = run.config.given();
  facts["warnings"] = Json::array();
  for (const std::string& warning : warnings) facts["warnings"].push_back(plain_text(warning));
  return json_line(facts);
}

}  // namespace ddhost
