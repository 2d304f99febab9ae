// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/checkpointing.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "checkpoint/safetensors.hpp"
#include "ddh/sdk/memory/memory_disk.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/loop/room.hpp"
#include "engine/samples/sample_order.hpp"
#include "engine/services/comm/together.hpp"
#include "engine/state/checkpoint_tensors.hpp"
#include "engine/state/codec_state.hpp"
#include "engine/state/state_entries.hpp"
#include "engine/state/state_migration.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

std::vector<UsedPlugin> notes_of(const RunPlan& plan) {
  std::vector<UsedPlugin> out;
  for (const Plugin* plugin : used_plugins(plan))
    out.push_back({kind_name(plugin->desc->kind), plugin->id(), plugin->desc->version,
                   plugin->desc->kind == DDH_KIND_STRATEGY ? plugin->desc->state_version : 0});
  return out;
}

// "strategy 'x' has more state than this checkpoint": of the plugins that can't resume exactly; "": all can.
std::string inexact_text(const RunPlan& plan) {
  std::string names;
  for (const Plugin* plugin : used_plugins(plan))
    if (plugin->has_cap(DDH_CAP_INEXACT_RESUME))
      names += (names.empty() ? "" : ", ") + kind_name(plugin->desc->kind) + " '" + plugin->id() + "'";
  return names.empty() ? ""
                       : "; it lacks state of " + names + ": a run from it has other bits (DDH_CAP_INEXACT_RESUME)";
}

// An entry of Manifest::host.
std::pair<std::string, std::string> sample_order_entry() { return {"sample_order", std::to_string(kSampleOrderWay)}; }

}  // namespace

std::string programs_in_another_order(const Manifest& manifest, bool from_file) {
  const auto now = sample_order_entry();
  const auto saved =
      std::find_if(manifest.host.begin(), manifest.host.end(), [&](const auto& e) { return e.first == now.first; });
  if (from_file || (saved != manifest.host.end() && saved->second == now.second)) return "";
  // Without an entry it is way 1, which has other orders for small sets only. A single sample has one order.
  const uint64_t largest = saved == manifest.host.end() ? kSmallSet : UINT64_MAX;
  std::string out;
  for (const ProgramProgress& program : manifest.progress.programs)
    if (program.epoch_samples > 1 && program.epoch_samples <= largest)
      out += ddh::str(out.empty() ? "" : ", ", "'", program.name, "' (", program.epoch_samples, " samples)");
  return out;
}

Checkpointing::Checkpointing(RankServices& services, const RunPlan& plan, const StateSource& source,
                             ReplicaChecks& replicas, const StepChecks& checks, ShownWeights& shown)
    : services_(services),
      plan_(plan),
      source_(source),
      replicas_(replicas),
      checks_(checks),
      shown_(shown),
      settings_(CheckpointSettings::from(services.config)),
      memory_(services, plan, settings_),
      layout_(layout_of(source, services.step->optimizers(), services.step->optimizers().shown_params())),
      copy_memory_(services.memory) {
  if (!settings_.on() && settings_.memory_every == 0) return;
  together(*services.comm, "memory for checkpoints",
           [&] { reserve_copy(copy_memory_, save_settings(), source_, layout_, services_.seat.rank == 0); });
}

SaveSettings Checkpointing::save_settings(Due where) const {
  SaveSettings out{plan_.run_dir, settings_.in_background, settings_.most_bytes, services_.codec.get()};
  if (where != Due::in_memory) return out;
  out.run_dir = memory_.root();
  out.by_host = memory_.by_host(resumed_from_);
  out.memory_of = plan_.run_dir;
  return out;
}

void Checkpointing::require_room(const TrainOrder& order) const {
  if (settings_.memory_every > 0)
    memory_.require_room(source_, layout_, first_step_after());
  else if (!memory_.holds(resumed_from_))
    memory_.remove();  // it may be older
  if (!settings_.on()) return;
  together(*services_.comm, "room for checkpoints", [&] {
    if (services_.seat.rank != 0) return;
    require_disk(settings_, order, plan_.run_dir, layout_.bytes());
  });
}

