// SPDX-License-Identifier: Apache-2.0
//
// Learning-rate schedules, from the options of section `schedule` to the rates: against DeepSpeed's published numbers and
// stored numbers of torch; what they count; their state; what they refuse. The plugins are linked in.
#include "engine/settings/phase_rates.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <set>

#include "config/compat.hpp"
#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/host_services.hpp"
#include "fixtures/harness/throws.hpp"
#include "linked.hpp"
#include "plugin/registry.hpp"

using namespace ddhost;
using ddhost::test::sentence_of;

namespace {

using Words = std::vector<std::string>;
using Rates = std::vector<double>;

std::vector<std::string> all_types() {
  std::vector<std::string> types;
  for (const auto& [name, entry] : kLinked) types.push_back(name);
  return types;
}
const std::vector<std::string> kTypes = all_types();

Registry& registry() {
  static Registry all(&host_interface, "/no/such/folder", [] {
    std::vector<LinkedPlugin> plugins;
    for (const auto& [name, entry] : kLinked) plugins.push_back({name.c_str(), entry});
    return plugins;
  }());
  return all;
}

UserConfig user_config(const Words& words) {
  std::vector<Override> overrides;
  for (const std::string& word : words) overrides.push_back(parse_override(word));
  return UserConfig::read("", overrides);
}
Plugin plugin_for(const UserConfig& user) {
  const Config choice(user, host_sections(), /*plugin_sections=*/false);
  return registry().find(DDH_KIND_SCHEDULE, choice.text("schedule.type"), "/");
}
// The types that have all of these options. An option has the same name and meaning in every schedule (options.hpp there).
std::vector<std::string> types_with(const std::set<std::string>& options) {
  std::vector<std::string> types;
  for (const std::string& type : kTypes) {
    size_t found = 0;
    const Plugin plugin = plugin_for(user_config({"schedule.type=" + type}));
    for (const Option& option : parse_schema(plugin.desc->config_schema, type).options)
      found += options.contains(option.name) ? 1 : 0;
    if (found == options.size()) types.push_back(type);
  }
  REQUIRE(!types.empty());
  return types;
}
Config config_for(const UserConfig& user, const Plugin& plugin) {
  std::vector<Section> all = host_sections();
  add_plugin_options(all, "optimizer", R"({"properties": {"lr": {"type": "number", "default": 0.2}}})", "a test");
  add_plugin_options(all, "schedule", plugin.desc->config_schema, "schedule '" + plugin.id() + "'");
  add_foreign_names(all, "schedule", "schedule", plugin.id());
  return {user, all};
}
Config config_with(const Words& words) {
  const UserConfig user = user_config(words);
  return config_for(user, plugin_for(user));
}

struct StepReport {
  bool skipped;
  double loss;
};

// A schedule of one optimizer, as the train loop has it.
class Schedule {
 public:
  explicit Schedule(const Words& words) : services_("schedule:test") {
    const UserConfig user = user_config(words);
    const Plugin plugin = plugin_for(user);
    services_.config() = config_for(user, plugin);
    const Config& config = services_.config();
    schedules_ = std::make_unique<Schedules>(services_.services, plugin, "schedule", config.integer("train.steps"),
                                             config.integer("train.eval_every") > 0);
  }
  [[nodiscard]] double lr(int64_t step) const { return schedules_->lr(0, step); }
  void step_done(const StepReport& report) { schedules_->step_done(++step_, report.skipped, report.loss); }
  void evaluated(double loss) { schedules_->evaluated(loss); }
  [[nodiscard]] ScheduleState state() const { return schedules_->state(0); }
  void restore(const ScheduleState& state) { schedules_->restore(0, state); }

 private:
  test::HostServices services_;
  std::unique_ptr<Schedules> schedules_;
  int64_t step_ = 0;
};

std::unique_ptr<Schedule> schedule_with(Words words, bool evaluates = false) {
  if (evaluates) words.emplace_back("train.eval_every=1");
  return std::make_unique<Schedule>(words);
}
std::string refusal(const Words& words) {
  return sentence_of([&] { schedule_with(words); });
}

// The rates of steps first ... last, none of which is skipped.
Rates rates_of(Schedule& schedule, int64_t last, int64_t first = 1) {
  Rates rates;
  for (int64_t step = first; step <= last; ++step) {
    rates.push_back(schedule.lr(step));
    schedule.step_done({false, 0});
  }
  return rates;
}
Rates rates_of(const Words& words, int64_t last) { return rates_of(*schedule_with(words), last); }

void check_rates(const Rates& rates, const Rates& expected, double tolerance) {
  REQUIRE(rates.size() == expected.size());
  for (size_t i = 0; i < rates.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(rates[i] == Approx(expected[i]).margin(tolerance).epsilon(0));
  }
}

// The published numbers have six digits after the point, or as many as are exact.
constexpr double kSixDigits = 6e-7;

struct TorchCase {
  std::string name;
  Words words;
  Rates losses, rates;
};
const std::vector<TorchCase>& torch_cases() {
  static const std::vector<TorchCase> cases = {
#include "data/schedule_reference.inc"
  };
  return cases;
}

}  // namespace

