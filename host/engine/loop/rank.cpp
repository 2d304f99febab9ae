// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/rank.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <optional>

#include "base/terminal.hpp"
#include "base/text.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "engine/calls/instance.hpp"
#include "engine/checks/check_model.hpp"
#include "engine/checks/rhythm.hpp"
#include "engine/loop/estimate.hpp"
#include "engine/loop/evaluations.hpp"
#include "engine/loop/generate.hpp"
#include "engine/loop/memory_fit.hpp"
#include "engine/loop/rank_setup.hpp"
#include "engine/loop/train_loop.hpp"
#include "engine/record/closing.hpp"
#include "engine/record/rank_log.hpp"
#include "engine/record/reports.hpp"
#include "engine/record/summary.hpp"
#include "engine/services/optim/optimizers.hpp"
#include "engine/settings/course.hpp"
#include "engine/settings/model_settings.hpp"
#include "engine/state/final_weights.hpp"
#include "engine/state/initialize.hpp"
#include "engine/state/shown_weights.hpp"

namespace ddhost {
namespace {

// The steps of a rank. Each step creates the members of the same position; `end` destroys them in reverse order.
class Rank : RankSetup {
 public:
  Rank(const RunPlan& plan, std::unique_ptr<RunConfig> config, RankLog log, const RankSeat& seat)
      : RankSetup(plan, std::move(config), std::move(log.logger), seat),
        log_failure_(std::move(log.failure)),
        line_(std::move(log.line)) {}
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() { end(); }

  void run() {
    try {
      anon_.at_start = process_memory().anon_rss;
      open_device();
      join_world();
      anon_.before_model = process_memory().anon_rss;
      describe_model();
      anon_.after_model = process_memory().anon_rss;
      check_same_everywhere(data_fingerprints(*model_desc_), *services_.comm);
      choose_programs();
      choose_order();
      choose_initial_values();
      make_optimizers();
      make_codec();
      make_strategy(/*flags=*/0, order_ == nullptr ? 0 : order_->last_step());
      announce_plan();
      require_fit();
      materialize();
      work();
      leave_world();
    } catch (const std::exception& e) {
      // Before the others know: the launcher names the rank that ends first.
      if (output_ != nullptr) output_->failed(e.what());
      abort(comm_, comm_table_, e.what());
      abort(host_comm_, host_comm_table_, e.what());
      abort(inside_comm_, inside_comm_table_, e.what());
      if (services_.comm != nullptr) services_.comm->end_thread();
      throw;
    }
    end();
    services_.seat.record.misuse().require_none();
  }

 private:
  // `table` null: there is no such transport, or it is not connected.
  static void abort(const Instance& comm, const ddh_comm_backend_api* table, const char* reason) {
    if (table == nullptr) return;
    const PluginCaller::Entered entered = comm.caller().enter(PluginCall::kAbort);
    table->abort(comm.get(), reason);
  }

  void join_world() {
    if (plan_.has_host_comm()) {
      host_comm_ = make(plan_.host_comm, host_comm_seat_, "comm_host");
      host_comm_table_ = join_over(host_comm_);
    }
    comm_ = make(plan_.comm, comm_seat_, "comm");
    comm_table_ = join_over(comm_);
    const bool two = plan_.has_host_comm();
    const Instance& main = two ? host_comm_ : comm_;
    if (plan_.has_inside_comm()) {
      inside_comm_table_ = join_inside();
      make_layers(*inside_comm_table_, *comm_table_);
    } else {
      services_.comm = std::make_unique<Comm>(main.get(), two ? host_comm_table_ : comm_table_, shared_of(main),
                                              services_.clock, main.caller(), services_.seat.nodes);
    }
    if (two) services_.comm->use_device(comm_.get(), *comm_table_, comm_.caller());
    make_windows(plan_.work == Work::kTrain);
    check_same_everywhere(plan_.fingerprints, *services_.comm);
  }

