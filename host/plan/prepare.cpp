// SPDX-License-Identifier: Apache-2.0
//
// plan/prepare.cpp: plugins and configuration of a run.
#include "plan/prepare.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "config/compat.hpp"
#include "config/run_length.hpp"
#include "config/words.hpp"
#include "ddh/kind/codec.h"
#include "ddh/kind/comm.h"
#include "ddh/kind/device.h"
#include "ddh/kind/optimizer.h"
#include "ddh/sdk/plugin.hpp"
#include "engine/record/profile/step_profile.hpp"
#include "plan/ask_device.hpp"
#include "plan/load_guard.hpp"
#include "plan/replaced_plugins.hpp"
#include "plan/run_folder.hpp"
#include "plan/transports.hpp"
#include "plugin/capabilities.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// A plugin of the run, its section of options, and the option that chooses it.
struct Role {
  int32_t kind;
  std::string section;
  Plugin* plugin;
  std::string key = section + ".plugin";
};
std::vector<Role> roles_of(PreparedRun& plan) {
  const auto role = [](int32_t kind, Plugin& plugin) { return Role{kind, kind_name(kind), &plugin}; };
  std::vector<Role> roles = {role(DDH_KIND_MODEL, plan.model), role(DDH_KIND_STRATEGY, plan.strategy)};
  for (RunPlan::Optimizer& optimizer : plan.optimizers)
    roles.push_back({DDH_KIND_OPTIMIZER, optimizer.section, &optimizer.plugin});
  roles.push_back({DDH_KIND_COMM, "comm", &plan.comm, plan.comm_key});
  if (plan.wants_inside_comm) roles.push_back({DDH_KIND_COMM, kInsideCommSection, &plan.inside_comm, "comm.inside"});
  if (plan.has_host_comm()) roles.push_back({DDH_KIND_COMM, kHostCommSection, &plan.host_comm, "comm.host"});
  if (plan.wants_codec) roles.push_back(role(DDH_KIND_CODEC, plan.codec));
  roles.push_back(role(DDH_KIND_DEVICE, plan.device));
  roles.push_back({DDH_KIND_SCHEDULE, "schedule", &plan.schedule, "schedule.type"});
  for (RunPlan::PhaseSchedule& schedule : plan.phase_schedules)
    roles.push_back({DDH_KIND_SCHEDULE, schedule.section, &schedule.plugin, schedule.section + ".type"});
  return roles;
}

// The base of a relative path. The user's last value wins, under any name of the option.
fs::path base_of(const UserConfig& user, const Role& role) {
  const auto& wishes = user.wishes();
  const auto last = std::find_if(wishes.rbegin(), wishes.rend(), [&](const Wish& wish) {
    return !wish.value.is_null() && !wish.replaced && (wish.key == role.key || wish.key == role.section + ".plugin");
  });
  return last == wishes.rend() ? fs::current_path() : last->base;
}

// Where plugins come from. What the command line replaces is marked in `user`.
struct Source {
  UserConfig& user;
  const Config& choices;
  Registry& registry;
  LoaderRecord* record;
};

// The plugin that `key` chooses. Another program's name for one gets ours.
Plugin find_choice(const Source& source, int32_t kind, const std::string& key, const std::string& choice,
                   const fs::path& base) {
  const LoadGuard guard(source.record, ddh::str("loading ", kind_name(kind), " '", choice, "'"));
  try {
    return source.registry.find(kind, choice, base);
  } catch (const ddh::Error& error) {
    const std::string ours = error.code() == DDH_NOT_FOUND ? our_value(key, choice) : "";
    if (ours.empty() || ours == key + "=" + choice) throw;
    ddh::fail(error.code(), "there is no ", kind_name(kind), " '", choice, "'; here it is ", ours);
  }
}

Plugin find_plugin(const Source& source, const Role& role) {
  return find_choice(source, role.kind, role.key, source.choices.text(role.key), base_of(source.user, role));
}