TEST_CASE("warmup has DeepSpeed's numbers, the lowest rate at the first two updates", "[schedule]") {
  const Words common = {"schedule.type=WarmupLR", "schedule.warmup_min_lr=0.1", "schedule.warmup_max_lr=0.2",
                        "schedule.warmup_num_steps=10"};
  Words log = common, linear = common;
  linear.emplace_back("schedule.warmup_type=linear");
  check_rates(rates_of(log, 12),
              {.1, .1, .130103, .147712, .160206, .169897, .177815, .18451, .190309, .195424, .2, .2}, kSixDigits);
  check_rates(rates_of(linear, 13), {.1, .1, .11, .12, .13, .14, .15, .16, .17, .18, .19, .2, .2}, 1e-15);
}

TEST_CASE("warmup_decay has DeepSpeed's numbers", "[schedule]") {
  check_rates(rates_of({"schedule.type=WarmupDecayLR", "schedule.warmup_min_lr=0.1", "schedule.warmup_max_lr=0.2",
                        "schedule.warmup_num_steps=10", "schedule.total_num_steps=20", "schedule.warmup_type=linear"},
                       24),
              {.1,  .1,  .11, .12, .13, .14, .15, .16, .17, .18, .19, .2,
               .19, .18, .17, .16, .15, .14, .13, .12, .11, .1,  .1,  .1},
              1e-15);
}

TEST_CASE("warmup_cosine has DeepSpeed's numbers, and 0 before the first", "[schedule]") {
  const Words words = {"schedule.type=WarmupCosineLR", "optimizer.lr=1", "schedule.warmup_num_steps=4",
                       "schedule.total_num_steps=10"};
  check_rates(rates_of(words, 12), {0, 0, .5, .79248125, 1, .9330194, .750025, .50005, .250075, .0670806, .0001, .0001},
              kSixDigits);
  Words from_half = words;
  from_half.emplace_back("schedule.warmup_min_ratio=0.5");
  check_rates(rates_of(from_half, 4), {0, .5, .75, .5 + .5 * std::log(3) / std::log(4)}, 1e-15);
}

TEST_CASE("a warm-up of one step counts as two, as in DeepSpeed", "[schedule]") {
  check_rates(rates_of({"schedule.type=warmup", "schedule.warmup_steps=1", "schedule.warmup_type=linear"}, 4),
              {0, 0, .1, .2}, 1e-15);
}

TEST_CASE("cycle is DeepSpeed's OneCycle: up, down, then the slow decay", "[schedule]") {
  const Words words = {"schedule.type=OneCycle", "schedule.cycle_min_lr=0.1", "schedule.cycle_max_lr=0.5",
                       "schedule.cycle_first_step_size=4", "schedule.cycle_second_step_size=2"};
  check_rates(rates_of(words, 9), {.1, .2, .3, .4, .5, .3, .1, .1, .1}, 1e-15);
  Words decaying = words;
  decaying.insert(decaying.end(), {"schedule.decay_step_size=2", "schedule.decay_lr_rate=0.5"});
  check_rates(rates_of(decaying, 10), {.1, .2, .3, .4, .5, .3, .1, .1 / 1.25, .1 / 1.5, .1 / 1.75}, 1e-15);
  check_rates(
      rates_of({"schedule.type=cycle", "schedule.min_lr=0.1", "schedule.max_lr=0.3", "schedule.cycle_up_steps=2"}, 5),
      {.1, .2, .3, .2, .1}, 1e-15);
}