void Checkpointing::load(const TrainOrder& order) {
  const std::vector<MemoryCheckpoints::Place> places = memory_.places();
  if (places.empty()) return;
  // All tensors that a checkpoint of this run may have.
  const CheckpointLayout whole(source_.model, services_.step->optimizers(),
                               std::vector<uint8_t>(source_.model.n_params, 1));
  std::vector<int32_t> later;  // programs that have steps after the checkpoint
  std::string damages;
  for (const MemoryCheckpoints::Place& place : places) {
    const fs::path& folder = place.folder;
    Manifest manifest;
    ReadCount count;
    const auto begin = std::chrono::steady_clock::now();
    const MemoryCheckpoints::Lack lack = memory_.bring_together(place);
    std::string damage = lack.why;
    if (damage.empty())
      damage = first_damage(*services_.comm, "checkpoint: open", [&] { manifest = open_checkpoint(folder); });
    if (damage.empty()) {
      memory_.check(place, manifest);
      later = order.programs_from(manifest.progress.phase);
      set_later(later, manifest);
      check_strategy_version(manifest, *plan_.strategy.desc);
      const StateMigration migration(manifest, services_.step->optimizers(), layout_, source_.model);
      const std::string changed = check_same_tensors(manifest, migration, layout_, whole, folder.string());
      if (!changed.empty() && services_.seat.rank == 0) services_.log->warn("{}", changed);
      damage =
          read_checkpoint(folder, manifest, migration, source_, layout_, *services_.comm, *services_.staging, count);
    }
    std::string codec_notice;
    if (damage.empty()) {
      const std::string id = plan_.has_codec() ? plan_.codec.id() : "";
      CodecLoad codec = load_codec_state(services_.codec.get(), id, folder, manifest, *services_.comm);
      damage = std::move(codec.damage);
      codec_notice = std::move(codec.notice);
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (damage.empty()) {
      if (later != order.programs()) free_past_state(source_, services_.step->optimizers());
      restore_optimizers(manifest);
      if (services_.seat.rank == 0) {
        remove_leftovers(plan_.run_dir);
        const std::vector<CheckpointPlace> all = list_checkpoints(plan_.run_dir);
        if (!all.empty() && all.front().step == manifest.progress.step) note_newest(plan_.run_dir);
        services_.log->info(
            "resumed after step {} from '{}'; rank 0 read {} bytes, {:.3f} of what it holds, in {:.2f} s{}",
            manifest.progress.step, folder.string(), count.read,
            static_cast<double>(count.read) / static_cast<double>(std::max<uint64_t>(1, count.needed)), time.count(),
            inexact_text(plan_));
        const SafetensorsFile weights((folder / manifest.files.front().name).string());
        const std::string other = warning_of_other_ids(folder.string(), weights.meaning_of_ids(), source_.model);
        if (!other.empty()) services_.log->warn("{}", other);
        if (!codec_notice.empty()) services_.log->warn("{}", codec_notice);
      }
      resumed_ = std::move(manifest);
      resumed_from_ = fs::absolute(folder);
      last_begun_ = resumed_->progress.step;
      if (resumed_from_.parent_path() == checkpoints_folder(plan_.run_dir)) last_saved_ = last_begun_;
      return;
    }
    if (services_.seat.rank == 0 && places.size() > 1) services_.log->warn("{}; this checkpoint is skipped", damage);
    if (places.size() > 1 && (lack.why.empty() || lack.is_damage)) memory_.set_aside(place);
    damages += (damages.empty() ? "" : "; ") + damage;
  }
  ddh::fail(DDH_DATA_LOSS, "no checkpoint can be loaded: ", damages,
            "; name another with --resume PATH, or start again with --resume none and another run.dir");
}

void Checkpointing::set_later(std::span<const int32_t> programs, const Manifest& manifest) {
  services_.step->optimizers().set_later(programs);
  layout_ = layout_of(source_, services_.step->optimizers(), shown_in(manifest));
}

// Whose masters are apart from the weights that were shown; empty: none. It does not matter what this run shows.
std::vector<uint8_t> Checkpointing::shown_in(const Manifest& manifest) const {
  const ddh_model_desc& model = source_.model;
  std::vector<uint8_t> shown(model.n_params, 0);
  for (uint32_t p = 0; p < model.n_params; ++p)
    shown[p] = manifest.find(master_name(model.params[p]->name)) == nullptr ? 0 : 1;
  return shown;
}

void Checkpointing::restore_optimizers(const Manifest& manifest) const {
  const ddh_model_desc& model = source_.model;
  std::map<std::string_view, size_t> places;
  for (size_t i = 0; i < manifest.param_names.size(); ++i) places[manifest.param_names[i]] = i;
  std::vector<OptimizerProgress> saved = manifest.progress.optimizers;
  saved.insert(saved.end(), manifest.progress.followers.begin(), manifest.progress.followers.end());
  const std::vector<Optimizers::Instance>& instances = services_.step->optimizers().instances();
  for (size_t o = 0; o < saved.size(); ++o) {
    std::vector<int64_t> steps;
    for (uint32_t p = 0; p < model.n_params; ++p)
      steps.push_back(saved[o].param_steps.at(places.at(model.params[p]->name)));
    services_.step->optimizers().set_param_steps(o, steps);
    instances.at(o).numbers().restore(
        saved[o].numbers,
        ddh::str("the saved state of ", saved[o].section, " (", saved[o].plugin, ' ', saved[o].version, ")"),
        "continue with the plugin of the checkpoint");
  }
}

// A number that differs between ranks would differ from the uninterrupted run after a resume.
void Checkpointing::require_equal_numbers() const {
  std::vector<double> mine;
  for (const Optimizers::Instance& o : services_.step->optimizers().instances())
    for (const auto& [name, value] : o.numbers().values()) {
      if (!std::isfinite(value))
        o.call.blame(PluginCall::kNumber, {}, "gave number '", name, "' with the value ", value,
                     ", which is not finite");
      mine.push_back(value);
    }
  if (mine.empty()) return;
  std::vector<double> all(mine.size() * static_cast<size_t>(services_.comm->world_size()));
  services_.comm->all_gather_bytes(mine.data(), all.data(), mine.size() * sizeof(double), "numbers of optimizers");
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] != mine[i % mine.size()])
      ddh::fail(DDH_FAILED_PRECONDITION, "an optimizer's number is ", mine[i % mine.size()], " on rank ",
                services_.seat.rank, " and ", all[i], " on rank ", i / mine.size(),
                "; fix the optimizer: it sets its numbers in the update of no ranges, from the step's scalars alone");
}

