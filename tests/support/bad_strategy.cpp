// SPDX-License-Identifier: Apache-2.0
//
// bad: ddp with a fault by option: calls that end or hang the rank, failures without a reason, views, gradients, updates and
// state that are wrong. Without one it trains as ddp does.
#include "ddh/sdk/full_grads.hpp"
#include "ddh/sdk/optim_state.hpp"
#include "ddh/sdk/strategy.hpp"
#include "support/misbehave.hpp"

namespace {

using ddhost::test::Fault;
using ddhost::test::misbehave;

[[noreturn]] void throw_one() { throw 1; }

class Bad final : public ddh::Strategy {
 public:
  explicit Bad(const ddh_create& create) : Strategy(create), fault_(host, "strategy") {
    if (!hits("create")) return;
    misbehave(fault_.what, nullptr);
    if (fault_.what == "silent") throw ddh::Error(DDH_INTERNAL, "");
  }
  Bad(const Bad&) = delete;
  Bad& operator=(const Bad&) = delete;
  ~Bad() override {
    if (hits("destroy")) misbehave(fault_.what, nullptr);
  }

  void attach(const ddh_attach_args& args) override {
    args_ = ddh::copy_of(args);
    layout_ = ddh::ModelLayout(args, ddh::whole_params(host, *args.model));
    views_ = ddh::UnitViews(*args.model, layout_);
    grads_ = ddh::FullGrads(layout_, args_, DDH_REDUCE_TO_ALL);
  }
  void plan(ddh_plan&) override {}
  void materialize() override {
    for (const ddh::FlatSpace& space : layout_.spaces) {
      State& s = states_.emplace_back(State{ddh::Buffer(host, DDH_TAG_PARAM, space.value_bytes(), "parameters"),
                                            ddh::OptimState(host, space, space.ranges(0, space.numel), space.numel)});
      s.optim.init(s.params.data());
    }
    grads_.materialize(host);
  }
  void step_begin(const ddh_step_begin_args& args) override { step_ = args.step; }
  void acquire(const ddh_unit_use& use, ddh_unit_view& out) override {
    views_.fill(
        use, version_, [&](size_t s) { return states_[s].params.data(); }, [&](size_t s) { return grads_.writable(s); },
        out);
    if (!hits("acquire") || out.n_params == 0) return;
    params_.assign(out.params, out.params + out.n_params);
    out.params = params_.data();
    damage(use, out);
  }
  void release(const ddh_unit_use&) override {}
  void grads_ready(const ddh_unit_use& use) override { ddh::hand_over(use, args_, layout_, views_, grads_); }
  void step() override {
    const bool bad = hits("step");
    if (bad && fault_.what == "gradient_twice") count_again(0);
    if (bad && fault_.what == "gradient_never") {
      grads_.step_done();
    } else {
      grads_.reduce_all();
    }
    if (bad && fault_.what == "wrong_param") count_range({99, 0, 0, 0, 64});
    if (bad && fault_.what == "beyond_end") count_range({0, 0, 64, 0, uint64_t{1} << 40});
    if (bad && fault_.what == "ignores_refusal") {
      const ddh_range range{99, 0, 0, 0, 64};
      ddh::ErrorBuffer ignored;
      host.optim->add_gradient(host.h, zeros_.data(), &range, 1, ignored.get());
    }
    if (bad && fault_.what == "no_decide") return grads_.step_done();
    ddh::decide(host);
    for (size_t s = 0; s < states_.size(); ++s) {
      const float* grad = grads_.all(s);
      if (grad == nullptr || (bad && fault_.what == "update_missing" && s == 0)) continue;
      if (bad && fault_.what == "null_slot") null_slot();
      states_[s].optim.update(states_[s].params.data(), grad);
      if (bad && fault_.what == "update_twice") states_[s].optim.update(states_[s].params.data(), grad);
    }
    grads_.step_done();
    ++version_;
  }
  std::vector<ddh_state_entry> state() override {
    std::vector<ddh_state_entry> out;
    for (State& s : states_) s.optim.append_state(out, s.params.data(), {args_.rank, args_.world_size});
    if (!hits("state")) return out;
    if (fault_.what == "missing_entry") out.erase(out.begin());
    if (fault_.what == "null_data") out[0].data = nullptr;
    if (fault_.what == "wrong_param") out[0].param = 99;
    if (fault_.what == "wrong_replica") out[0].replica_count = 0;
    if (fault_.what == "more_than_asked" && ++asked_ % 2 == 0) out.pop_back();
    return out;
  }
  void state_commit() override { ++version_; }

  [[nodiscard]] const void* interface(std::string_view id) const override {
    if (id != DDH_STRATEGY_IFACE) return nullptr;
    static const ddh_strategy_api table = wrapped(*static_cast<const ddh_strategy_api*>(Strategy::interface(id)));
    return &table;
  }

 private:
  struct State {
    ddh::Buffer params;
    ddh::OptimState optim;
  };