TEST_CASE("range_test is DeepSpeed's LRRangeTest: a rise without an end", "[schedule]") {
  Words words = {"schedule.type=LRRangeTest", "schedule.lr_range_test_min_lr=0.1", "schedule.lr_range_test_step_size=4",
                 "schedule.lr_range_test_step_rate=2"};
  check_rates(rates_of(words, 7), {.1, .15, .2, .25, .3, .35, .4}, 1e-15);
  words.emplace_back("schedule.lr_range_test_staircase=true");
  check_rates(rates_of(words, 9), {.1, .1, .1, .1, .3, .3, .3, .3, .5}, 1e-15);
  check_rates(rates_of({"schedule.type=range_test"}, 2), {1e-3, 1e-3 * (1 + 1 / 2000.0)}, 1e-15);
}

TEST_CASE("every schedule is compared with stored numbers of torch or with DeepSpeed's published ones", "[schedule]") {
  std::set<std::string> compared = {"warmup", "warmup_decay", "warmup_cosine", "cycle",
                                    "range_test"};  // in the cases above
  for (const TorchCase& c : torch_cases()) compared.insert(plugin_for(user_config(c.words)).id());
  for (const std::string& type : kTypes) {
    INFO(type << " needs a case in tests/data/make_schedule_reference.py");
    CHECK(compared.contains(type));
  }
}

TEST_CASE("rates equal torch's", "[schedule]") {
  for (const TorchCase& c : torch_cases()) {
    INFO(c.name);
    const auto schedule = schedule_with(c.words);
    double largest = 0;
    for (size_t i = 0; i < c.rates.size(); ++i) {
      const double rate = schedule->lr(static_cast<int64_t>(i + 1));
      // torch goes from rate to rate; the error of its roundings adds up. Largest seen: 4e-16.
      largest = std::max(largest, std::abs(rate - c.rates[i]) / c.rates[i]);
      schedule->step_done({false, c.losses.empty() ? 0 : c.losses[i]});
    }
    CHECK(largest < 1e-15);
  }
}

// optimization.py of transformers 5.23: the factor on lr after `done` steps of its LambdaLR.
double transformers_factor(const std::string& type, int64_t done, int64_t warmup, int64_t steps) {
  const auto part = [](int64_t a, int64_t b) { return static_cast<double>(a) / std::max(1.0, static_cast<double>(b)); };
  if (done < warmup) return part(done, warmup);
  if (type == "linear") return std::max(0.0, part(steps - done, steps - warmup));
  if (type == "cosine") {
    constexpr double kPi = 3.14159265358979323846, kCycles = 0.5;
    return std::max(0.0, 0.5 * (1 + std::cos(kPi * kCycles * 2 * part(done - warmup, steps - warmup))));
  }
  if (type == "inverse_sqrt") {
    const int64_t timescale = warmup == 0 ? 10'000 : warmup;
    return 1 / std::sqrt(part(done + timescale - warmup, timescale));
  }
  return 1;  // constant_with_warmup
}

TEST_CASE("under Hugging Face's names the rates of all steps equal those of transformers", "[schedule]") {
  constexpr int64_t kSteps = 50;
  for (const std::string type : {"constant", "linear", "cosine", "inverse_sqrt"}) {
    for (const int64_t warmup : {0, 1, 7, 49}) {
      Words words = {"schedule.type=" + type, ddh::str("schedule.num_warmup_steps=", warmup), "optimizer.lr=0.003"};
      if (type == "linear" || type == "cosine") words.push_back(ddh::str("schedule.num_training_steps=", kSteps));
      INFO(type << ", warm-up of " << warmup);
      Rates expected;
      for (int64_t done = 0; done <= kSteps; ++done)
        expected.push_back(0.003 * transformers_factor(type, done, warmup, kSteps));
      check_rates(rates_of(words, kSteps + 1), expected, 1e-17);
    }
  }
}

TEST_CASE("another tool's name brings its defaults, which the user's own values replace", "[schedule]") {
  const Config config = config_with({"schedule.type=cosine", "schedule.num_warmup_steps=5"});
  CHECK(config.get<bool>("schedule.warmup_from_zero"));
  CHECK(config.get<double>("schedule.min_lr_ratio") == 0);
  CHECK(config.get<int64_t>("schedule.warmup_steps") == 5);
  const Config own =
      config_with({"schedule.min_lr_ratio=0.2", "schedule.num_training_steps=90", "schedule.warmup_from_zero=false"});
  CHECK(!own.get<bool>("schedule.warmup_from_zero"));
  CHECK(own.get<double>("schedule.min_lr_ratio") == 0.2);
  const Config not_given = config_with({"schedule.num_training_steps=90", "schedule.num_training_steps=null"});
  CHECK(!not_given.get<bool>("schedule.warmup_from_zero"));
  CHECK(not_given.get<double>("schedule.min_lr_ratio") == 0.1);
}

