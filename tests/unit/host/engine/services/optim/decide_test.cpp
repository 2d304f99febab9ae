// SPDX-License-Identifier: Apache-2.0
//
// decide, as a strategy calls it through the table of ddh.optim: once a step, after the last backward.
#include <catch2/catch.hpp>
#include <cstring>

#include "config/config.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "launch/kv.hpp"
#include "launch/progress.hpp"

using namespace ddhost;

namespace {

int messages = 0;  // of the transport

// A transport of one rank.
ddh_comm_backend_api make_backend() {
  ddh_comm_backend_api t{};
  t.struct_size = sizeof t;
  t.world = [](ddh_inst*) noexcept { return reinterpret_cast<ddh_group*>(&messages); };
  t.group_info = [](ddh_inst*, ddh_group*, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err*) noexcept -> ddh_rc {
    *rank = 0;
    *size = 1;
    *caps = 0;
    return DDH_OK;
  };
  t.all_gather = [](ddh_inst*, const ddh_coll* c, ddh_err*) noexcept -> ddh_rc {
    ++messages;
    std::memcpy(c->recv, c->send, c->count);
    return DDH_OK;
  };
  return t;
}

// Keeps no slots and needs nothing.
ddh_optimizer_api make_optimizer() {
  ddh_optimizer_api t{};
  t.struct_size = sizeof t;
  t.slot_count = [](ddh_inst*) noexcept -> uint32_t { return 0; };
  t.needs = [](ddh_inst*, int32_t) noexcept -> int32_t { return DDH_NEEDS_NOTHING; };
  return t;
}

// A rank between its backward and its update, for a model of two parameters.
class OneRank {
 public:
  OneRank()
      : seat_{0, std::make_shared<Nodes>(1, 0), kv_, record_, 1},
        services_(seat_, std::make_unique<Config>(), nullptr),
        strategy_(services_, "strategy:test") {
    params_[0].name = "a";
    params_[1].name = "b";
    program_.metrics = metric_names_;
    desc_.n_params = 2;
    desc_.params = param_pointers_;
    desc_.programs = program_pointers_;
    desc_.n_programs = 1;
    const auto& cpu = ddhost::test::cpu_device();
    services_.device = std::make_unique<Device>(ddhost::test::cpu_inst(), cpu, DDH_CAP_HOST_MEMORY, "cpu", 0);
    services_.memory.use(*services_.device);
    services_.staging = std::make_unique<Staging>(services_.memory);
    services_.comm = std::make_unique<Comm>(nullptr, &backend_, nullptr, services_.clock);
    services_.windows = std::make_unique<Windows>(*services_.comm, services_.memory, *services_.staging,
                                                  WindowSettings{false, false, 1});
    services_.step = std::make_unique<StepCoordinator>(*services_.comm, *services_.device, *services_.windows, desc_,
                                                       StepSettings{0, 0, true, false});
    services_.step->set_optimizers({{nullptr, &optimizer_, "optimizer"}}, {&run_, 1});
    metrics_.begin(1, 2);
    metrics_.counts(0)[0] = 3;
    metrics_.counts(1)[0] = 5;
  }
  void begin(int64_t step) { services_.step->begin(step, 0, 0.1, 1.0, 1.0); }
  void set_metrics() { services_.step->set_metrics(metrics_, {}); }
  // The counts are there when decide takes the results.
  void set_metrics_later(const std::string& failure) {
    metrics_.begin(1, 2);
    services_.step->set_metrics(metrics_, {}, [this, failure] {
      if (!failure.empty()) ddh::fail(DDH_INTERNAL, failure);
      metrics_.counts(0)[0] = 3;
      metrics_.counts(1)[0] = 1;
    });
  }
  // The sentence of a decide through the table, or "".
  std::string decide() {
    const auto& table = *static_cast<const ddh_optim_api*>(strategy_.host().get_interface(&strategy_, DDH_OPTIM_IFACE));
    ddh::ErrorBuffer err;
    block_ = nullptr;
    code_ = table.decide(&strategy_, &block_, err.get());
    return code_ == DDH_OK ? "" : err.text();
  }
  // The same of decide_in, for this rank alone.
  std::string decide_in(uint32_t flags) {
    const auto& table = *static_cast<const ddh_optim_api*>(strategy_.host().get_interface(&strategy_, DDH_OPTIM_IFACE));
    const ddh_decide_args args{sizeof(ddh_decide_args), flags, nullptr};
    ddh::ErrorBuffer err;
    block_ = nullptr;
    code_ = table.decide_in(&strategy_, &args, &block_, err.get());
    return code_ == DDH_OK ? "" : err.text();
  }
  StepCoordinator& step() { return *services_.step; }
  [[nodiscard]] ddh_rc code() const { return code_; }
  [[nodiscard]] const ddh_step_block* block() const { return block_; }

