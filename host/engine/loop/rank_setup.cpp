// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/rank_setup.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/checkpoint_layout.hpp"
#include "checkpoint/host_parts.hpp"
#include "engine/checks/rhythm.hpp"
#include "engine/loop/checkpoint_settings.hpp"
#include "engine/loop/estimate.hpp"
#include "engine/loop/evaluations.hpp"
#include "engine/services/optim/optimizers.hpp"
#include "engine/settings/eval_weights.hpp"
#include "engine/settings/model_settings.hpp"
#include "engine/state/buffers.hpp"
#include "engine/state/checkpoint_tensors.hpp"

namespace ddhost {

RankSetup::RankSetup(const RunPlan& plan, std::unique_ptr<RunConfig> config, std::shared_ptr<spdlog::logger> log,
                     const RankSeat& seat)
    : plan_(plan),
      services_(seat, std::move(config), std::move(log)),
      device_seat_(services_, "device:" + plan.device.id(), "", plan.device.desc),
      comm_seat_(services_, "comm:" + plan.comm.id(), "", plan.comm.desc),
      host_comm_seat_(services_, plan.has_host_comm() ? "comm:" + plan.host_comm.id() : "comm", "comm_host",
                      plan.host_comm.desc),
      inside_comm_seat_(services_, plan.has_inside_comm() ? "comm:" + plan.inside_comm.id() : "comm",
                        kInsideCommSection, plan.inside_comm.desc),
      model_seat_(services_, "model:" + plan.model.id(), "", plan.model.desc),
      strategy_seat_(services_, "strategy:" + plan.strategy.id(), "", plan.strategy.desc),
      codec_seat_(services_, plan.has_codec() ? "codec:" + plan.codec.id() : "codec", "", plan.codec.desc) {
  for (const std::string& address : seat.nodes->addresses()) addresses_.push_back(address.c_str());
}

uint32_t RankSetup::reduce_block() const {
  return std::max(1U, static_cast<uint32_t>(config().get<int64_t>("train.reduce_block")));
}
bool RankSetup::sums_in_bf16() const { return config().get<std::string>("precision.reduce_dtype") == "bf16"; }

void RankSetup::open_device() {
  device_ = make(plan_.device, device_seat_, "device");
  const auto& table = device_.require<ddh_device_api>(DDH_DEVICE_IFACE, DDH_DEVICE_API_MIN_SIZE);
  services_.device = std::make_unique<Device>(device_.get(), table, plan_.device.desc->caps, plan_.device.id(),
                                              services_.seat.local_rank(), device_.caller());
  services_.memory.use(*services_.device);
  services_.staging = std::make_unique<Staging>(services_.memory);
}

ddh_comm_init RankSetup::comm_init(const ddh_device_info& device) const {
  const RankSeat& seat = services_.seat;
  const size_t n_addresses = addresses_.size();
  return {sizeof(ddh_comm_init),
          seat.rank,
          seat.world_size(),
          reduce_block(),
          seat.run_id,
          seat.node(),
          seat.local_rank(),
          seat.nodes->ranks_per_node(),
          static_cast<uint32_t>(seat.nodes->count()),
          &device,
          seat.nodes->node_of().data(),
          n_addresses == 0 ? nullptr : addresses_[static_cast<size_t>(seat.node())],
          n_addresses == 0 ? nullptr : addresses_.data(),
          static_cast<uint32_t>(config().get<double>("launch.timeout") * 1000),
          0};
}

const ddh_comm_backend_api* RankSetup::join_over(const Instance& comm) const {
  const auto& table = comm.require<ddh_comm_backend_api>(DDH_COMM_BACKEND_IFACE, DDH_COMM_BACKEND_API_MIN_SIZE);
  const ddh_device_info device = services_.device->info();
  const ddh_comm_init init = comm_init(device);
  comm.call(PluginCall::kInit, table.init, &init);
  return &table;
}

const ddh_comm_backend_api* RankSetup::join_inside() {
  inside_comm_ = make(plan_.inside_comm, inside_comm_seat_, kInsideCommSection);
  const auto& inside =
      inside_comm_.require<ddh_comm_backend_api>(DDH_COMM_BACKEND_IFACE, DDH_COMM_BACKEND_API_MIN_SIZE);
  const ddh_device_info device = services_.device->info();
  const InitInside init(comm_init(device), *services_.seat.nodes);
  inside_comm_.call(PluginCall::kInit, inside.init, &init.get());
  return &inside;
}

void RankSetup::make_layers(const ddh_comm_backend_api& inside, const ddh_comm_backend_api& between) {
  const ddh_comm_shared_api* const pages = shared_of(inside_comm_);
  const Nodes& nodes = *services_.seat.nodes;
  layered_ = std::make_unique<LayeredComm>(LayeredComm::Transport{inside_comm_.get(), &inside, pages},
                                           LayeredComm::Transport{comm_.get(), &between, nullptr}, nodes,
                                           services_.seat.rank, reduce_block(), services_.clock, services_.memory);
  services_.comm = std::make_unique<Comm>(
      layered_->inst(), &LayeredComm::table(), pages == nullptr ? nullptr : &LayeredComm::shared_table(),
      services_.clock, PluginCaller(layers_name_.c_str(), &services_.seat.record), services_.seat.nodes);
  if (is_first())
    services_.log->info("{} hosts: '{}' inside a host, '{}' between hosts; {}", nodes.count(), plan_.inside_comm.id(),
                        plan_.comm.id(), layered_->order_text());
}

void RankSetup::make_windows(bool trains) {
  const bool copy = config().get<std::string>("comm.windows") == "copy" || !services_.device->is_host_memory();
  const auto overlap = config().get<std::string>("comm.overlap");
  if (trains && (overlap == "true" || (overlap == "auto" && !addresses_.empty())))
    services_.comm->overlap(&services_.seat.record);
  services_.windows = std::make_unique<Windows>(
      *services_.comm, services_.memory, *services_.staging,
      WindowSettings{copy, config().get<bool>("comm.poison"), reduce_block(), sums_in_bf16()});
}

void RankSetup::describe_model() {
  model_ = make(plan_.model, model_seat_, "model");
  model_table_ = &model_.require<ddh_model_api>(DDH_MODEL_IFACE, DDH_MODEL_API_MIN_SIZE);
  model_.call(PluginCall::kDescribe, model_table_->describe, &model_desc_);
  model_.caller().checked(PluginCall::kDescribe, [&] {
    check_description(model_desc_);
    model_copy_ = ModelCopy(model_desc_);
    model_desc_ = model_copy_.get();
    check_model(*model_desc_, plan_.model.desc->uses);
    check_outputs(*model_desc_, *model_table_);
  });
}

void RankSetup::choose_programs() {
  name_units();
  phases_ = run_phases(config(), *model_desc_);
  if (plan_.work == Work::kTrain) leave_out_programs();
  train_programs_ = programs_of(phases_);
  if (plan_.work == Work::kTrain) check_optimizers();
  make_programs();
}

void RankSetup::leave_out_programs() {
  for (const std::string& warning : take_out_programs_of_others(config(), *model_desc_, phases_))
    if (is_first()) services_.log->warn("{}", warning);
}

void RankSetup::check_optimizers() const {
  for (const std::string& section :
       unused_optimizers(*model_desc_, train_programs_, config().get<std::vector<std::string>>("train.optimizers")))
    if (is_first()) services_.log->warn("no program of the run uses optimizer '{}' of train.optimizers", section);
}

// The programs of the run. Only state that one of them needs is created; an evaluation needs only the parameters.
void RankSetup::make_programs() {
  const bool trains = plan_.work == Work::kTrain;
  std::vector<int32_t> others = eval_programs_of(*model_desc_, train_programs_);
  if (plan_.work == Work::kEvaluate) others = programs_to_evaluate(*model_desc_, train_programs_);
  const bool updates_all = config().get<int64_t>("train.update_every") > 0;
  for (const int32_t program : updates_all ? update_programs_of(*model_desc_) : updates_of(phases_))
    if (trains) others.push_back(program);
  programs_ = std::make_unique<RunPrograms>(*model_desc_, trains ? train_programs_ : std::vector<int32_t>(), others,
                                            static_cast<uint32_t>(config().get<int64_t>("train.grad_accum_steps")),
                                            recompute_every(config(), plan_.model));
}

void RankSetup::name_units() const {
  std::vector<const char*> names;
  for (uint32_t u = 0; u < model_desc_->n_units; ++u) names.push_back(model_desc_->units[u]->name);
  services_.seat.record.set_unit_names(names.data(), names.size());
}

OptimizerRef RankSetup::make_optimizer(const RunPlan::Optimizer& given) {
  const std::string kind = given.section.starts_with(kFollower) ? "optimizer" : given.section;
  optimizer_seats_.emplace_back(services_, kind + ":" + given.plugin.id(), given.section, given.plugin.desc);
  optimizers_.push_back(make(given.plugin, optimizer_seats_.back(), given.section.c_str()));
  const Instance& optimizer = optimizers_.back();
  const auto& table = optimizer.require<ddh_optimizer_api>(DDH_OPTIMIZER_IFACE, DDH_OPTIMIZER_API_MIN_SIZE);
  optimizer.call(PluginCall::kAttach, table.attach, model_desc_);
  check_slots(optimizer.get(), table, optimizer.caller());
  return {optimizer.get(),   &table,
          given.section,     optimizer.caller(),
          given.plugin.desc, optimizer.find<ddh_migrate_api>(DDH_MIGRATE_IFACE, DDH_MIGRATE_API_MIN_SIZE)};
}

// Only a training has state of which an optimizer could show anything.
void RankSetup::make_optimizers() {
  std::vector<OptimizerRef> refs;
  for (const RunPlan::Optimizer& given : plan_.optimizers) refs.push_back(make_optimizer(given));
  for (const RunPlan::Optimizer& given : plan_.followers) {
    if (plan_.work != Work::kTrain) continue;
    refs.push_back(make_optimizer(given));
    refs.back().follows = true;
  }
  if (plan_.work == Work::kTrain) choose_shown(refs, config().get<std::string>("train.eval_weights"));
  services_.step = std::make_unique<StepCoordinator>(
      *services_.comm, *services_.device, *services_.windows, *model_desc_,
      StepSettings{config().get<double>("train.clip_norm"), config().get<double>("train.clip_value"),
                   config().get<bool>("train.skip_nonfinite"), sums_in_bf16(),
                   config().get<bool>("run.check_plugins")});
  services_.step->set_optimizers(refs, programs_->described());
}

uint64_t RankSetup::checkpoint_bytes() const {
  const Optimizers& optimizers = services_.step->optimizers();
  return CheckpointLayout(*model_desc_, optimizers, optimizers.shown_params()).bytes();
}

void RankSetup::require_room_of_new_run(const TrainOrder& order) const {
  const CheckpointSettings settings = CheckpointSettings::from(config());
  if (settings.on() && plan_.resume.empty() && !plan_.memory_resume)
    require_disk(settings, order, plan_.run_dir, checkpoint_bytes());
}

CheckpointMemory RankSetup::checkpoint_memory() const {
  const CheckpointSettings settings = CheckpointSettings::from(config());
  if (plan_.work != Work::kTrain || (!settings.on() && settings.memory_every == 0)) return {};
  const uint64_t bytes = checkpoint_bytes();
  CheckpointMemory out;
  if (settings.memory_every > 0) {
    // Those of a run that starts again are there already, but for one more.
    const bool has_none =
        plan_.run_dir.empty() || list_checkpoints(memory_root(plan_.run_dir, plan_.memory_by_host)).empty();
    out.kept = (has_none ? 2 : 1) * bytes;
  }
  const uint64_t most = static_cast<uint64_t>(services_.seat.world_size()) * settings.most_bytes;  // 0: no limit
  if (settings.in_background) out.copies = most == 0 ? bytes : std::min(bytes, most);
  out.of_rank = copy_buffer_bytes();
  return out;
}

ddh_codec_args RankSetup::codec_args() const {
  return {sizeof(ddh_codec_args), services_.seat.rank, services_.seat.world_size(), 0, model_desc_};
}

// An evaluation has no gradients.
void RankSetup::make_codec() {
  if (!plan_.has_codec() || plan_.work != Work::kTrain) return;
  codec_ = make(plan_.codec, codec_seat_, "codec");
  const auto& table = codec_.require<ddh_codec_api>(DDH_CODEC_IFACE, DDH_CODEC_API_MIN_SIZE);
  services_.codec = std::make_unique<RunCodec>(codec_.get(), table, codec_.caller(), *model_desc_);
  codec_bytes_ = services_.codec->plan(codec_args());
}

void RankSetup::attach_codec() {
  if (services_.codec == nullptr) return;
  const auto comm_bytes = [&] { return services_.memory.usage(DDH_TAG_COMM).now_bytes; };
  const uint64_t before = comm_bytes();
  services_.codec->attach(codec_args());
  if (const uint64_t taken = comm_bytes() - before; taken > codec_bytes_)
    codec_.caller().blame(PluginCall::kAttach, {}, "allocates ", taken, " bytes of tag comm, but planned ",
                          codec_bytes_);
}

void RankSetup::make_strategy(uint32_t flags, int64_t total_steps) {
  services_.own_optims = std::make_shared<OwnOptims>(services_, *model_desc_, plan_.find_optimizer);
  strategy_ = make(plan_.strategy, strategy_seat_, "strategy");
  strategy_table_ = &strategy_.require<ddh_strategy_api>(DDH_STRATEGY_IFACE, DDH_STRATEGY_API_MIN_SIZE);
  const bool rank_first = config().get<std::string>("train.reduce_order") == "rank_first";
  const ddh_attach_args args{sizeof(ddh_attach_args),
                             services_.seat.rank,
                             services_.seat.world_size(),
                             static_cast<uint32_t>(config().get<int64_t>("train.grad_accum_steps")),
                             model_desc_,
                             services_.comm->world(),
                             rank_first ? DDH_RANK_FIRST : DDH_MICRO_FIRST,
                             compute_dtype(config(), plan_.model),
                             programs_->described().data(),
                             sizeof(ddh_run_program),
                             static_cast<uint32_t>(programs_->described().size()),
                             reduce_block(),
                             services_.seat.node(),
                             services_.seat.local_rank(),
                             services_.seat.nodes->ranks_per_node(),
                             flags,
                             services_.seat.nodes->node_of().data(),
                             static_cast<uint32_t>(services_.seat.nodes->count()),
                             0,
                             total_steps};
  strategy_.call(PluginCall::kAttach, strategy_table_->attach, &args);
  if (plan_.work == Work::kTrain) {
    const uint32_t world_every = rhythm_of(strategy_, *strategy_table_);
    check_rhythm(world_every, strategy_seat_.shown, config(), *model_desc_, phases_);
    services_.step->set_rhythm(world_every, scales_loss(config()));
  }
  memory_plan_.struct_size = sizeof memory_plan_;
  grad_in_blocks_.assign(model_desc_->n_params, 0);
  memory_plan_.grad_in_blocks = grad_in_blocks_.data();
  memory_plan_.sent_bytes = memory_plan_.sent_between_nodes_bytes = DDH_PLAN_UNKNOWN;
  const Memory::Usage before = services_.memory.usage();
  strategy_.call(PluginCall::kPlan, strategy_table_->plan, &memory_plan_);
  if (config().get<bool>("run.check_plugins") && services_.memory.usage() != before)
    strategy_.caller().blame(PluginCall::kPlan, {}, "allocates memory, which only materialize may do");
  memory_plan_ = ddh::copy_of(memory_plan_);
  const ddh_plan& plan = memory_plan_;
  if (plan.shared_bytes > plan.param_bytes)
    strategy_.caller().blame(PluginCall::kPlan, {}, "plans ", plan.shared_bytes, " shared bytes of ", plan.param_bytes,
                             " of parameters");
  if (plan.pinned_bytes > plan.param_bytes + plan.grad_bytes + plan.optim_bytes)
    strategy_.caller().blame(PluginCall::kPlan, {}, "plans ", plan.pinned_bytes, " pinned bytes, more than all others");
}

void RankSetup::say_caps() const {
  for (const Plugin* plugin : used_plugins(plan_)) {
    const std::string who = kind_name(plugin->desc->kind) + " '" + plugin->id() + "'";
    if (plugin->has_cap(DDH_CAP_LOSSY))
      services_.log->info(
          "{} communicates less or rounds more on purpose (DDH_CAP_LOSSY): its numbers differ from those of strategies "
          "that do not",
          who);
    if (plugin->has_cap(DDH_CAP_INEXACT_RESUME) && plan_.work == Work::kTrain)
      services_.log->info(
          "{} has state that checkpoints do not hold (DDH_CAP_INEXACT_RESUME): a resumed run does not continue with "
          "the "
          "bits of an uninterrupted one",
          who);
  }
}

std::optional<uint64_t> RankSetup::activation_bytes() const {
  std::optional<uint64_t> most;
  for (const PhaseSpec& phase : phases_)
    for (const int32_t program : phase.turns) {
      const uint64_t micro_batch =
          phase.micro_batch.value_or(micro_batch_of(config(), *model_desc_->programs[program]));
      if (const auto bytes = peak_activation_bytes(model_.caller(), model_.get(), *model_table_, programs_->of(program),
                                                   static_cast<uint32_t>(micro_batch)))
        most = std::max(most.value_or(0), *bytes);
    }
  return most;
}

uint64_t RankSetup::buffer_bytes() const {
  return buffers_bytes(*model_desc_, static_cast<uint64_t>(config().get<int64_t>("train.grad_accum_steps")),
                       static_cast<uint64_t>(services_.seat.world_size()), config().get<bool>("train.sync_buffers"));
}

// Destroys plugins before the services they use, windows before the transport whose memory they map, and the device last.
// After an error it waits for the device's work, so that no work uses freed memory.
void RankSetup::end_setup() {
  ddh::ErrorBuffer ignored;
  if (services_.device != nullptr)
    services_.device->streams().synchronize(services_.device->context(), nullptr, ignored.get());
  strategy_ = Instance();
  services_.own_optims.reset();
  services_.codec.reset();
  codec_ = Instance();
  optimizers_.clear();
  model_ = Instance();
  services_.step.reset();
  services_.windows.reset();
  services_.comm.reset();
  layered_.reset();
  comm_ = Instance();
  host_comm_ = Instance();
  inside_comm_ = Instance();
  services_.staging.reset();
  services_.handles.note_leaks();
  services_.memory.note_leaks();
  services_.memory.release_all();
  services_.device.reset();
  device_ = Instance();
}

}  // namespace ddhost