TEST_CASE("a name of another tool is refused by a schedule that has other rates than that tool's", "[schedule]") {
  const std::vector<std::pair<std::string, std::set<std::string>>> takers = {
      {"num_warmup_steps", {"constant", "cosine", "inverse_sqrt", "linear"}},
      {"num_training_steps", {"cosine", "linear"}},
      {"warmup_num_steps", {"warmup", "warmup_cosine", "warmup_decay"}},
      {"total_num_steps", {"warmup_cosine", "warmup_decay"}},
      {"cos_min_ratio", {"warmup_cosine"}},
      {"total_steps", {"one_cycle"}},
      {"warmup_min_lr", {"warmup", "warmup_decay"}},
      {"cycle_max_lr", {"cycle"}}};
  for (const auto& [name, types] : takers)
    for (const std::string& type : kTypes) {
      if (types.contains(type)) continue;
      CHECK_THAT(refusal({"schedule.type=" + type, "schedule." + name + "=1"}),
                 Catch::Contains("unknown key 'schedule." + name + "'"));
    }
}

TEST_CASE("past their end the rates stay where they are", "[schedule]") {
  const auto at = [](const std::string& type, int64_t step) {
    return schedule_with({"schedule.type=" + type, "schedule.decay_steps=30", "optimizer.lr=1"})->lr(step);
  };
  for (const std::string& type : types_with({"warmup_from_zero", "decay_steps", "min_lr_ratio"})) {
    INFO(type);
    CHECK(at(type, 30) > 0.1);
    CHECK(at(type, 31) == Approx(0.1));
    CHECK(at(type, 500) == 0.1);
  }
  CHECK(at("one_cycle", 30) == Approx(1 / 25e4));
  CHECK(at("one_cycle", 500) == at("one_cycle", 30));
}

TEST_CASE("a run shorter than its warm-up ends in the warm-up", "[schedule]") {
  for (const std::string& type : types_with({"warmup_from_zero"})) {
    INFO(type);
    check_rates(rates_of({"schedule.type=" + type, "train.steps=3", "optimizer.lr=0.11"}, 3), {0.01, 0.02, 0.03},
                1e-15);
  }
}

TEST_CASE("DeepSpeed's types wait over skipped steps, the others go on", "[schedule]") {
  const Words linear = {"schedule.warmup_steps=4", "optimizer.lr=0.5"};
  const auto third_rate = [&](const std::string& type, bool skipped) {
    Words words = linear;
    words.push_back("schedule.type=" + type);
    if (type == "warmup") words.emplace_back("schedule.warmup_type=linear");
    const auto schedule = schedule_with(words);
    for (int i = 0; i < 2; ++i) schedule->step_done({skipped, NAN});
    return schedule->lr(3);
  };
  CHECK(third_rate("warmup", false) == Approx(0.125));
  CHECK(third_rate("warmup", true) == 0);
  CHECK(third_rate("cosine", false) == Approx(0.3));
  CHECK(third_rate("cosine", true) == Approx(0.3));
}

TEST_CASE("plateau looks at evaluations where there are any, else at steps that were not skipped", "[schedule]") {
  const Words words = {"schedule.type=plateau", "schedule.patience=0", "schedule.factor=0.5"};
  const auto evaluated = schedule_with(words, true);
  for (const double loss : {3.0, 4.0, 5.0}) evaluated->step_done({false, loss});
  CHECK(evaluated->lr(4) == 0.2);
  evaluated->evaluated(2);
  CHECK(evaluated->lr(4) == 0.2);
  evaluated->evaluated(2.5);
  CHECK(evaluated->lr(4) == 0.1);

  const auto stepped = schedule_with(words, false);
  stepped->evaluated(1);
  for (const double loss : {3.0, 2.0}) stepped->step_done({false, loss});
  for (int i = 0; i < 5; ++i) stepped->step_done({true, NAN});
  CHECK(stepped->lr(8) == 0.2);
  stepped->step_done({false, 2.5});
  CHECK(stepped->lr(9) == 0.1);
}