  void choose_order() {
    if (plan_.work == Work::kTrain)
      order_ = std::make_unique<TrainOrder>(
          make_order(config(), *model_desc_, phases_, static_cast<uint64_t>(services_.seat.world_size())));
  }

  void choose_initial_values() {
    const bool from_checkpoint = !plan_.resume.empty();  // which has all values
    auto values = std::make_unique<ParamInit>(
        *model_desc_, static_cast<uint64_t>(config().get<int64_t>("run.seed")),
        init_files(from_checkpoint ? "[]" : config().json("train.init_from"), plan_.converted));
    for (const std::string& note : values->notes())
      if (is_first()) services_.log->info("{}", note);
    for (const std::string& warning : values->warnings())
      if (is_first()) services_.log->warn("{}", warning);
    services_.params = std::move(values);
  }

  void announce_plan() {
    RankMemory all = planned_memory();
    if (const uint64_t comm = whole_plan().comm_bytes; comm != DDH_PLAN_UNKNOWN) all.comm = comm;
    const std::string plan = plan_text(all);
    services_.seat.record.set_plan(plan);
    std::array<uint64_t, RankNumbers::kTags> planned{};
    planned[DDH_TAG_COMM] = all.comm;
    planned[DDH_TAG_ACT] = all.act;
    Memory::Plan expected{};
    for (const auto& [tag, bytes] : planned_tags()) {
      planned[static_cast<size_t>(tag)] = bytes;
      expected[static_cast<size_t>(tag)] = bytes;
    }
    services_.seat.record.set_planned(planned);
    services_.memory.expect(expected, strategy_seat_.shown);
    if (is_first() && plan_.work == Work::kTrain) services_.log->info("{}", plan);
    const bool staged = !services_.device->is_host_memory() && services_.comm->device() == nullptr;
    if (is_first() && staged && services_.seat.world_size() > 1)
      services_.log->info(
          "comm '{}' exchanges memory of device '{}' through memory of the host; where each rank has a device "
          "of its own, a transport of the device's memory is faster (`ddhost list` names the transports)",
          plan_.comm.id(), plan_.device.id());
  }

  // At the end: whether the strategy kept to its plan, which it allocated itself to the byte. A plan that is too large by more
  // than 1 % and 1 MiB is a warning.
  void compare_with_plan() {
    const auto& c = config();
    const std::string how = c.get<std::string>("run.plan_check");
    const bool fails = how == "error" || (how == "auto" && plan_.strategy_is_own);
    for (const auto& [tag, planned] : planned_tags()) {
      const uint64_t peak = services_.memory.planned_peak(tag);
      const char* const name = kTagNames[static_cast<size_t>(tag)];
      const std::string who = ddh::str("strategy '", plan_.strategy.id(), "' ");
      if (peak > planned) {
        const std::string sentence =
            ddh::str(who, "planned ", planned, " bytes of tag ", name, " and took ", peak, "; ",
                     services_.memory.first_above_plan(tag), " was the first above the plan");
        if (fails && plan_failure_.empty())
          plan_failure_ = sentence + "; correct its plan, or set run.plan_check=warn";
        else
          services_.log->warn("{}", sentence);
      } else if (planned - peak > std::max(planned / 100, uint64_t{1} << 20)) {
        services_.log->warn("{}planned {} bytes of tag {} and took {}", who, planned, name, peak);
      }
    }
  }
  std::array<std::pair<int32_t, uint64_t>, 3> planned_tags() const {
    return {{{DDH_TAG_PARAM, memory_plan_.param_bytes},
             {DDH_TAG_GRAD, memory_plan_.grad_bytes},
             {DDH_TAG_OPTIM, memory_plan_.optim_bytes}}};
  }

  [[nodiscard]] RankMemory planned_memory() const {
    return rank_memory(memory_plan_, services_.seat.rank, /*host_comm=*/buffer_bytes() + codec_bytes_,
                       /*device_comm=*/0, plan_.work == Work::kTrain ? activation_bytes().value_or(0) : 0);
  }