// The user of a device that `auto` chose may not know that there is another.
Plugin find_device(const Source& source, const Role& role, const DeviceChoice& choice) {
  try {
    return find_plugin(source, role);
  } catch (const ddh::Error& error) {
    if (choice.reason.empty()) throw;
    ddh::fail(error.code(), error.what(), "; device.plugin=auto chose it: ", choice.reason, "; --device ",
              linked_device(source.registry), " computes without it");
  }
}

std::vector<const Plugin*> plugins_of(PreparedRun& plan) {
  std::vector<const Plugin*> all;
  for (const Role& role : roles_of(plan)) all.push_back(role.plugin);
  for (const RunPlan::Optimizer& follower : plan.followers) all.push_back(&follower.plugin);
  for (const Plugin& monitor : plan.monitors) all.push_back(&monitor);
  return all;
}

void note_replaced(PreparedRun& plan, const std::string& sentence) {
  if (!sentence.empty()) plan.replaced.push_back(sentence);
}

// A transport of the device's memory works beside one of host memory, which has options of its own.
void add_host_comm(const Source& source, PreparedRun& plan, std::vector<Section>& sections) {
  if (plan.device.has_cap(DDH_CAP_HOST_MEMORY))
    ddh::fail(DDH_FAILED_PRECONDITION, "comm '", plan.comm.id(), "' exchanges memory of a device, but device '",
              plan.device.id(), "' has host memory alone; choose another ",
              "--device (there are: ", source.registry.names_of(DDH_KIND_DEVICE), ") or another --comm");
  plan.host_comm = find_plugin(source, {DDH_KIND_COMM, kHostCommSection, &plan.host_comm, "comm.host"});
  if (plan.host_comm.has_cap(DDH_CAP_DEVICE_BUFFERS) || plan.host_comm.has_cap(DDH_CAP_RANKS_ARE_THREADS))
    ddh::fail(DDH_FAILED_PRECONDITION, "comm.host '", plan.host_comm.id(), "' does not exchange host memory between ",
              "processes, which comm '", plan.comm.id(), "' needs beside it; choose another comm.host");
  sections.push_back({kHostCommSection, {}, ""});
  note_replaced(plan, replace_options(source.user, sections, {plan.host_comm, kHostCommSection, "comm.host"}));
  add_plugin_options(sections, kHostCommSection, plan.host_comm.desc->config_schema,
                     "comm '" + plan.host_comm.id() + "'");
}

// The plugins of monitor.plugins, their options, and their full paths for the effective configuration.
std::vector<std::string> find_monitors(const Source& source, PreparedRun& plan, std::vector<Section>& sections) {
  const Wish* wish = source.user.find("monitor.plugins");
  std::vector<std::string> full_names;
  for (const auto& choice : source.choices.get<std::vector<std::string>>("monitor.plugins")) {
    const Plugin plugin = find_choice(source, DDH_KIND_MONITOR, "monitor.plugins", choice,
                                      wish == nullptr ? fs::current_path() : wish->base);
    const std::string id = plugin.id();
    if (std::any_of(plan.monitors.begin(), plan.monitors.end(), [&](const Plugin& other) { return other.id() == id; }))
      ddh::fail(DDH_ALREADY_EXISTS, "monitor.plugins names the monitor '", id, "' twice; leave one of them out");
    add_plugin_options(sections, "monitor", plugin.desc->config_schema, "monitor '" + id + "'", id + ".");
    full_names.push_back(parse_choice(choice).is_path ? plugin.file.string() + ":" + id : choice);
    plan.monitors.push_back(plugin);
  }
  note_replaced(plan, replace_monitor_options(source.user, host_sections(), plan.monitors));
  return full_names;
}