TEST_CASE("a restored schedule goes on as the saved one, and its state is plain finite numbers", "[schedule]") {
  for (const std::string& type : kTypes) {
    INFO(type);
    Words words = {"schedule.type=" + type, "train.steps=60"};
    const Plugin plugin = plugin_for(user_config(words));
    for (const Option& option : parse_schema(plugin.desc->config_schema, type).options) {
      const std::string name = option.name;
      if (name == "warmup_steps") words.emplace_back("schedule.warmup_steps=7");
      if (name == "min_lr") words.emplace_back("schedule.min_lr=0.001");
      if (name == "cycle_up_steps") words.emplace_back("schedule.cycle_up_steps=12");
      if (name == "patience") words.insert(words.end(), {"schedule.patience=2", "schedule.cooldown=3"});
    }
    const auto saved = schedule_with(words), resumed = schedule_with(words);
    const auto loss = [](int64_t step) { return 1 + 0.1 * static_cast<double>(step * 7 % 11); };
    std::set<double> different;
    for (int64_t step = 1; step <= 50; ++step) {
      if (step == 24) resumed->restore(saved->state());
      if (step >= 24) CHECK(resumed->lr(step) == saved->lr(step));
      different.insert(saved->lr(step));
      const StepReport report{step % 5 == 0, loss(step)};
      saved->step_done(report);
      if (step >= 24) resumed->step_done(report);
      for (const auto& [name, number] : saved->state()) CHECK(std::isfinite(number));
    }
    CHECK(different.size() > 2);
  }
}

TEST_CASE("the state of another kind of schedule is refused", "[schedule]") {
  const auto cosine = schedule_with({"schedule.type=cosine"}), warmup = schedule_with({"schedule.type=warmup"});
  const auto plateau = schedule_with({"schedule.type=plateau"});
  CHECK(sentence_of([&] { warmup->restore(plateau->state()); }) ==
        "the saved state of the learning-rate schedule holds best, cooldown_left, has_best, lr, n_bad, but schedule "
        "'warmup' keeps updates; continue with the schedule.type of the checkpoint");
  CHECK_THAT(sentence_of([&] { plateau->restore(warmup->state()); }), Catch::Contains("holds updates"));
  CHECK_THAT(sentence_of([&] { cosine->restore(warmup->state()); }), Catch::Contains("keeps nothing"));
}

TEST_CASE("an option that the schedule does not have is refused with both names", "[schedule]") {
  CHECK(refusal({"schedule.type=cosine", "schedule.pct_start=0.3"}) ==
        "unknown key 'schedule.pct_start' on the command line for schedule 'cosine'; 'schedule' takes type, "
        "warmup_steps, warmup_from_zero, decay_steps, min_lr_ratio here; another plugin may have this option (`ddhost "
        "inspect NAME` shows "
        "them)");
  CHECK_THAT(refusal({"schedule.type=WarmupLR", "schedule.total_num_steps=100"}),
             Catch::Contains("'schedule.total_num_steps'"));
  CHECK_THAT(refusal({"schedule.type=plateau", "schedule.warmup_steps=5"}),
             Catch::Contains("'schedule.warmup_steps'") && Catch::Contains("'plateau'"));
}