  // Refuses a run that would end in the middle for lack of memory or disk. Rank 0 says why. [collective]
  void require_fit() const {
    if (config().get<bool>("run.allow_overcommit")) return;
    SeenMemory mine{};
    mine.planned = planned_memory();
    mine.device = services_.device->info();
    mine.addresses_left = ddh::free_addresses().bytes;
    see_host(mine, services_.seat);
    std::vector<SeenMemory> all(static_cast<size_t>(services_.seat.world_size()));
    services_.comm->all_gather_bytes(&mine, all.data(), sizeof mine, "plan");
    if (is_first()) {
      const FitQuestion question{plan_.device.id(), !services_.device->is_host_memory(),
                                 plan_.comm.has_cap(DDH_CAP_RANKS_ARE_THREADS), checkpoint_memory()};
      if (const std::optional<DoesNotFit> found = first_shortage(all, question)) {
        const Shortage& of = found->shortage;
        const bool in_child = plan_.with_changes && can_plan_in_child(question, of.kind);
        if (plan_.work == Work::kTrain) services_.seat.record.set_shortage(in_child ? plan_.with_changes(of) : of);
        ddh::fail(DDH_RESOURCE_EXHAUSTED, found->sentence);
      }
      if (order_ != nullptr) require_room_of_new_run(*order_);
    }
    services_.comm->barrier();  // if rank 0 fails, the others fail here
  }

  void materialize() {
    if (model_table_->prepare != nullptr) model_.call(PluginCall::kPrepare, model_table_->prepare);
    check_generation(config(), *model_desc_, model_, sampler(), eval_program());
    services_.params->init_buffers(*services_.staging);
    attach_codec();
    strategy_.call(PluginCall::kMaterialize, strategy_table_->materialize);
    own_ = agree_strategy_tensors(state_source(), *services_.comm);
    checks_ = std::make_unique<StepChecks>(state_source(), *services_.step, *services_.params, *services_.comm,
                                           *services_.staging);
    views_ = std::make_unique<ViewCheck>(*model_desc_, compute_dtype(config(), plan_.model));
    runner_ = std::make_unique<OpRunner>(strategy_, *strategy_table_, model_, *model_table_, *model_desc_, *views_,
                                         *checks_, services_.clock);
    if (order_ != nullptr) go_on_from_checkpoint();
    if (is_first()) say_what_runs();
  }

  // After this the length of the run is known.
  void go_on_from_checkpoint() {
    replicas_ = std::make_unique<ReplicaChecks>(services_, state_source());
    shown_ = std::make_unique<ShownWeights>(state_source(), services_.step->optimizers(), *services_.staging);
    checkpoints_ = std::make_unique<Checkpointing>(services_, plan_, state_source(), *replicas_, *checks_, *shown_);
    checkpoints_->load(*order_);
    if (const std::optional<TrainPosition> position = checkpoints_->position()) order_->begin_after(*position);
    checkpoints_->require_room(*order_);
    if (!plan_.model.has_cap(DDH_CAP_EMPTY_BATCH)) require_no_empty(*order_, config(), *model_desc_);
    rates_ = std::make_unique<PhaseRates>(services_, plan_, phases_, *order_, evaluates(config()));
    check_rhythm_of_rates(services_.step->world_every(), strategy_seat_.shown, rates_->reader_of_losses(),
                          evaluates(config()));
    if (plan_.final_weights != nullptr) reserve_final_weights(*plan_.final_weights, *model_desc_, *services_.comm);
  }

