// SPDX-License-Identifier: Apache-2.0
#include "ddh/sdk/tier/offload_options.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {

Place place_of(const SectionOptions& options, const std::string& section) {
  const std::string name = options.text(section + ".device");
  if (name == "none") return Place::device;
  if (!options.flag(section + ".pin_memory"))
    fail(
        DDH_FAILED_PRECONDITION, options.key(section),
        ".pin_memory=false: copies from pageable memory can't run during the computation, so offloaded data is always ",
        "pinned; set it to true");
  return name == "nvme" ? Place::nvme : Place::cpu;
}

}  // namespace

OffloadSettings offload_settings(const Host& host, const SectionOptions& options, bool offloads_params) {
  OffloadSettings out;
  out.state = place_of(options, "offload_optimizer");
  out.ratio = options.f64("offload_optimizer.ratio");
  out.overlap = {options.flag("offload_optimizer.pipeline_read"), options.flag("offload_optimizer.pipeline_write")};
  if (offloads_params) {
    out.values = place_of(options, "offload_param");
    out.values_in_memory = static_cast<uint64_t>(options.i64("offload_param.max_in_cpu"));
  }
  out.tile_bytes = Tier::round_up(static_cast<uint64_t>(options.i64("buffer_bytes")));
  out.frames = static_cast<uint32_t>(options.i64("buffer_count"));
  out.memory_bytes = options.i64_if_given("offload_memory_bytes");
  out.memory_option = options.key("offload_memory_bytes");
  out.folder = options.text("nvme_path");
  out.folder_option = options.key("nvme_path");
  out.io = options.text("io");
  out.host_device = host.text("device.plugin") == "cpu";
  return out;
}

void warn_of_idle_options(const Host& host, const SectionOptions& options, const OffloadSettings& settings) {
  const auto warn_if = [&](bool idle, const char* option, const std::string& without) {
    if (idle) host.log(DDH_LOG_WARN, options.key(option), " changes nothing without ", without);
  };
  const bool uses_files = settings.values == Place::nvme || settings.state == Place::nvme;
  warn_if(settings.state == Place::device && settings.ratio != 1, "offload_optimizer.ratio",
          options.key("offload_optimizer.device") + "=cpu or nvme");
  warn_if(settings.values != Place::nvme && settings.values_in_memory > 0, "offload_param.max_in_cpu",
          options.key("offload_param.device") + "=nvme");
  warn_if(!uses_files && !settings.folder.empty(), "nvme_path", "a device=nvme");
  const auto note_if = [&](Place place, const char* option) {
    if (place == Place::cpu && settings.host_device)
      host.log(DDH_LOG_INFO, options.key(option),
               "=cpu saves no memory on the device cpu, whose memory is the host's; ", options.key(option),
               "=nvme saves it");
  };
  note_if(settings.state, "offload_optimizer.device");
  note_if(settings.values, "offload_param.device");
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
