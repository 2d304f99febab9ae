// SPDX-License-Identifier: Apache-2.0
//
// The op lists for strategies and the engine: order, flags, and what each program trains.
#include "engine/settings/run_programs.hpp"

#include <catch2/catch.hpp>

#include "ddh/sdk/model.hpp"

using namespace ddhost;

namespace {

// A letter for each op: the unit's number and f (forward), b (backward), r (second forward), e (evaluation); then what
// its flags say: ! gradients are ready, ~ runs again, / forward only, - the input's gradient alone.
std::string text(const ProgramOps& program) {
  std::string out;
  for (const ddh_op& op : program.ops()) {
    out += (out.empty() ? "" : " ") + std::to_string(op.unit);
    out += op.phase == DDH_PHASE_FORWARD    ? "f"
           : op.phase == DDH_PHASE_BACKWARD ? "b"
           : op.phase == DDH_PHASE_EVAL     ? "e"
                                            : "r";
    if ((op.flags & DDH_OP_GRADS_READY) != 0) out += "!";
    if ((op.flags & DDH_OP_RECOMPUTED) != 0) out += "~";
    if ((op.flags & DDH_OP_FORWARD_ONLY) != 0) out += "/";
    if ((op.flags & DDH_OP_INPUT_GRAD_ONLY) != 0) out += "-";
  }
  return out;
}

// Three units with a parameter each; the first's is tied to the last, the second's is frozen.
class Units {
 public:
  Units() : desc_("units") {
    for (int32_t u = 0; u < 3; ++u) desc_.add_param(u, "p" + std::to_string(u), {4}, {}, u == 1 ? DDH_PARAM_FROZEN : 0);
    desc_.add_unit("first", {0});
    desc_.add_unit("middle", {1});
    desc_.add_unit("last", {2, 0});
  }
  int32_t add(int32_t kind, std::vector<int32_t> units, std::vector<uint32_t> flags = {},
              std::vector<uint8_t> trainable = {}, std::string eval = "") {
    std::string name = "program " + std::to_string(n_programs_++);
    return desc_.add_program({kind,
                              std::move(name),
                              std::move(units),
                              {},
                              8,
                              "samples",
                              std::move(trainable),
                              0,
                              std::move(flags),
                              std::move(eval)});
  }
  const ddh_model_desc& model() { return desc_.get(); }
  std::string ops(int32_t program, uint32_t recompute_every = 0) {
    return text(ProgramOps(model(), program, 1, recompute_every));
  }

 private:
  ddh::ModelDesc desc_;
  int n_programs_ = 0;
};

constexpr uint32_t kForwardOnly = DDH_POSITION_FORWARD_ONLY, kInputGrad = DDH_POSITION_INPUT_GRAD_ONLY;

}  // namespace

TEST_CASE("a training program runs its units forward and in reverse; evaluations and updates only forward") {
  Units u;
  CHECK(u.ops(u.add(DDH_PROGRAM_TRAIN, {0, 1, 2})) == "0f 1f 2f 2b! 1b! 0b!");
  CHECK(u.ops(u.add(DDH_PROGRAM_EVAL, {0, 1, 2}), 1) == "0e 1e 2e");
  CHECK(u.ops(u.add(DDH_PROGRAM_UPDATE, {0, 1}), 1) == "0e 1e");
}

TEST_CASE("a recomputed forward is marked as such, and comes right before its backward") {
  Units u;
  const int32_t train = u.add(DDH_PROGRAM_TRAIN, {0, 1, 2});
  CHECK(u.ops(train, 1) == "0f~ 1f~ 2f~ 2r 2b! 1r 1b! 0r 0b!");
  CHECK(u.ops(train, 2) == "0f 1f~ 2f 2b! 1r 1b! 0b!");
}