  [[nodiscard]] bool hits(const char* call) const { return fault_.hits(call, args_.rank, step_); }

  // Faults that take the raw table: they happen before the call proper, and bypass the SDK's care for errors.
  static ddh_rc raw(ddh_inst* i, const char* call, ddh_err* err) {
    const Bad& self = ddh::self_as<Bad>(i);
    return self.hits(call) ? misbehave(self.fault_.what, err) : DDH_OK;
  }
  static ddh_strategy_api& proper() {
    static ddh_strategy_api table{};
    return table;
  }
  static ddh_strategy_api wrapped(const ddh_strategy_api& real) {
    proper() = real;
    ddh_strategy_api table = real;
    table.attach = [](ddh_inst* i, const ddh_attach_args* args, ddh_err* err) noexcept {
      ddh::self_as<Bad>(i).args_.rank = args->rank;
      const ddh_rc rc = raw(i, "attach", err);
      return rc == DDH_OK ? proper().attach(i, args, err) : rc;
    };
    table.materialize = [](ddh_inst* i, ddh_err* err) noexcept {
      const ddh_rc rc = raw(i, "materialize", err);
      return rc == DDH_OK ? proper().materialize(i, err) : rc;
    };
    table.acquire = [](ddh_inst* i, const ddh_unit_use* use, ddh_unit_view* out, ddh_err* err) noexcept {
      const ddh_rc rc = raw(i, "acquire", err);
      return rc == DDH_OK ? proper().acquire(i, use, out, err) : rc;
    };
    table.grads_ready = [](ddh_inst* i, const ddh_unit_use* use, ddh_err* err) noexcept {
      if (ddh::self_as<Bad>(i).hits("grads_ready") && ddh::self_as<Bad>(i).fault_.what == "throw") throw_one();
      return proper().grads_ready(i, use, err);
    };
    table.step = [](ddh_inst* i, ddh_err* err) noexcept {
      const ddh_rc rc = raw(i, "step", err);
      return rc == DDH_OK ? proper().step(i, err) : rc;
    };
    return table;
  }

  void damage(const ddh_unit_use& use, ddh_unit_view& out) {
    const std::string& what = fault_.what;
    ddh_param_view& first = params_[0];
    if (what == "stride_0") out.param_stride = 0;
    if (what == "stride_8") out.param_stride = 8;
    if (what == "n_params_0") out.n_params = 0;
    if (what == "null_params") out.params = nullptr;
    if (what == "null_data") first.data = nullptr;
    if (what == "odd_data") first.data = static_cast<char*>(first.data) + 1;
    if (what == "wrong_param") first.param += 1;
    if (what == "wrong_numel") first.numel += 64;
    if (what == "wrong_dtype") first.dtype = DDH_I64;
    if (what == "null_grad" && use.phase == DDH_PHASE_BACKWARD) first.grad = nullptr;
    if (what == "grad_in_forward" && use.phase == DDH_PHASE_FORWARD) first.grad = first.data;
    if (what == "wrong_mode" && use.phase == DDH_PHASE_BACKWARD) first.grad_mode = 9;
  }

  void count_range(const ddh_range& range) { ddh::call(host.optim->add_gradient, host.h, zeros_.data(), &range, 1u); }
  void count_again(int32_t param) {
    count_range({param, 0, 0, 0, std::min<uint64_t>(64, args_.model->params[param]->numel)});
  }
  void null_slot() {
    const ddh_range range{0, 0, 0, 0, std::min<uint64_t>(64, args_.model->params[0]->numel)};
    const float* grads[] = {zeros_.data()};
    std::vector<void*> slots(host.optim->slot_count(host.h), nullptr);
    ddh_optim_shard shard{};
    shard.struct_size = sizeof shard;
    shard.n_ranges = 1;
    shard.ranges = &range;
    shard.master = zeros_.data();
    shard.n_grads = 1;
    shard.grads = grads;
    shard.slots = slots.data();
    shard.n_slots = static_cast<uint32_t>(slots.size());
    ddh::call(host.optim->update, host.h, &shard, nullptr);
  }

  const Fault fault_;
  ddh_attach_args args_{};
  int64_t step_ = 0;
  int asked_ = 0;
  ddh::ModelLayout layout_;
  ddh::UnitViews views_;
  std::vector<State> states_;  // per space
  std::vector<ddh_param_view> params_;
  std::vector<float> zeros_ = std::vector<float>(64);
  ddh::FullGrads grads_;
  uint64_t version_ = 1;
};

constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_ALLOC_IFACE,  DDH_FLATOPS_IFACE, DDH_WINDOW_IFACE,
                                  DDH_OPTIM_IFACE,  DDH_PARAMS_IFACE, DDH_STREAM_IFACE,  nullptr};

}  // namespace

DDH_CXX_PLUGIN(Bad, strategy, "bad", "0.1.0", "mistakes on purpose, for tests",
               R"({"properties": {)" DDH_FAULT_SCHEMA R"(}})", kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_STREAM_ORDERED);