// The plugins of train.followers, their options, and their full paths for the effective configuration.
std::vector<std::string> find_followers(const Source& source, PreparedRun& plan, std::vector<Section>& sections) {
  const Wish* wish = source.user.find("train.followers");
  std::vector<std::string> full_names;
  for (const auto& choice : source.choices.get<std::vector<std::string>>("train.followers")) {
    const LoadGuard guard(source.record, "loading follower '" + choice + "'");
    const Plugin plugin =
        source.registry.find(DDH_KIND_OPTIMIZER, choice, wish == nullptr ? fs::current_path() : wish->base);
    const std::string id = plugin.id(), section = std::string(kFollower) + id;
    if (!plugin.has_cap(DDH_CAP_FOLLOWS))
      ddh::fail(DDH_FAILED_PRECONDITION, "train.followers names optimizer '", id,
                "', which does not follow another one (it lacks DDH_CAP_FOLLOWS); name it in --optimizer");
    if (std::any_of(plan.followers.begin(), plan.followers.end(),
                    [&](const RunPlan::Optimizer& other) { return other.section == section; }))
      ddh::fail(DDH_ALREADY_EXISTS, "train.followers names '", id, "' twice; leave one of them out");
    add_plugin_options(sections, "follower", plugin.desc->config_schema, "follower '" + id + "'", id + ".");
    full_names.push_back(parse_choice(choice).is_path ? plugin.file.string() + ":" + id : choice);
    plan.followers.push_back({section, plugin});
  }
  return full_names;
}

// Makes the path absolute, so the effective configuration means the same plugin from any folder.
void name_plugin_by_full_path(Config& config, const Role& role) {
  const Plugin& plugin = *role.plugin;
  const Config::Value given = *config.find(role.key);
  if (parse_choice(given.value.get<std::string>()).is_path)
    config.set(role.key, plugin.file.string() + ":" + plugin.id(), given.source);
}

// Optimizers and followers.
std::vector<RunPlan::Optimizer> updaters_of(const PreparedRun& plan) {
  std::vector<RunPlan::Optimizer> all = plan.optimizers;
  all.insert(all.end(), plan.followers.begin(), plan.followers.end());
  return all;
}

void check_threads(PreparedRun& plan) {
  if (!plan.ranks_are_threads || plan.world_size == 1) return;
  std::vector<const Plugin*> all;
  for (const Role& role : roles_of(plan)) all.push_back(role.plugin);
  for (const RunPlan::Optimizer& follower : plan.followers) all.push_back(&follower.plugin);
  for (const Plugin* one : all) {
    const Plugin& plugin = *one;
    if (plugin.has_cap(DDH_CAP_IN_PROCESS)) continue;
    ddh::fail(DDH_FAILED_PRECONDITION, kind_name(plugin.desc->kind), " '", plugin.id(),
              "' can't run several ranks in one process, which comm '", plan.comm.id(),
              "' requires; choose another --comm or --nproc 1");
  }
}

// "cuda, rocm"
std::string list_text(const char* const* list) {
  std::string text;
  for (; *list != nullptr; ++list) text += (text.empty() ? "" : ", ") + std::string(*list);
  return text;
}

// Whether the model computes with a native API of the device, or on the host in memory that the host reaches.
bool shares_api(const PreparedRun& plan) {
  if (plan.device.has_cap(DDH_CAP_HOST_REACHABLE))
    for (const char* const* known = plan.model.desc->native_apis; *known != nullptr; ++known)
      if (std::strcmp(*known, "host") == 0) return true;
  for (const char* const* of = plan.device.desc->native_apis; of != nullptr && *of != nullptr; ++of)
    for (const char* const* known = plan.model.desc->native_apis; *known != nullptr; ++known)
      if (std::strcmp(*of, *known) == 0) return true;
  return false;
}

