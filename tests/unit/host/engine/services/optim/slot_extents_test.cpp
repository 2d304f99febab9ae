// SPDX-License-Identifier: Apache-2.0
//
// Slots of one element for each block, and of a size of their own: how many elements they have, where the part of a range is,
// what is refused, and that the checks of run.check_plugins find forbidden writes to them.
#include <array>
#include <catch2/catch.hpp>

#include "engine/services/optim/step_coordinator.hpp"

using namespace ddhost;

namespace {

constexpr uint64_t kNumels[] = {130, 64, 1000};

// An optimizer with a slot of each extent. Parameters 0 and 2 are needed whole and use the sized slot.
struct Given {
  int32_t need = DDH_NEEDS_WHOLE_PARAM;
  uint64_t sized = 100;
  bool writes_behind_block = false, writes_behind_sized = false;
};
Given& given_of(ddh_inst* inst) { return *reinterpret_cast<Given*>(inst); }

ddh_optimizer_api make_table(bool has_slot_numel = true) {
  ddh_optimizer_api t{};
  t.struct_size = sizeof t;
  t.needs = [](ddh_inst* inst, int32_t param) noexcept { return param == 1 ? DDH_NEEDS_NOTHING : given_of(inst).need; };
  t.slot_count = [](ddh_inst*) noexcept { return 3U; };
  t.slot = [](ddh_inst*, uint32_t index, ddh_slot_desc* out, ddh_err*) noexcept -> ddh_rc {
    constexpr std::array<ddh_slot_desc, 3> kSlots = {{{sizeof(ddh_slot_desc), DDH_U8, "code", DDH_SLOT_PER_ELEMENT, 0},
                                                      {sizeof(ddh_slot_desc), DDH_BF16, "scale", DDH_SLOT_PER_BLOCK, 0},
                                                      {sizeof(ddh_slot_desc), DDH_F64, "basis", DDH_SLOT_SIZED, 0}}};
    *out = kSlots.at(index);
    return DDH_OK;
  };
  t.slot_used = [](ddh_inst*, uint32_t index, int32_t param) noexcept -> int32_t {
    return index < 2 || param != 1 ? 1 : 0;
  };
  if (has_slot_numel)
    t.slot_numel = [](ddh_inst* inst, uint32_t, int32_t param) noexcept {
      return given_of(inst).sized + static_cast<uint64_t>(param);
    };
  t.update = [](ddh_inst* inst, const ddh_update_args* args, ddh_err*) noexcept -> ddh_rc {
    if (args->block->skip != 0) return DDH_OK;
    const ddh_optim_shard& shard = *args->shard;
    uint64_t sized = 0;
    for (uint32_t r = 0; r < shard.n_ranges; ++r) {
      const ddh_range& range = shard.ranges[r];
      auto* const code = static_cast<uint8_t*>(shard.slots[0]) + range.flat_offset;
      auto* const scale = static_cast<uint16_t*>(shard.slots[1]) + range.flat_offset / DDH_GRID;
      auto* const basis = static_cast<double*>(shard.slots[2]) + sized;
      const uint64_t blocks = (range.numel + DDH_GRID - 1) / DDH_GRID;
      for (uint64_t i = 0; i < range.numel; ++i) ++code[i];
      for (uint64_t i = 0; i < blocks; ++i) ++scale[i];
      if (given_of(inst).writes_behind_block) ++scale[blocks];
      if (range.param == 1) continue;
      const uint64_t numel = given_of(inst).sized + static_cast<uint64_t>(range.param);
      for (uint64_t i = 0; i < numel; ++i) basis[i] += args->block->lr;
      if (given_of(inst).writes_behind_sized) basis[numel] = 1;
      sized += (numel + DDH_GRID - 1) / DDH_GRID * DDH_GRID;
    }
    return DDH_OK;
  };
  return t;
}

struct Model {
  std::vector<ddh_param_desc> params{3};
  std::vector<const ddh_param_desc*> pointers;
  ddh_program_desc program{};
  const ddh_program_desc* programs[1] = {&program};
  ddh_model_desc desc{};
  ddh_run_program run{};
  const uint8_t trains[3] = {1, 1, 1};
  Model() {
    const char* names[] = {"first", "second", "third"};
    for (size_t p = 0; p < params.size(); ++p) {
      params[p].struct_size = sizeof(ddh_param_desc);
      params[p].numel = kNumels[p];
      params[p].name = names[p];
      params[p].lr_scale = p == 1 ? 2.0 : 1.0;
      pointers.push_back(&params[p]);
    }
    desc.struct_size = sizeof desc;
    desc.n_params = 3;
    desc.params = pointers.data();
    desc.programs = programs;
    desc.n_programs = 1;
    run.trains = trains;
  }
};

std::string refusal(Given given, bool has_slot_numel = true) {
  const Model model;
  const ddh_optimizer_api table = make_table(has_slot_numel);
  try {
    const Optimizers all(model.desc, {{reinterpret_cast<ddh_inst*>(&given), &table, "optimizer"}}, {&model.run, 1});
  } catch (const ddh::Error& error) {
    return error.what();
  }
  return "";
}

// A shard of all parameters, with memory for each slot.
struct Shard {
  std::array<ddh_range, 3> ranges = {{{0, 0, 0, 0, 130}, {1, 0, 0, 192, 64}, {2, 0, 0, 256, 1000}}};
  std::vector<float> master = std::vector<float>(1280), grad = std::vector<float>(1280);
  std::vector<uint8_t> code = std::vector<uint8_t>(1280);
  std::vector<uint16_t> scale = std::vector<uint16_t>(20);
  std::vector<double> basis = std::vector<double>(256);
  const float* grads[1] = {grad.data()};
  void* slots[3] = {code.data(), scale.data(), basis.data()};
  ddh_optim_shard get() {
    ddh_optim_shard out{};
    out.struct_size = sizeof out;
    out.n_ranges = 3;
    out.ranges = ranges.data();
    out.master = master.data();
    out.n_grads = 1;
    out.grads = grads;
    out.slots = slots;
    out.n_slots = 3;
    return out;
  }
};

}  // namespace