TEST_CASE("options that contradict each other are refused with their values and the cure", "[schedule]") {
  CHECK(refusal({"schedule.type=cosine", "schedule.warmup_steps=20", "schedule.decay_steps=10"}) ==
        "schedule 'cosine', attach: schedule.decay_steps = 10 ends the decay before the warm-up "
        "(schedule.warmup_steps = 20); give more decay_steps or fewer warmup_steps");
  for (const std::string& type : types_with({"warmup_steps", "decay_steps"}))
    CHECK_THAT(refusal({"schedule.type=" + type, "schedule.warmup_steps=20", "schedule.decay_steps=10"}),
               Catch::Contains("schedule.decay_steps = 10") && Catch::Contains("schedule.warmup_steps = 20"));
  CHECK_THAT(refusal({"schedule.type=WarmupDecayLR", "schedule.total_num_steps=10"}),
             Catch::Contains("schedule.warmup_steps = 1000"));
  for (const std::string& type : types_with({"warmup_from_zero", "decay_steps", "decay_ratio"}))
    CHECK_THAT(refusal({"schedule.type=" + type, "schedule.decay_steps=20", "schedule.decay_ratio=0.8"}),
               Catch::Contains("begin the decay at step 4") && Catch::Contains("schedule.warmup_steps = 10"));
  for (const char* type : {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"})
    CHECK_THAT(refusal({ddh::str("schedule.type=", type), "schedule.warmup_num_steps=0"}),
               Catch::Contains("schedule.warmup_num_steps = 0") && Catch::Contains("above 0"));
  CHECK_THAT(refusal({"schedule.type=WarmupLR", "schedule.warmup_min_lr=0.3"}),
             Catch::Contains("schedule.min_lr = 0.3") && Catch::Contains("0.2") && Catch::Contains("optimizer's lr"));
  CHECK_THAT(refusal({"schedule.type=OneCycle"}), Catch::Contains("schedule.min_lr has no default"));
  CHECK_THAT(refusal({"schedule.type=one_cycle", "schedule.three_phase=true", "schedule.pct_start=0.6"}),
             Catch::Contains("schedule.pct_start = 0.6") && Catch::Contains("three_phase"));
  CHECK_THAT(refusal({"schedule.type=plateau", "schedule.factor=1"}), Catch::Contains("a factor below 1"));
  CHECK_THAT(refusal({"schedule.type=plateau", "schedule.min_lr=0.3"}),
             Catch::Contains("schedule.min_lr = 0.3") && Catch::Contains("optimizer's lr = 0.2"));
}

// As transformers: the number of steps is rounded up.
TEST_CASE("a warm-up below 1 is this part of all steps", "[schedule]") {
  for (const std::string& type : types_with({"warmup_steps"})) {
    INFO(type);
    const auto words = [&](const char* warmup) {
      return Words{"schedule.type=" + type, "train.steps=38", "optimizer.lr=0.5",
                   std::string("schedule.warmup_steps=") + warmup};
    };
    CHECK(rates_of(words("0.1"), 38) == rates_of(words("4"), 38));
    CHECK(rates_of(words("0.1"), 38) != rates_of(words("5"), 38));
    CHECK_THAT(refusal(words("2.5")), Catch::Contains("schedule.warmup_steps = 2.5") && Catch::Contains("below 1"));
  }
}

TEST_CASE("values that no schedule could use are refused", "[schedule]") {
  CHECK_THAT(refusal({"schedule.type=sine"}),
             Catch::Contains("no schedule 'sine'") && Catch::Contains("warmup_cosine"));
  CHECK_THAT(refusal({"schedule.warmup_steps=-1"}), Catch::Contains("at least 0"));
  CHECK_THAT(refusal({"schedule.type=warmup", "schedule.warmup_type=cubic"}), Catch::Contains("one of log, linear"));
  CHECK_THAT(refusal({"schedule.type=OneCycleLR", "schedule.cycle_momentum=true"}), Catch::Contains("cycle_momentum"));
  CHECK_THAT(refusal({"schedule.decay_steps=0"}), Catch::Contains("at least 1"));
}

TEST_CASE("the effective section has the schedule's own name and defaults, and is accepted again", "[schedule]") {
  const Config config = config_with({"schedule.type=WarmupLR", "schedule.warmup_num_steps=50"});
  CHECK(config.text("schedule.type") == "warmup");
  CHECK(config.get<int64_t>("schedule.warmup_steps") == 50);
  CHECK(config.text("schedule.warmup_type") == "log");
  CHECK(config.get<double>("schedule.min_lr") == 0);
  CHECK(config.find("schedule.max_lr")->value.is_null());
  CHECK(config.find("schedule.pct_start") == nullptr);
  for (const std::string& type : kTypes) {
    Words words = {"schedule.type=" + type, "train.steps=3"};
    if (type == "cycle") words.emplace_back("schedule.min_lr=0.01");
    const Json section = config_with(words).effective()["schedule"];
    Words again = {"train.steps=3"};
    for (const auto& [name, value] : section.items()) again.push_back(ddh::str("schedule.", name, "=", value.dump()));
    CHECK(config_with(again).effective()["schedule"] == section);
  }
}

TEST_CASE("every schedule is linked into this test, and its class in DeepSpeed or torch names it too", "[schedule]") {
  std::set<std::string> sources;
  for (const auto& file : std::filesystem::directory_iterator(DDHOST_SOURCE_DIR "/plugins/schedules"))
    if (file.path().extension() == ".cpp") sources.insert(file.path().stem().string());
  CHECK(std::set<std::string>(kTypes.begin(), kTypes.end()) == sources);
  CHECK(sources.contains("constant"));
  const std::map<std::string, std::string> classes = {
      {"OneCycleLR", "one_cycle"},       {"ReduceLROnPlateau", "plateau"},    {"WarmupLR", "warmup"},
      {"WarmupDecayLR", "warmup_decay"}, {"WarmupCosineLR", "warmup_cosine"}, {"OneCycle", "cycle"},
      {"LRRangeTest", "range_test"}};
  for (const auto& [word, id] : classes) {
    CHECK(plugin_for(user_config({"schedule.type=" + word})).id() == id);
    CHECK(plugin_for(user_config({"schedule.plugin=" + word})).id() == id);
  }
}