// On a device with its own memory, strategies and models must access that memory in stream order
// (DDH_CAP_STREAM_ORDERED).
void check_device(const PreparedRun& plan) {
  if (plan.device.has_cap(DDH_CAP_HOST_MEMORY)) return;
  for (const Plugin* plugin : {&plan.strategy, &plan.model}) {
    if (plugin->has_cap(DDH_CAP_STREAM_ORDERED)) continue;
    ddh::fail(DDH_FAILED_PRECONDITION, kind_name(plugin->desc->kind), " '", plugin->id(),
              "' computes in host memory and cannot use device '", plan.device.id(),
              "'; choose a device with host memory, or another ", kind_name(plugin->desc->kind));
  }
  if (const char* const* const known = plan.model.desc->native_apis; known != nullptr && !shares_api(plan))
    ddh::fail(DDH_FAILED_PRECONDITION, "model '", plan.model.id(), "' computes in host memory and on devices of ",
              list_text(known), ", and device '", plan.device.id(),
              "' is not one of these; choose another --device, or another --model",
              plan.device_reason.empty() ? "" : " (device.plugin=auto chose the device: " + plan.device_reason + ")");
  if (plan.device.has_cap(DDH_CAP_HOST_REACHABLE)) return;
  for (const RunPlan::Optimizer& optimizer : updaters_of(plan)) {
    if (optimizer.plugin.has_cap(DDH_CAP_KERNELS)) continue;
    ddh::fail(DDH_FAILED_PRECONDITION, "optimizer '", optimizer.plugin.id(),
              "' has no kernels for devices and computes on the host, which can't reach the memory of device '",
              plan.device.id(), "'; choose another --optimizer or another --device");
  }
}

// Codecs read and write gradients in host memory, and their messages are sums in fp32. The error of earlier steps that a codec
// may keep has the loss scale of its step.
void check_codec(const PreparedRun& plan) {
  if (!plan.has_codec()) return;
  const std::string who = "codec '" + plan.codec.id() + "' ", cure = "; leave out --codec";
  const char* const* want = plan.strategy.desc->wants;
  while (want != nullptr && *want != nullptr && std::strcmp(*want, DDH_CODECS_IFACE) != 0) ++want;
  if (want == nullptr || *want == nullptr)
    ddh::fail(DDH_FAILED_PRECONDITION, who, "can't be used with strategy '", plan.strategy.id(),
              "', which applies no codec ('", DDH_CODECS_IFACE, "' is not in its `wants`)", cure,
              ", or choose another --strategy");
  if (!plan.device.has_cap(DDH_CAP_HOST_MEMORY))
    ddh::fail(DDH_FAILED_PRECONDITION, who, "computes in host memory, and device '", plan.device.id(),
              "' has memory of its own", cure, ", or choose another --device");
  if (plan.config.text("precision.reduce_dtype") == "bf16")
    ddh::fail(DDH_INVALID_ARGUMENT, who, "sums messages in fp32, and precision.reduce_dtype=bf16 rounds gradients",
              cure, ", or set precision.reduce_dtype=fp32");
  if (plan.config.text("precision.compute") == "fp16")
    ddh::fail(DDH_INVALID_ARGUMENT, who,
              "keeps what it left out of earlier gradients, and precision.compute=fp16 changes ",
              "their scale from step to step", cure, ", or set precision.compute to bf16 or fp32");
}

// Clipping is by norm or by value. With clip_value the default of clip_norm becomes 0, so a dry run prints a valid
// config file.
void settle_clipping(PreparedRun& plan) {
  const double value = plan.config.get<double>("train.clip_value"), norm = plan.config.get<double>("train.clip_norm");
  if (norm > 0 && norm < std::numeric_limits<float>::min())
    ddh::fail(DDH_INVALID_ARGUMENT, "train.clip_norm=", norm,
              " clips every gradient to zero; give 0 (no clipping) or a ", "larger number");
  if (value == 0) return;
  if (static_cast<float>(value) < std::numeric_limits<float>::min() || std::isinf(static_cast<float>(value)))
    ddh::fail(DDH_INVALID_ARGUMENT, "train.clip_value=", value,
              " is outside the range of fp32; give 0 or a number from 1e-37 to 1e38");
  for (const RunPlan::Optimizer& optimizer : plan.optimizers) {
    if (optimizer.plugin.has_cap(DDH_CAP_CLIP_VALUE)) continue;
    ddh::fail(DDH_FAILED_PRECONDITION, "optimizer '", optimizer.plugin.id(), "' does not clip by value; leave out ",
              "train.clip_value=", value, " or choose another optimizer");
  }
  if (norm > 0 && plan.config.find("train.clip_norm")->source != "default")
    ddh::fail(DDH_INVALID_ARGUMENT, "train.clip_value=", value, " and train.clip_norm=", norm,
              " exclude each other; leave one out");
  plan.config.set("train.clip_norm", 0.0, "derived");
}