  void say_what_runs() const {
    say_caps();
    uint64_t numel = 0;
    for (uint32_t p = 0; p < model_desc_->n_params; ++p) numel += model_desc_->params[p]->numel;
    const auto world = static_cast<uint64_t>(services_.seat.world_size());
    const std::string batch =
        order_ == nullptr ? ""
                          : ", " +
                                batch_text(*order_, *model_desc_, world,
                                           static_cast<uint64_t>(config().get<int64_t>("train.grad_accum_steps"))) +
                                "; " + plan_.run_dir.string();
    services_.log->info("{}: {} parameters, {} on {} over {}{}", model_desc_->name, numel, plan_.strategy.id(),
                        counted(world, "rank"), plan_.transports(), batch);
    if (shown_ != nullptr && shown_->exist())
      services_.log->info("evaluations and files of weights have what {} shows (train.eval_weights)",
                          services_.step->optimizers().shown()->call.name());
    const ddh_device_info device = services_.device->info();
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    const std::string why = plan_.device_reason.empty() ? "" : "; device.plugin=auto chose it: " + plan_.device_reason;
    services_.log->info("device {}: {:.1f} GiB of memory, {:.1f} GiB of it free{}", device.name,
                        static_cast<double>(device.total_bytes) / kGiB, static_cast<double>(device.free_bytes) / kGiB,
                        why);
  }

  void work() {
    if (plan_.work != Work::kTrain) services_.seat.record.set_begun();
    switch (plan_.work) {
      case Work::kTrain:
        train();
        shown_->show();  // until the end: no step follows
        save();
        if (!train_end_.idle) compare_with_plan();
        if (train_end_.idle)
          say_nothing_left();
        else
          report();
        say_how_to_go_on();
        return end_with_failure();
      case Work::kEvaluate:
        return print_evaluations(setup(), programs_to_evaluate(*model_desc_, train_programs_), plan_.prints_json);
      case Work::kGenerate:
        return print_samples();
    }
  }

  void train() {
    const ddh_program_desc& first = *model_desc_->programs[train_programs_.front()];
    estimate_programs();
    if (const std::string failure = log_failure_->sentence(); !failure.empty())
      ddh::fail(DDH_RESOURCE_EXHAUSTED, failure);
    output_ = std::make_unique<RunOutput>(services_, plan_.monitors, plan_.run_dir.string(), first.sample_unit,
                                          checkpoints_->numbers_at_start(), order_->last_step(), line_, plan_.facts);
    train_end_ = train_loop(setup(), *order_, *rates_, *output_, *checkpoints_, *replicas_);
    services_.seat.record.set_begun();  // also a resumed run that had no step left
    if (!train_end_.stopped) services_.seat.record.set_done();
    line_->finish();
  }

  void save() {
    if (plan_.final_weights == nullptr || leaves_weights_to_checkpoint()) return;
    const FinalSave saved =
        save_final_weights(*plan_.final_weights, state_source(), services_, checks_->blame_for_nonfinite());
    save_failure_ = saved.problem;
    weights_ = saved.path;
    if (is_first()) services_.log->info("weights after step {}: {}", train_end_.last_step, saved.path);
  }

  void say_nothing_left() const {
    if (is_first())
      services_.log->info("nothing is left to train after step {}: config.json and the rows of '{}' stay as they are",
                          train_end_.last_step, plan_.run_dir.string());
  }

  // Also in log.txt: a run whose terminal was closed has no other place for it.
  void say_how_to_go_on() const {
    if (is_first() && train_end_.stopped && checkpoints_->has_saved(train_end_.last_step))
      services_.log->info("stopped after step {} of {}; this continues the run: {}", train_end_.last_step,
                          order_->last_step(), resume_command(plan_.run_dir.string()));
  }

  // The file of a stopped run would be in the way of the run that resumes it.
  bool leaves_weights_to_checkpoint() const {
    if (!train_end_.stopped || !checkpoints_->has_saved(train_end_.last_step)) return false;
    if (is_first())
      services_.log->info(
          "train.save_final is not written, because the run was stopped; its checkpoint has the weights");
    return true;
  }