std::optional<TrainPosition> Checkpointing::position() const {
  if (!resumed_) return std::nullopt;
  const TrainProgress& saved = resumed_->progress;
  TrainPosition at{saved.step, saved.phase, saved.phase_step, saved.phase_begin, {}};
  at.samples.resize(source_.model.n_programs);  // 0: it had no turn before
  for (uint32_t g = 0; g < source_.model.n_programs; ++g)
    for (const ProgramProgress& program : saved.programs)
      if (program.name == source_.model.programs[g]->name) at.samples[g] = program.samples;
  return at;
}

void Checkpointing::restore(const TrainState& state) const {
  if (!resumed_) return;
  const TrainProgress& saved = resumed_->progress;
  warn_of_other_data(state.order);
  state.loss_scale.restore(saved.loss_scale);
  state.skipped_in_a_row = saved.skipped_in_a_row;
  tell(state.patience.restore(saved.patience));
  restore_best(state.best);
  for (size_t i = 0; i < saved.optimizers.size(); ++i)
    for (size_t s = 0; s < state.rates.all().size(); ++s)
      state.rates.all()[s]->restore(static_cast<int32_t>(i), saved.optimizers[i].schedules.at(s));
}

void Checkpointing::warn_of_other_data(const TrainOrder& order) const {
  if (services_.seat.rank != 0) return;
  for (const int32_t program : order.programs())
    for (const ProgramProgress& saved : resumed_->progress.programs)
      if (saved.name == source_.model.programs[program]->name && saved.epoch_samples != order.epoch_size(program))
        services_.log->warn(
            "program '{}' has {} samples in an epoch, but {} when the checkpoint was written: its samples "
            "come in another order from here on",
            saved.name, order.epoch_size(program), saved.epoch_samples);
}

void Checkpointing::tell(const std::string& sentence) const {
  if (!sentence.empty() && services_.seat.rank == 0) services_.log->info("{}", sentence);
}

// A run that was killed between a checkpoint and its mark has none yet.
void Checkpointing::restore_best(BestCheckpoint& best) const {
  tell(best.restore(resumed_->progress.best, plan_.run_dir));
  if (services_.seat.rank != 0) return;
  const BestValue value = best.state().best;
  if (value.value && best_step(plan_.run_dir) != value.step) mark_best(plan_.run_dir, value.step);
}

bool Checkpointing::wants_by_clock() const {
  if (settings_.every_minutes == 0 || services_.seat.rank != 0) return false;
  const std::chrono::duration<double, std::ratio<60>> since = std::chrono::steady_clock::now() - disk_save_begun_;
  return since.count() >= settings_.every_minutes;
}

Checkpointing::Due Checkpointing::due(const Moment& moment, const TrainState& state) {
  if (is_due_on_disk(moment, state)) return Due::on_disk;
  const bool every = settings_.memory_every > 0 && moment.step.step % settings_.memory_every == 0;
  const bool disk_is_busy = save_ != nullptr && where_ == Due::on_disk;  // training does not wait for it
  return every && !moment.ends && !disk_is_busy && moment.step.step != last_begun_ ? Due::in_memory : Due::no;
}