TEST_CASE("a slot has elements by its extent, and a range has a part of it", "[slots]") {
  Given given;
  const Model model;
  const ddh_optimizer_api table = make_table();
  const Optimizers all(model.desc, {{reinterpret_cast<ddh_inst*>(&given), &table, "optimizer"}}, {&model.run, 1});
  CHECK(all.slot_numel(0, 0) == 130);
  CHECK(all.slot_numel(1, 0) == 3);
  CHECK(all.slot_numel(1, 1) == 1);
  CHECK(all.slot_numel(2, 0) == 100);
  CHECK(all.slot_numel(2, 1) == 0);
  CHECK(all.slot_numel(2, 2) == 102);
  const Optimizers::Instance& o = all.instances()[0];
  const Shard shard;
  const auto part = [&](uint32_t slot, size_t range) {
    const SlotPart p = o.part(slot, shard.ranges, range);
    return std::pair(p.offset, p.bytes);
  };
  CHECK(part(0, 2) == std::pair<uint64_t, uint64_t>(256, 1000));
  CHECK(part(1, 0) == std::pair<uint64_t, uint64_t>(0, 6));
  CHECK(part(1, 2) == std::pair<uint64_t, uint64_t>(8, 32));
  CHECK(part(2, 0) == std::pair<uint64_t, uint64_t>(0, 800));
  CHECK(part(2, 2) == std::pair<uint64_t, uint64_t>(128 * 8, 816));  // 100 are rounded up to 128
}

TEST_CASE("a sized slot without whole parameters, or with too few or too many elements, is refused by name",
          "[slots]") {
  const auto refused = [](Given given, const char* word, bool has_slot_numel = true) {
    CHECK_THAT(refusal(given, has_slot_numel),
               Catch::Contains("'basis'") && Catch::Contains("'first'") && Catch::Contains(word));
  };
  CHECK(refusal({}).empty());
  refused({.need = DDH_NEEDS_NOTHING}, "DDH_NEEDS_WHOLE_PARAM");
  refused({.sized = 0}, "of 0 elements");
  refused({.sized = (uint64_t{1} << 40) + 1}, "2^40");
  refused({}, "slot_numel", false);
}

TEST_CASE("with factors on the learning rate each run of ranges gets its own part of a sized slot", "[slots]") {
  Given given;
  const Model model;
  const ddh_optimizer_api table = make_table();
  const Optimizers all(model.desc, {{reinterpret_cast<ddh_inst*>(&given), &table, "optimizer"}}, {&model.run, 1});
  const Optimizers::Instance& o = all.instances()[0];
  Shard shard;
  shard.ranges = {{{1, 0, 0, 0, 64}, {0, 0, 0, 64, 130}, {2, 0, 0, 256, 1000}}};
  const LrScales scales(model.desc);
  ddh_step_block block{};
  block.lr = 1;
  std::vector<std::pair<double, std::ptrdiff_t>> calls;  // rate, and place in the slot
  scales.for_each(o, shard.get(), block, [&](const ddh_optim_shard& part, const ddh_step_block& scaled) {
    calls.emplace_back(scaled.lr, static_cast<double*>(part.slots[2]) - shard.basis.data());
    CHECK(part.slots[1] == shard.slots[1]);
  });
  CHECK(calls == std::vector<std::pair<double, std::ptrdiff_t>>{{2.0, 0}, {1.0, 0}});
  shard.ranges = {{{0, 0, 0, 0, 130}, {1, 0, 0, 192, 64}, {2, 0, 0, 256, 1000}}};
  calls.clear();
  scales.for_each(o, shard.get(), block, [&](const ddh_optim_shard& part, const ddh_step_block& scaled) {
    calls.emplace_back(scaled.lr, static_cast<double*>(part.slots[2]) - shard.basis.data());
  });
  CHECK(calls == std::vector<std::pair<double, std::ptrdiff_t>>{{1.0, 0}, {2.0, 128}, {1.0, 128}});
}

TEST_CASE("the check of an update covers slots of every extent", "[slots]") {
  const auto checked = [](Given given) -> std::string {
    const Model model;
    const ddh_optimizer_api table = make_table();
    const Optimizers all(model.desc, {{reinterpret_cast<ddh_inst*>(&given), &table, "optimizer"}}, {&model.run, 1});
    Shard shard;
    const ddh_optim_shard of_all = shard.get();
    ddh_step_block block{};
    block.lr = 1;
    const std::array<int64_t, 3> steps = {1, 1, 1};
    const ddh_update_args args{sizeof args, 0, &of_all, &block, steps.data(), nullptr, nullptr};
    try {
      UpdateCheck(model.desc).update(all.instances()[0], args);
    } catch (const ddh::Error& error) {
      return error.what();
    }
    CHECK(shard.basis[99] == 1);
    CHECK(shard.basis[100] == 0);
    CHECK(shard.basis[128 + 101] == 1);
    CHECK(shard.scale[19] == 1);
    return "";
  };
  CHECK(checked({}).empty());
  CHECK_THAT(checked({.writes_behind_block = true}), Catch::Contains("'scale' behind the end"));
  CHECK_THAT(checked({.writes_behind_sized = true}), Catch::Contains("'basis' behind the end"));
}
