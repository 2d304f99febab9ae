// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/named_numbers.hpp: state variables of schedules and optimizers, which a checkpoint saves by name.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>

#include "ddh/ddh.h"
#include "engine/calls/plugin_caller.hpp"

namespace ddhost {

using SavedNumbers = std::map<std::string, double>;

// The numbers of one instance. `Number`: ddh_schedule_number or ddh_optimizer_number.
template <class Number, class Table>
class NamedNumbers {
 public:
  // All outlive this object.
  NamedNumbers(ddh_inst* inst, const Table& table, const PluginCaller& caller)
      : inst_(inst), table_(table), caller_(caller) {}

  // Their addresses, by name. Throws if one has neither name nor address, or a name occurs twice.
  [[nodiscard]] std::map<std::string, double*> addresses() const {
    std::map<std::string, double*> all;
    if (table_.number_count == nullptr || table_.number == nullptr) return all;
    const uint32_t count = table_.number_count(inst_);
    if (count > kMost)
      caller_.blame(PluginCall::kNumber, {}, "has ", count, " numbers, at most ", kMost, " are supported");
    for (uint32_t i = 0; i < count; ++i) {
      Number number{sizeof(Number), 0, nullptr, nullptr};
      caller_(PluginCall::kNumber, table_.number, inst_, i, &number);
      if (number.name == nullptr || *number.name == '\0' || number.value == nullptr)
        caller_.blame(PluginCall::kNumber, {}, "gave number ", i, " without a name or a value (NULL)");
      if (!all.emplace(number.name, number.value).second)
        caller_.blame(PluginCall::kNumber, {}, "gave two numbers the name '", number.name, "'");
    }
    return all;
  }
  [[nodiscard]] SavedNumbers values() const {
    SavedNumbers out;
    for (const auto& [name, value] : addresses()) out[name] = *value;
    return out;
  }
  // Error: the instance has other names than `saved`, or does not keep the values. `what`: "the saved state of the
  // learning-rate schedule"; `cure`: ends the sentence.
  void restore(const SavedNumbers& saved, const std::string& what, const std::string& cure) const {
    const std::string saved_names = names_of(saved), own_names = names_of(values());
    if (saved_names != own_names)
      ddh::fail(DDH_FAILED_PRECONDITION, what, " holds ", saved_names, ", but ", caller_.name(), " keeps ", own_names,
                "; ", cure);
    for (const auto& [name, address] : addresses()) *address = saved.at(name);
    require_kept(saved);
  }

 private:
  static constexpr uint32_t kMost = 4096;

  static std::string names_of(const SavedNumbers& numbers) {
    std::string list;
    for (const auto& [name, number] : numbers) list += (list.empty() ? "" : ", ") + name;
    return list.empty() ? "nothing" : list;
  }
  // An instance that gives the address of a copy would go on with its first values.
  void require_kept(const SavedNumbers& saved) const {
    const SavedNumbers now = values();
    if (names_of(now) != names_of(saved))
      caller_.blame(PluginCall::kNumber, {}, "gave ", names_of(saved), " and then ", names_of(now));
    for (const auto& [name, value] : now) {
      const double written = saved.at(name);
      if (std::bit_cast<uint64_t>(value) == std::bit_cast<uint64_t>(written)) continue;  // so that NaN equals itself
      caller_.blame(PluginCall::kNumber, {}, "gave number '", name, "' with the value ", value,
                    " after the host had written ", written,
                    ", from the checkpoint, to the address that it gave for it");
    }
  }

  ddh_inst* inst_;
  const Table& table_;
  const PluginCaller& caller_;
};

}  // namespace ddhost