// For `eval` and `generate`: an evaluation takes every sample, unless the user gave train.eval_batches.
void settle_use(PreparedRun& plan) {
  if (plan.config.json("train.init_from") == "\"\"")
    ddh::fail(DDH_INVALID_ARGUMENT, plan.work == Work::kEvaluate ? "ddhost eval" : "ddhost generate",
              " needs a trained model; give --weights FILE.safetensors");
  if (plan.config.find("train.eval_batches")->source == "default") plan.config.set("train.eval_batches", 0, "derived");
}

// Finds the plugins of the run, and the configuration with their options.
Config find_plugins(UserConfig& user, Registry& registry, const DeviceChoice& device, LoaderRecord* record,
                    PreparedRun& plan) {
  const std::vector<Section> of_host = run_sections(user);
  Config choices(user, of_host, /*plugin_sections=*/false);
  if (!device.reason.empty()) choices.set("device.plugin", device.plugin, "derived");
  settle_auto_transports(choices);
  plan.device_reason = device.reason;
  plan.wants_codec = choices.text("codec.plugin") != "none";
  const std::string transport = choose_transport(choices, plan);
  const Source source{user, choices, registry, record};
  std::vector<CompatTable> tables = compat_tables();
  for (CompatTable& table : compat_tables_in(registry.name_folders())) tables.push_back(std::move(table));
  std::vector<Section> sections = of_host;
  if (plan.wants_inside_comm) sections.push_back({kInsideCommSection, {}, ""});
  for (const std::string& section : optimizer_sections(user)) plan.optimizers.push_back({section, {}});
  for (const std::string& section : schedule_sections(user)) plan.phase_schedules.push_back({section, {}});
  // Before the first library is loaded: it may bring along one that another plugin names.
  std::vector<Registry::Wanted> wanted;
  for (const Role& role : roles_of(plan)) wanted.push_back({role.kind, choices.text(role.key), base_of(user, role)});
  registry.set_variables_of(wanted);
  for (const Role& role : roles_of(plan)) {
    Plugin& plugin = *role.plugin;
    plugin = role.kind == DDH_KIND_DEVICE ? find_device(source, role, device) : find_plugin(source, role);
    if (role.plugin == &plan.comm && role.key != "comm.plugin")
      note_replaced(plan, replace_options(user, of_host, {plugin, role.section, "comm.plugin"}));
    note_replaced(plan, replace_options(user, sections, {plugin, role.section, role.key}));
    add_plugin_options(sections, role.section, plugin.desc->config_schema,
                       kind_name(role.kind) + " '" + plugin.id() + "'");
    if (role.kind == DDH_KIND_STRATEGY) plan.strategy_is_own = registry.is_own(plugin.file);
    add_foreign_names(sections, role.section, kind_name(role.kind), plugin.id(), tables);
  }
  if (plan.comm.has_cap(DDH_CAP_DEVICE_BUFFERS))
    add_host_comm(source, plan, sections);
  else
    note_replaced(plan, replace_host_comm_options(user, of_host, plan.comm));
  note_replaced(plan, replace_other_transports(user, sections, plan.comm, plan.wants_inside_comm));
  const std::vector<std::string> followers = find_followers(source, plan, sections);
  const std::vector<std::string> monitors = find_monitors(source, plan, sections);
  Config config(user, sections);
  config.set("train.followers", followers, config.find("train.followers")->source);
  config.set("monitor.plugins", monitors, config.find("monitor.plugins")->source);
  if (!device.reason.empty()) config.set("device.plugin", device.plugin, "derived");
  settle_auto_transports(config);
  if (!transport.empty()) config.set("comm.plugin", transport, "derived");
  return config;
}

