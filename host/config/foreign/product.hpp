// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/product.hpp: three keys of which one is the product of the others and of the number of ranks, such as the
// batch of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/foreign/given_values.hpp"

namespace ddhost {

class Product {
 public:
  // All must outlive this object.
  Product(const ForeignProduct& keys, const ForeignTable& table, const ForeignContext& context, GivenValues& given)
      : keys_(keys), table_(table), context_(context), given_(given) {}

  // Adds what is missing, as the other program does it: by division without remainder.
  void complete();

  // What does not multiply out. With `may_be_missing` a file without any of the three is none.
  [[nodiscard]] std::optional<Translation::Refusal> mistake(bool may_be_missing) const;

 private:
  [[nodiscard]] const GivenValue* find(const std::string& name) const { return given_.find(name); }
  [[nodiscard]] bool is_bad() const;
  [[nodiscard]] bool is_number(const std::string& name) const;
  [[nodiscard]] int64_t number(const std::string& name) const;
  [[nodiscard]] int64_t ranks() const;
  void take_from_user(const std::string& name, const std::optional<Json>& own);
  void take_from_user();
  void derive(const std::string& name, int64_t value);
  void divide();

  const ForeignProduct& keys_;
  const ForeignTable& table_;
  const ForeignContext& context_;
  GivenValues& given_;
};

}  // namespace ddhost
