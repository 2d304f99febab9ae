// SPDX-License-Identifier: Apache-2.0
//
// The table of ddh.config. A plugin may read the options of its own section, and the keys of the host that
// ddh/service/config.h promises. Other keys may be renamed at any time, so plugins can't read them.
#include <algorithm>
#include <array>
#include <string_view>

#include "engine/services/tables/tables.hpp"

namespace ddhost {
namespace {

using ddh::guard;
using detail::not_null;
using detail::required;
using detail::seat_of;
using detail::services_of;

struct PromisedKey {
  std::string_view kind;  // who may read it; empty: every plugin
  std::string_view key;
};
constexpr std::array<PromisedKey, 11> kPromised = {{{"", "run.seed"},
                                                    {"", "run.name"},
                                                    {"", "run.dir"},
                                                    {"model", "data.path"},
                                                    {"model", "data.val_path"},
                                                    {"model", "data.val_fraction"},
                                                    {"model", "data.micro_batch"},
                                                    {"model", "data.dummy_samples"},
                                                    {"model", "precision.compute"},
                                                    {"strategy", "device.plugin"},
                                                    {"comm", "launch.max_restarts"}}};

// What to use instead of a key that plugins must not read.
struct Substitute {
  std::string_view key, instead;
};
constexpr std::array<Substitute, 9> kSubstitutes = {
    {{"run.nproc", "world_size of ddh_attach_args or ddh_comm_init"},
     {"run.ranks_per_node", "node, local_rank and ranks_per_node of ddh_attach_args or ddh_comm_init"},
     {"train.reduce_block", "reduce_block of ddh_attach_args or ddh_comm_init"},
     {"train.reduce_order", "reduce_order of ddh_attach_args"},
     {"train.grad_accum_steps", "micro_batches of ddh_run_program"},
     {"train.steps", "steps of ddh_schedule_args"},
     {"train.programs", "programs of ddh_attach_args"},
     {"precision.compute", "compute_dtype of ddh_attach_args, or the dtype of a view"},
     {"optimizer.lr", "lr of ddh_step_block or ddh_schedule_args"}}};

constexpr uint64_t kMaxChoiceBytes = 256;

bool is_option_of(const PluginSeat& seat, std::string_view key) {
  return key.size() > seat.section.size() && key.starts_with(seat.section) && key[seat.section.size()] == '.';
}

const char* agree(PluginSeat& seat, const std::string& key, const std::string& mine) {
  RankServices& s = seat.services;
  if (seat.kind == "monitor")
    ddh::fail(DDH_PERMISSION_DENIED, seat.name, " calls agree, for which all ranks must meet, but a monitor exists on ",
              "rank 0 alone; fix the plugin");
  if (!is_option_of(seat, key))
    ddh::fail(DDH_PERMISSION_DENIED, seat.name, " wants to set '", key,
              "'; it may only set options of its own section '", seat.section, "'");
  std::array<char, kMaxChoiceBytes> choice{};
  if (mine.size() >= choice.size())
    ddh::fail(DDH_OUT_OF_RANGE, "the choice for '", key, "' has ", mine.size(), " bytes, but at most 255 fit");
  mine.copy(choice.data(), mine.size());
  required(s.comm, "ddh.config agree").broadcast_bytes(choice.data(), choice.size(), 0, key.c_str());
  s.config.set_measured(key, choice.data());
  return seat.keep(s.config.text(key));
}

const RunConfig& readable(void* h, const char* key) {
  PluginSeat& seat = seat_of(h);
  seat.require_readable(not_null(key, "the key"));
  seat.note_read(key);
  return seat.config();
}

}  // namespace

const ddh_config_api detail::kConfigTable = {
    sizeof(ddh_config_api),
    0,
    [](void* h, const char* key, int64_t* out, ddh_err* err) noexcept {
      return guard(err, [&] { *not_null(out, "out") = readable(h, key).integer(key); });
    },
    [](void* h, const char* key, double* out, ddh_err* err) noexcept {
      return guard(err, [&] { *not_null(out, "out") = readable(h, key).get<double>(key); });
    },
    [](void* h, const char* key, const char** out, ddh_err* err) noexcept {
      return guard(err, [&] { *not_null(out, "out") = seat_of(h).keep(readable(h, key).text(key)); });
    },
    [](void* h, const char* key, double* out, uint32_t cap, uint32_t* n, ddh_err* err) noexcept {
      return guard(err, [&] {
        const auto values = readable(h, key).get<std::vector<double>>(key);
        std::copy_n(values.begin(), std::min<size_t>(cap, values.size()), cap == 0 ? out : not_null(out, "out"));
        *not_null(n, "n") = static_cast<uint32_t>(values.size());
      });
    },
    [](void* h, const char* key, const char* mine, const char** out, ddh_err* err) noexcept {
      return guard(err, [&] {
        *not_null(out, "out") = agree(seat_of(h), not_null(key, "the key"), not_null(mine, "the choice"));
      });
    },
    [](void* h, const char* key, const char** out, uint32_t cap, uint32_t* n, ddh_err* err) noexcept {
      return guard(err, [&] {
        const auto values = readable(h, key).get<std::vector<std::string>>(key);
        const size_t n_fit = std::min<size_t>(cap, values.size());
        for (size_t i = 0; i < n_fit; ++i) not_null(out, "out")[i] = seat_of(h).keep(values[i]);
        *not_null(n, "n") = static_cast<uint32_t>(values.size());
      });
    },
};

void PluginSeat::require_readable(const char* key) const {
  const std::string_view wanted = key;
  if (is_option_of(*this, wanted)) return;
  if (std::any_of(kPromised.begin(), kPromised.end(), [&](const PromisedKey& promised) {
        return promised.key == wanted && (promised.kind.empty() || promised.kind == kind);
      }))
    return;
  const auto* const other = std::find_if(kSubstitutes.begin(), kSubstitutes.end(),
                                         [&](const Substitute& substitute) { return substitute.key == wanted; });
  ddh::fail(
      DDH_PERMISSION_DENIED, name, " reads '", key, "', which is not among the keys that a ", kind,
      " is promised (ddh/service/config.h); use ",
      other == kSubstitutes.end() ? "an option of its own section '" + section + "'" : std::string(other->instead));
}

void PluginSeat::note_read(const char* key) {
  const std::lock_guard lock(mutex_);
  read_.insert(key);
}
std::set<std::string> PluginSeat::read_keys() const {
  const std::lock_guard lock(mutex_);
  return read_;
}

const char* PluginSeat::keep(const std::string& text) {
  const std::lock_guard lock(mutex_);
  return kept_.insert(text).first->c_str();
}

}  // namespace ddhost