void check_memory_copies(const PreparedRun& plan) {
  if (plan.work != Work::kTrain || plan.config.get<int64_t>("checkpoint.memory_copies") == 1) return;
  if (plan.n_hosts() == 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "checkpoint.memory_copies=2 needs a second host for the copies, and this run has ",
              "one; set it to 1, or give a hostfile with more hosts");
  if (plan.config.get<int64_t>("checkpoint.memory_every") == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "checkpoint.memory_copies=2 copies what checkpoint.memory_every keeps, and that ",
              "is 0; set it too");
}

// Completes the configuration, and refuses plugins that do not fit together.
void settle(PreparedRun& plan) {
  for (const RunPlan::Optimizer& optimizer : plan.optimizers) {
    if (optimizer.plugin.has_cap(DDH_CAP_FOLLOWS))
      ddh::fail(DDH_FAILED_PRECONDITION, "optimizer '", optimizer.plugin.id(),
                "' only follows another one; name it in train.followers, and another --optimizer");
    if (plan.config.find(optimizer.section + ".lr") != nullptr) continue;
    ddh::fail(DDH_FAILED_PRECONDITION, "optimizer '", optimizer.plugin.id(),
              "' has no option 'lr', from which the host computes the learning rate of a step; fix the plugin");
  }
  settle_clipping(plan);
  require_profile_steps(plan.config.get<std::string>("profile.steps"));
  settle_run_length(plan.config, plan.work == Work::kTrain);
  for (const Role& role : roles_of(plan)) name_plugin_by_full_path(plan.config, role);
  if (!plan.wants_inside_comm) name_plugin_by_full_path(plan.config, {DDH_KIND_COMM, "comm", &plan.comm});
  if (plan.config.find("run.nproc")->value.is_null()) plan.config.set("run.nproc", plan.world_size, "derived");
  plan.ranks_per_node = static_cast<int>(plan.config.get<int64_t>("run.ranks_per_node"));
  if (plan.ranks_per_node > 0 && plan.world_size % plan.ranks_per_node != 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "run.ranks_per_node=", plan.ranks_per_node, " does not divide the ",
              plan.world_size, " ranks into equal nodes; change it or --nproc");
  plan.ranks_are_threads = plan.comm.has_cap(DDH_CAP_RANKS_ARE_THREADS);
  check_transports(plan);
  check_memory_copies(plan);
  check_threads(plan);
  check_device(plan);
  check_codec(plan);
  for (const Plugin* plugin : plugins_of(plan))
    for (const Plugin* other : {&plan.strategy, &plan.comm})
      if (plugin->desc != other->desc) check_feature_ids(*plugin, *other);
  check_features(plan.model, plan.strategy);
  for (const RunPlan::Optimizer& optimizer : updaters_of(plan)) check_features(optimizer.plugin, plan.strategy);
  if (plan.work != Work::kTrain) settle_use(plan);
}

// The base of a relative path in device.plugin.
fs::path base_of_device(const UserConfig& user) {
  Plugin none;
  return base_of(user, {DDH_KIND_DEVICE, "device", &none});
}

// The threads that the libraries of the run's plugins use, or the share of the cores.
int threads_per_rank(PreparedRun& plan, int share) {
  for (const Plugin* plugin : plugins_of(plan))  // the model is the first
    for (const ForeignLibrary& library : libraries_of(*plugin->module->build))
      if (const int threads = threads_of(library); threads > 0) return threads;
  return share;
}

// The instructions that the linked devices use. Error: this machine can't keep the limit.
std::string linked_instructions(const Registry& registry, const std::string& limit) {
  std::string text;
  for (const Plugin& plugin : registry.built_in()) {
    if (plugin.desc->kind != DDH_KIND_DEVICE) continue;
    const std::string more = instructions_of_linked(plugin, limit);
    if (!more.empty()) text += (text.empty() ? "" : ", ") + more;
  }
  return text;
}

