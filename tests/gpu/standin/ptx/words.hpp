// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/ptx/words.hpp: the words of PTX: names of types, operations and modifiers.
#pragma once

#include <optional>
#include <string_view>

#include "ptx/program.hpp"

namespace standin::ptx {

std::optional<Type> type_of(std::string_view word);
std::optional<Op> op_of(std::string_view word);
std::optional<Compare> compare_of(std::string_view word);
std::optional<Rounding> rounding_of(std::string_view word);
std::optional<Atomic> atomic_of(std::string_view word);
std::optional<Space> space_of(std::string_view word);
std::optional<Special> special_of(std::string_view word);

}  // namespace standin::ptx
