// SPDX-License-Identifier: Apache-2.0
#include "config/foreign/product.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr int64_t kLargestFactor = 1 << 20;  // a product of two and of the ranks fits into 64 bits

int64_t quotient(int64_t a, int64_t b) { return b <= 0 ? 0 : a / b; }

}  // namespace

void Product::complete() {
  if (is_bad()) return;
  take_from_user();
  if (is_number(keys_.all))  // "auto" of a factor follows from a product that is given
    for (const std::string* name : {&keys_.each, &keys_.times})
      if (const GivenValue* factor = find(*name); factor != nullptr && factor->is_guess) given_.erase(*name);
  const GivenValue* const all = find(keys_.all);
  if (all == nullptr || is_number(keys_.all)) return divide();
  const ForeignOrigin from = all->from;  // "auto" of the product
  given_.erase(keys_.all);
  divide();
  given_.set(keys_.all, {Json(number(keys_.each) * number(keys_.times) * ranks()), from, false, false});
}

void Product::divide() {
  const bool all = is_number(keys_.all), each = is_number(keys_.each), times = is_number(keys_.times);
  if (!all && !each) return;
  if (!times) derive(keys_.times, all && each ? quotient(quotient(number(keys_.all), number(keys_.each)), ranks()) : 1);
  if (!each) derive(keys_.each, quotient(quotient(number(keys_.all), ranks()), number(keys_.times)));
}

std::optional<Translation::Refusal> Product::mistake(bool may_be_missing) const {
  if (is_bad()) return std::nullopt;
  const bool is_missing = !is_number(keys_.all) && !is_number(keys_.each);
  if (is_missing && may_be_missing) return std::nullopt;
  if (is_missing)
    return Translation::Refusal{{keys_.each, Json(), ForeignOrigin::Kind::preset, given_.file, 0, table_.program},
                                keys_.refuse_none};
  const ForeignOrigin& from = (find(keys_.all) != nullptr ? find(keys_.all) : find(keys_.each))->from;
  const auto shown = [&](const std::string& name) {
    const ForeignOrigin& origin = find(name)->from;
    const bool is_users = origin.kind == ForeignOrigin::Kind::automatic && origin.line == 0;
    return ddh::str(name, " (", number(name), is_users ? ", which you gave)" : ")");
  };
  if (number(keys_.each) <= 0 || number(keys_.times) <= 0)
    return Translation::Refusal{
        from, ddh::str("does not divide: with ", counted(static_cast<uint64_t>(ranks()), "rank"), " it leaves ",
                       shown(keys_.each), " and ", shown(keys_.times), "; give each of them as 1 or more, or another ",
                       "number of ranks")};
  const double product =
      static_cast<double>(number(keys_.each)) * static_cast<double>(number(keys_.times)) * static_cast<double>(ranks());
  if (!is_number(keys_.all) || product == static_cast<double>(number(keys_.all))) return std::nullopt;
  return Translation::Refusal{
      from, ddh::str("does not multiply out: ", shown(keys_.all), " is not ", shown(keys_.each), " x ",
                     shown(keys_.times), " x ", ranks(), " ranks; change one of them, or the number of ranks")};
}

// Refused already.
bool Product::is_bad() const {
  const auto bad = [&](const std::string& name) { return find(name) != nullptr && find(name)->is_bad; };
  return bad(keys_.all) || bad(keys_.each) || bad(keys_.times);
}

bool Product::is_number(const std::string& name) const {
  const GivenValue* const given = find(name);
  return given != nullptr && given->value.is_number_integer();
}

int64_t Product::number(const std::string& name) const {
  return is_number(name) ? find(name)->value.get<int64_t>() : 0;
}

int64_t Product::ranks() const { return std::max<int64_t>(1, context_.ranks()); }

// The user's values: of any file for what this file leaves out, and of the command line in place of this file's.
void Product::take_from_user() {
  for (const std::string* name : {&keys_.each, &keys_.times}) {
    const ForeignKey* const key = table_.find(*name);
    if (key == nullptr || !key->automatic.is_object()) continue;
    const std::string own = key->automatic.value("from", "");
    if (find(*name) == nullptr)
      take_from_user(*name, context_.given(own));
    else if (context_.on_command_line && !find(*name)->is_guess)
      take_from_user(*name, context_.on_command_line(own));
  }
}

void Product::take_from_user(const std::string& name, const std::optional<Json>& own) {
  if (own && own->is_number_integer() && *own > Json(0) && *own <= Json(kLargestFactor))
    given_.set(name, {*own,
                      {name, *own, ForeignOrigin::Kind::automatic, given_.file, 0, table_.program},
                      /*is_guess=*/false,
                      /*is_bad=*/false});
}

void Product::derive(const std::string& name, int64_t value) {
  given_.set(name,
             {Json(value), {name, value, ForeignOrigin::Kind::derived, given_.file, 0, table_.program}, false, false});
}

}  // namespace ddhost