// Those of the run's device, if it is not linked; "" also where it can't be asked before it has its options.
std::string device_instructions(const PreparedRun& plan, const Registry& registry, const std::string& limit) {
  const std::vector<Plugin> linked = registry.built_in();
  const auto is_device = [&](const Plugin& plugin) { return plugin.desc == plan.device.desc; };
  if (std::any_of(linked.begin(), linked.end(), is_device)) return "";
  for (const DeviceAnswer& answer : ask_devices(plan.device.file, registry.lookup(), limit))
    if (answer.plugin == plan.device.id() && !answer.instructions.empty()) return ", " + answer.instructions;
  return "";
}

// " MKL_ENABLE_INSTRUCTIONS=AVX2": what limits single libraries of the run's plugins.
std::string library_limits(PreparedRun& plan, const std::string& limit) {
  std::string text;
  std::set<std::string> named;
  for (const Plugin* plugin : plugins_of(plan))
    for (const ForeignLibrary& library : libraries_of(*plugin->module->build))
      if (named.insert(library.name).second) text += other_limits(library, limit);
  return text;
}

std::string instruction_limit() {
  const char* const given = std::getenv("DDHOST_CPU");
  return given == nullptr ? "" : given;
}

}  // namespace

RunPlace choose_place(const UserConfig& user, const Registry& registry, const Cluster* cluster, int most) {
  const Config config(user, run_sections(user), /*plugin_sections=*/false);
  RunPlace place;
  place.device = choose_device(config, registry, base_of_device(user), [&](const fs::path& file) {
    return ask_devices(file, registry.lookup(), instruction_limit());
  });
  if (cluster != nullptr) {
    const Nodes& nodes = *cluster->nodes();
    place.world_size = nodes.world_size();
    const RankRange mine = cluster->mine();
    place.local_size = mine.count == 0 ? 1 : nodes.sizes()[static_cast<size_t>(nodes.node(mine.first))];
    place.has_other_launchers = true;
    if (nodes.count() > 1) place.ranks_of_hosts = nodes.sizes();
    return place;
  }
  // Without a hostfile this host is the only one, so that its ranks are all ranks.
  const int64_t of_this_host =
      config.text("launch.hostfile").empty() ? config.get<int64_t>("launch.nproc_per_node") : 0;
  std::optional<int64_t> given;
  if (!config.find("run.nproc")->value.is_null())
    given = config.get<int64_t>("run.nproc");
  else if (of_this_host > 0)
    given = of_this_host;
  place.world_size = resolve_world_size(given, place.device, most);
  return place;
}

PreparedRun prepare_run(UserConfig user, Registry& registry, const RunPlace& place, Work work, LoaderRecord* record) {
  PreparedRun plan;
  plan.work = work;
  plan.find_optimizer = [&registry, mutex = std::make_shared<std::mutex>()](const std::string& id) {
    const std::lock_guard lock(*mutex);
    return registry.find(DDH_KIND_OPTIMIZER, id, fs::current_path());
  };
  plan.world_size = place.world_size;
  plan.has_other_launchers = plan.memory_by_host = place.has_other_launchers;
  plan.ranks_of_hosts = place.ranks_of_hosts;
  const std::string limit = instruction_limit(), instructions = linked_instructions(registry, limit);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int share = std::max(1, cores / (place.local_size > 0 ? place.local_size : place.world_size));
  registry.set_limits({share, limit});
  plan.config = find_plugins(user, registry, place.device, record, plan);
  plan.threads_per_rank = threads_per_rank(plan, share);
  plan.instruction_set = instructions + device_instructions(plan, registry, limit) + library_limits(plan, limit);
  in_words_of_user(plan.config, [&] {
    settle(plan);
    if (work != Work::kTrain) return;
    plan.wish = resume_wish(user, plan.config);
    choose_run_folder(plan);
  });
  return plan;
}

}  // namespace ddhost