bool Checkpointing::is_due_on_disk(const Moment& moment, const TrainState& state) {
  const TrainOrder& order = state.order;
  const bool asked = moment.requests.saves > saves_done_ || moment.requests.save_by_clock;
  saves_done_ = moment.requests.saves;
  if (moment.step.step == last_saved_) return false;
  if (asked) return true;
  if (!settings_.on()) return settings_.on_exit && moment.ends && moment.requests.stop;
  if (state.best.state().best.step == moment.step.step) return true;
  if (moment.ends || (settings_.at_phase_end && order.ends_phase(moment.step))) return true;
  if (settings_.every > 0 && moment.step.step % settings_.every == 0) return true;
  const bool is_first_program = moment.step.program == order.phases().front().turns.front().program;
  return settings_.every_epochs > 0 && is_first_program && order.ends_epoch(moment.step, settings_.every_epochs);
}

void Checkpointing::step_done(const Moment& moment, const TrainState& state) {
  if (save_ != nullptr && !moment.requests.saving && !save_->begin_shared_sums()) finish_save();
  if (const Due where = due(moment, state); where != Due::no) {
    if (save_ != nullptr) finish_save();  // one at a time
    if (where == Due::on_disk && !settings_.on() && moment.ends)
      save_on_exit(progress(state, moment.evaluation_pending));
    else
      begin_save(progress(state, moment.evaluation_pending), where);
  }
  if (save_ != nullptr && (moment.ends || !settings_.in_background)) finish_save();
  if (moment.ends) end_pruning();
}

void Checkpointing::late_evaluation_done(const TrainState& state) {
  if (!settings_.on()) return;
  begin_save(progress(state, /*evaluation_pending=*/false), Due::on_disk);
  finish_save();
  end_pruning();
}

TrainProgress Checkpointing::progress(const TrainState& state, bool evaluation_pending) const {
  TrainProgress out;
  const TrainPosition& at = state.position;
  out.step = at.step;
  out.phase = at.phase;
  out.phase_step = at.phase_step;
  out.phase_begin = at.phase_begin;
  out.cycle = at.phase / static_cast<int64_t>(state.order.phases().size());
  out.evaluation_pending = evaluation_pending;
  out.loss_scale = state.loss_scale.state();
  out.skipped_in_a_row = state.skipped_in_a_row;
  out.patience = state.patience.state();
  out.best = state.best.state();
  for (const int32_t program : state.order.programs())
    out.programs.push_back({source_.model.programs[program]->name, at.samples[static_cast<size_t>(program)],
                            state.order.epoch_size(program)});
  const std::vector<Optimizers::Instance>& instances = services_.step->optimizers().instances();
  for (size_t i = 0; i < instances.size(); ++i) {
    const bool follows = instances[i].follows;
    const Plugin& plugin = follows ? plan_.followers[i - plan_.optimizers.size()].plugin : plan_.optimizers[i].plugin;
    OptimizerProgress& optimizer = (follows ? out.followers : out.optimizers).emplace_back();
    optimizer.section = instances[i].section;
    optimizer.plugin = plugin.id();
    optimizer.version = plugin.desc->version;
    optimizer.state_version = plugin.desc->state_version;
    optimizer.numbers = instances[i].numbers().values();
    optimizer.param_steps = instances[i].param_steps;
    if (follows) continue;  // it has no rate
    for (const auto& schedules : state.rates.all())
      optimizer.schedules.push_back(schedules->state(static_cast<int32_t>(i)));
  }
  return out;
}

Manifest Checkpointing::manifest() const {
  Manifest out;
  out.config = services_.config.file_text();
  out.seed = static_cast<uint64_t>(services_.config.get<int64_t>("run.seed"));
  out.world_size = services_.seat.world_size();
  out.program_version = DDHOST_VERSION;
  out.host = {{"instruction_set", plan_.instruction_set},
              {"threads_per_rank", std::to_string(plan_.threads_per_rank)},
              sample_order_entry()};
  out.plugins = notes_of(plan_);
  return out;
}