  void estimate_programs() {
    for (const TrainPhase& phase : order_->phases())
      for (const auto& [program, micro_batch] : phase.turns)
        if (auto one = estimate_program(model_.caller(), model_.get(), *model_table_, programs_->of(program),
                                        static_cast<uint32_t>(micro_batch)))
          estimates_.insert_or_assign({program, micro_batch}, *one);
  }

  void report() {
    Summary summary(services_, whole_plan(), planned_memory().act, anon_);
    if (is_first() && !estimates_.empty())
      summary.set_work(work_done(estimates_, *model_desc_, output_->work()),
                       rank_peak(config(), *services_.device, plan_.threads_per_rank));
    const RunOutput::Totals totals = output_->totals();
    output_->end(summary.json(services_, train_end_.last_step, totals));
    const std::string profile = profile_text();
    const std::vector<std::string> samples = samples_of_the_end();
    if (!is_first() || config().get<bool>("run.quiet")) return;
    std::string text;
    for (const std::string& sample : samples) {
      ModelText shown;
      text += "--- a sample from the trained model ---\n" + shown.next(sample) + shown.rest() + "\n---\n";
    }
    const size_t columns = terminal_columns(STDOUT_FILENO);
    try {
      write_stdout(text + shown_text(summary.text(columns) + profile + closing_text(closing(totals), columns)));
    } catch (const ddh::Error& error) {
      stdout_failure_ = error.what();
    }
  }

  // The tables of profile.steps, which are also written to the run's folder, and each rank's trace beside them; "" without the
  // option. [collective]
  std::string profile_text() {
    const StepProfile& profile = output_->profile();
    if (!profile.is_on()) return "";
    if (profile.count() == 0) return ddh::str("profile: the run ended before its step ", profile.steps().first, "\n");
    const ProfileReport tables(profile, *model_desc_, *services_.comm, [this](const UnitCost& cost) {
      return call_flops(model_.caller(), model_.get(), *model_table_, cost.call,
                        static_cast<uint32_t>(cost.micro_batch));
    });
    std::string written;
    const auto attempt = [&](const auto& write) {
      try {
        written += write();
      } catch (const ddh::Error& error) {
        profile_failure_ += (profile_failure_.empty() ? "" : "; ") + std::string(error.what());
      }
    };
    attempt([&] { return is_first() ? "  " + tables.write(plan_.run_dir).string() + "\n" : ""; });
    attempt([&] { return write_trace(profile, *model_desc_, services_.seat.rank); });
    return is_first() ? tables.text(terminal_columns(STDOUT_FILENO)) + written : "";
  }

  RunClosing closing(const RunOutput::Totals& totals) {
    RunClosing out{totals, train_end_.last_step, order_->last_step(), plan_.run_dir.string(), weights_};
    out.checkpoint_step = checkpoints_->last_committed();
    out.stopped = train_end_.stopped;
    out.can_evaluate = eval_program() >= 0;
    out.can_generate = can_generate(config(), sampler(), eval_program());
    return out;
  }

  // What went wrong without costing the run its results.
  void end_with_failure() const {
    std::string all;
    for (const std::string& sentence : {save_failure_, plan_failure_, output_->failure(), output_->count_failure(),
                                        log_failure_->sentence(), stdout_failure_, profile_failure_})
      if (!sentence.empty()) all += (all.empty() ? "" : "; ") + sentence;
    if (!all.empty()) ddh::fail(DDH_FAILED_PRECONDITION, all);
  }

  std::vector<std::string> samples_of_the_end() {
    std::vector<std::string> out;
    TrainSetup s = setup();
    if (!can_generate(config(), sampler(), s.eval_program)) return out;
    for (uint64_t i = 0; i < sample_count() && !train_end_.stopped; ++i)
      out.push_back(generate(s, sampler(), train_end_.last_step, i));
    return out;
  }