TEST_CASE("the gradients of a unit that occurs twice are ready after the backward of its first position") {
  Units u;
  CHECK(u.ops(u.add(DDH_PROGRAM_TRAIN, {0, 1, 1, 2})) == "0f 1f 1f 2f 2b! 1b 1b! 0b!");
  CHECK(u.ops(u.add(DDH_PROGRAM_TRAIN, {0, 1, 1, 2}, {0, kInputGrad, 0, 0})) == "0f 1f- 1f 2f 2b! 1b! 1b- 0b!");
  CHECK(u.ops(u.add(DDH_PROGRAM_TRAIN, {1, 0, 1, 2}, {kForwardOnly, 0, 0, 0})) == "1f/ 0f 1f 2f 2b! 1b! 0b!");
}

TEST_CASE(
    "a forward-only position has no backward and no recomputation; one that gives the input's gradient gives no "
    "others") {
  Units u;
  const int32_t forward_only = u.add(DDH_PROGRAM_TRAIN, {1, 0, 2}, {kForwardOnly, 0, 0}),
                input_grad = u.add(DDH_PROGRAM_TRAIN, {0, 1, 2}, {0, kInputGrad, 0}),
                eval = u.add(DDH_PROGRAM_EVAL, {1, 0, 1}, {kForwardOnly, 0, kInputGrad});
  CHECK(u.ops(forward_only) == "1f/ 0f 2f 2b! 0b!");
  CHECK(u.ops(forward_only, 1) == "1f/ 0f~ 2f~ 2r 2b! 0r 0b!");
  CHECK(u.ops(input_grad) == "0f 1f- 2f 2b! 1b- 0b!");
  CHECK(u.ops(input_grad, 1) == "0f~ 1f~- 2f~ 2r 2b! 1r- 1b- 0r 0b!");
  CHECK(u.ops(eval) == "1e 0e 1e");  // nothing is kept there anyway
}

TEST_CASE("the units after a use are listed to the end of the step") {
  Units u;
  const int32_t program = u.add(DDH_PROGRAM_TRAIN, {0, 2});
  const ProgramOps ops(u.model(), program, 2, 0);
  const ddh_unit_use use = ops.use(0, 2);
  CHECK(use.unit == 2);
  CHECK(use.phase == DDH_PHASE_BACKWARD);
  CHECK(std::vector<int32_t>(use.next, use.next + use.n_next) == std::vector<int32_t>{0, 0, 2, 2, 0});
  CHECK(ops.use(1, 3).n_next == 0);
}

TEST_CASE("a run has the programs that it trains, their evaluations and, where asked, the updates: no other") {
  Units u;
  u.add(DDH_PROGRAM_TRAIN, {0, 1, 2}, {}, {}, "program 2");
  u.add(DDH_PROGRAM_TRAIN, {0, 2}, {}, {0, 0, 1}, "program 2");
  u.add(DDH_PROGRAM_EVAL, {0, 1, 2});
  u.add(DDH_PROGRAM_EVAL, {0, 2});
  u.add(DDH_PROGRAM_UPDATE, {0, 1});
  const auto programs_of = [&](const std::vector<int32_t>& trained, bool updates) {
    std::vector<int32_t> out;
    std::vector<int32_t> others = eval_programs_of(u.model(), trained);
    if (updates) others.insert(others.end(), {4});
    const RunPrograms programs(u.model(), trained, others, 3, 0);
    for (const ddh_run_program& program : programs.described()) {
      out.push_back(program.program);
      CHECK(program.micro_batches == (program.trains != nullptr ? 3U : 1U));
    }
    return out;
  };
  CHECK(programs_of({0, 1, 0}, false) == std::vector<int32_t>{0, 1, 2});
  CHECK(programs_of({1}, true) == std::vector<int32_t>{1, 2, 4});
  CHECK(update_programs_of(u.model()) == std::vector<int32_t>{4});
  CHECK(ProgramOps(u.model(), 0, 1, 0).trains() == std::vector<uint8_t>{1, 0, 1});
  CHECK(ProgramOps(u.model(), 1, 1, 0).trains() == std::vector<uint8_t>{0, 0, 1});
  CHECK(ProgramOps(u.model(), 4, 1, 0).trains().empty());
}