// No memory and no room were reserved for it. What stands in its way costs the checkpoint, but not the weights of
// train.save_final.
void Checkpointing::save_on_exit(TrainProgress progress) {
  const int64_t step = progress.step, saved_before = last_saved_;
  try {
    together(*services_.comm, "room for a checkpoint", [&] {
      const auto needed = static_cast<double>(layout_.bytes());
      const double free = services_.seat.rank == 0 ? free_bytes(plan_.run_dir) : INFINITY;
      if (needed > free)
        ddh::fail(DDH_RESOURCE_EXHAUSTED, "it needs ", mib_text(needed), ", but '", plan_.run_dir.string(), "' has ",
                  mib_text(free), " free; give a run.dir with more room, or checkpoint.every_minutes, with which the ",
                  "room is looked for before the first step");
    });
    begin_save(std::move(progress), Due::on_disk, {plan_.run_dir, /*in_background=*/false, 0, services_.codec.get()});
    finish_save();
  } catch (const ddh::Error& error) {
    if (error.code() != DDH_RESOURCE_EXHAUSTED) throw;  // another rank may have ended
    save_.reset();
    last_saved_ = saved_before;
    if (services_.seat.rank == 0)
      services_.log->warn("the run was stopped, and no checkpoint of step {} was written: {}", step, error.what());
  }
}

// Names the checkpoint, and the cure.
template <class Body>
void Checkpointing::told_of_memory(Body&& body) const {
  try {
    body();
  } catch (const ddh::Error& error) {
    if (where_ != Due::in_memory || error.code() != DDH_RESOURCE_EXHAUSTED) throw;
    throw ddh::Error(error.code(),
                     ddh::str("the checkpoint in memory of step ", last_begun_, " is not saved: ", error.what(),
                              is_lack_of_room(error.what()) ? ddh::str("; give ", ddh::kMemoryDisk, " more room, or")
                                                            : "; remove the cause, or",
                              " set checkpoint.memory_every=0"));
  }
}

void Checkpointing::begin_save(TrainProgress progress, Due where, const SaveSettings& settings) {
  where_ = where;
  save_begun_ = std::chrono::steady_clock::now();
  end_pruning();
  replicas_.require_equal(progress.step);
  require_equal_numbers();
  shown_.write_to_slot();
  Manifest out = manifest();
  out.progress = std::move(progress);
  last_begun_ = out.progress.step;
  if (where == Due::on_disk) {
    last_saved_ = out.progress.step;
    disk_save_begun_ = save_begun_;
  }
  layout_ = layout_of(source_, services_.step->optimizers(), services_.step->optimizers().shown_params());
  told_of_memory([&] {
    save_ = std::make_unique<CheckpointSave>(settings, std::move(out), source_, layout_, *services_.comm,
                                             *services_.staging, copy_memory_);
  });
  save_stall_ = std::chrono::steady_clock::now() - save_begun_;
}

void Checkpointing::before_update() {
  if (save_ == nullptr) return;
  const auto begin = std::chrono::steady_clock::now();
  save_->wait_copied();
  save_stall_ += std::chrono::steady_clock::now() - begin;
}

void Checkpointing::finish_save() {
  const auto begin = std::chrono::steady_clock::now();
  told_of_memory([&] { save_->finish(checks_.blame_for_nonfinite()); });
  const int64_t step = save_->step();
  const bool on_disk = where_ == Due::on_disk;
  if (on_disk) {
    last_committed_ = step;
    committed_.push_back({step, checkpoint_folder(plan_.run_dir, step)});
  }
  save_.reset();
  if (!on_disk) tell_warning(memory_.remove_before(step));
  if (on_disk && settings_.memory_every == 0) memory_.remove();  // that from which the run goes on
  if (services_.seat.rank != 0) return;
  const auto end = std::chrono::steady_clock::now();
  const std::chrono::duration<double> all = end - save_begun_, stall = save_stall_ + (end - begin);
  if (on_disk || !std::exchange(said_memory_, true))
    services_.log->info("checkpoint after step {}: {:.1f} MiB {} after {:.2f} s; training waited {:.2f} s{}", step,
                        static_cast<double>(layout_.bytes()) / kMiB, on_disk ? "on the disk" : "in memory", all.count(),
                        stall.count(), inexact_text(plan_));
  if (!on_disk || settings_.keep.last == 0) return;
  pruning_ = std::async([run_dir = plan_.run_dir, step, keep = settings_.keep] {
    return std::string(failure_of([&] { prune_checkpoints(run_dir, step, keep); }).data());
  });
}

void Checkpointing::end_pruning() {
  if (!pruning_.valid()) return;
  tell_warning(pruning_.get());
}

// Training does not depend on the removal of old checkpoints.
void Checkpointing::tell_warning(const std::string& failure) const {
  if (!failure.empty()) services_.log->warn("{}", failure);
}

}  // namespace ddhost