  void print_samples() {
    require_sampler(config(), *model_desc_, sampler(), eval_program());
    TrainSetup s = setup();
    const auto show = [this](std::string_view piece) {
      if (is_first()) write_stdout(piece);
    };
    for (uint64_t i = 0; i < sample_count() && !stop_wanted(s); ++i) {
      if (sample_count() > 1) show(ddh::str("--- sample ", i + 1, " of ", sample_count(), " ---\n"));
      ModelText shown;
      static_cast<void>(generate(s, sampler(), 0, i, [&](std::string_view piece) { show(shown.next(piece)); }));
      show(shown.rest() + "\n");
    }
  }

  const ddh_sampler_api* sampler() const {
    return model_.find<ddh_sampler_api>(DDH_SAMPLER_IFACE, DDH_SAMPLER_API_MIN_SIZE);
  }
  uint64_t sample_count() const { return static_cast<uint64_t>(config().get<int64_t>("run.sample_count")); }

  void leave_world() {
    services_.device->synchronize(nullptr);  // errors of its last work
    comm_.call(PluginCall::kFinalize, comm_table_->finalize);
    if (host_comm_table_ != nullptr) host_comm_.call(PluginCall::kFinalize, host_comm_table_->finalize);
    if (inside_comm_table_ != nullptr) inside_comm_.call(PluginCall::kFinalize, inside_comm_table_->finalize);
  }

  StateSource state_source() const { return {strategy_, *strategy_table_, *model_desc_, *services_.step, &own_}; }

  // Of the first program of the last phase, which knows all that the run has trained.
  int32_t eval_program() const { return eval_program_of(*model_desc_, phases_.back().turns.front()); }

  TrainSetup setup() {
    return {services_,  *runner_,       *model_desc_, model_.get(), *model_table_,   {data_callers(), model_.caller()},
            *programs_, state_source(), shown_.get(), phases_,      train_programs_, eval_program()};
  }
  std::vector<PluginCaller> data_callers() const {
    std::vector<PluginCaller> callers;
    for (size_t i = 0; i < static_cast<size_t>(config().get<int64_t>("data.workers")); ++i)
      callers.push_back(model_.caller_on(data_thread(i)));
    return callers;
  }

  void end() {
    ddh::ErrorBuffer ignored;
    if (services_.device != nullptr)  // after an error it may still work for these
      services_.device->streams().synchronize(services_.device->context(), nullptr, ignored.get());
    output_.reset();
    checkpoints_.reset();
    shown_.reset();
    replicas_.reset();
    checks_.reset();
    strategy_ = Instance();
    rates_.reset();
    end_setup();
  }

  const std::shared_ptr<const LogFailure> log_failure_;
  const std::shared_ptr<TerminalLine> line_;
  AnonMarks anon_;
  std::unique_ptr<TrainOrder> order_;
  std::unique_ptr<PhaseRates> rates_;
  const ddh_comm_backend_api *comm_table_ = nullptr, *host_comm_table_ = nullptr, *inside_comm_table_ = nullptr;
  WorkEstimates estimates_;
  std::vector<StrategyTensor> own_;  // of the strategy
  std::unique_ptr<StepChecks> checks_;
  std::unique_ptr<ReplicaChecks> replicas_;
  std::unique_ptr<ShownWeights> shown_;
  std::unique_ptr<Checkpointing> checkpoints_;
  std::unique_ptr<ViewCheck> views_;
  std::unique_ptr<OpRunner> runner_;
  std::unique_ptr<RunOutput> output_;
  TrainEnd train_end_{};
  std::string weights_;  // the file that was written; empty: none
  std::string save_failure_, plan_failure_, stdout_failure_,
      profile_failure_;  // sentences with which the run ends; empty: none
};

}  // namespace

int run_rank(const RunPlan& plan, std::unique_ptr<RunConfig> config, const RankSeat& seat) {
  RankLog log = make_rank_log(plan, *config, seat);
  Rank(plan, std::move(config), std::move(log), seat).run();
  return 0;
}

}  // namespace ddhost