 private:
  ddh_param_desc params_[2] = {};
  const ddh_param_desc* param_pointers_[2] = {&params_[0], &params_[1]};
  const char* metric_names_[1] = {"loss"};
  ddh_program_desc program_{};
  const ddh_program_desc* program_pointers_[1] = {&program_};
  ddh_model_desc desc_{};
  const uint8_t trains_[2] = {0, 0};  // decide asks for no gradient
  const ddh_run_program run_{sizeof(ddh_run_program), 0, nullptr, sizeof(ddh_op), 0, 1, trains_};
  const ddh_optimizer_api optimizer_ = make_optimizer();
  const ddh_comm_backend_api backend_ = make_backend();
  KvLocal kv_;
  Progress progress_{1};
  ProgressOfRank record_{progress_, 0};
  const RankSeat seat_;
  RankServices services_;
  PluginSeat strategy_;
  MicroMetrics metrics_;
  const ddh_step_block* block_ = nullptr;
  ddh_rc code_ = DDH_OK;
};

}  // namespace

TEST_CASE("decide before the last backward is refused with a sentence, and works after it") {
  OneRank rank;
  for (const int64_t step : {1, 2}) {  // the metrics of one step don't stand in for those of the next
    rank.begin(step);
    CHECK_THAT(rank.decide(), Catch::Contains("decide before the last backward of step " + std::to_string(step)));
    CHECK(rank.code() == DDH_FAILED_PRECONDITION);
    rank.set_metrics();
    CHECK(rank.decide().empty());
    REQUIRE(rank.block() != nullptr);
    CHECK(rank.block()->inv_scale == 1.0 / 8);
  }
}

TEST_CASE("a second decide in a step is refused with a sentence") {
  OneRank rank;
  rank.begin(7);
  rank.set_metrics();
  CHECK(rank.decide().empty());
  CHECK_THAT(rank.decide(), Catch::Contains("decide twice in step 7"));
  CHECK(rank.code() == DDH_FAILED_PRECONDITION);
}

TEST_CASE("results that are taken in decide are those of its step, and their failure is that of decide") {
  OneRank rank;
  rank.begin(1);
  rank.set_metrics_later("the copy was lost");
  CHECK_THAT(rank.decide(), Catch::Contains("the copy was lost"));
  CHECK(rank.code() == DDH_INTERNAL);
  rank.begin(2);
  rank.set_metrics_later("");
  CHECK(rank.decide().empty());
  REQUIRE(rank.block() != nullptr);
  CHECK(rank.block()->inv_scale == 1.0 / 4);
  rank.begin(3);
  rank.set_metrics();  // nothing is taken
  CHECK(rank.decide().empty());
  CHECK(rank.block()->inv_scale == 1.0 / 4);
}

TEST_CASE("a quiet decision sends nothing, and its metrics and requests arrive with the next one of the world") {
  OneRank rank;
  rank.step().set_rhythm(3, /*scales_loss=*/false);
  for (const int64_t step : {1, 2}) {
    rank.begin(step);
    rank.set_metrics();
    messages = 0;
    CHECK(rank.decide_in(DDH_DECIDE_QUIET).empty());
    CHECK(messages == 0);
    REQUIRE(rank.block() != nullptr);
    CHECK(rank.block()->inv_scale == 1.0 / 8);
    CHECK(rank.block()->rank_targets == 8);
    CHECK(rank.block()->group_targets == 8);
    CHECK(rank.step().outcome().is_quiet);
    CHECK(rank.step().outcome().requests.saving);  // nobody knows whether the others have written theirs
  }
  rank.begin(3);
  rank.set_metrics();
  CHECK_THAT(rank.decide_in(DDH_DECIDE_QUIET), Catch::Contains("a step of its rhythm (world_every 3)"));
  CHECK(rank.code() == DDH_FAILED_PRECONDITION);
  rank.begin(3);
  rank.set_metrics();
  CHECK(rank.decide_in(0).empty());
  CHECK(messages == 1);
  REQUIRE(rank.step().outcome().quiet.size() == 2);
  CHECK(rank.step().outcome().quiet[1].counts.at(0) == 8);
  CHECK_FALSE(rank.step().outcome().requests.saving);
  rank.begin(4);
  rank.set_metrics();
  CHECK(rank.decide().empty());
  CHECK(rank.step().outcome().quiet.empty());
}

TEST_CASE("quiet steps at the end share their metrics by a message of their own") {
  OneRank rank;
  rank.step().set_rhythm(10, /*scales_loss=*/false);
  rank.begin(1);
  rank.set_metrics();
  CHECK(rank.decide_in(DDH_DECIDE_QUIET).empty());
  const std::vector<FoldedMetrics> shared = rank.step().share_quiet_metrics();
  REQUIRE(shared.size() == 1);
  CHECK(shared[0].counts.at(0) == 8);
  CHECK(rank.step().share_quiet_metrics().empty());
}

TEST_CASE("decide_in is refused with loss scaling, with unknown flags and after another decision") {
  OneRank rank;
  rank.step().set_rhythm(3, /*scales_loss=*/true);
  rank.begin(1);
  rank.set_metrics();
  CHECK_THAT(rank.decide_in(DDH_DECIDE_QUIET), Catch::Contains("with loss scaling"));
  CHECK(rank.code() == DDH_FAILED_PRECONDITION);
  rank.step().set_rhythm(3, /*scales_loss=*/false);
  CHECK_THAT(rank.decide_in(6), Catch::Contains("the flags 6"));
  CHECK(rank.decide().empty());
  CHECK_THAT(rank.decide_in(DDH_DECIDE_QUIET), Catch::Contains("decide_in twice in step 1"));
}
