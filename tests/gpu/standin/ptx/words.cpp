// SPDX-License-Identifier: Apache-2.0
#include "ptx/words.hpp"

#include <span>
#include <utility>

namespace standin::ptx {
namespace {

template <class T>
std::optional<T> find(std::string_view word, std::span<const std::pair<std::string_view, T>> table) {
  for (const auto& [name, value] : table)
    if (name == word) return value;
  return std::nullopt;
}

constexpr std::pair<std::string_view, Type> kTypes[] = {
    {"pred", Type::pred}, {"b8", Type::b8},   {"b16", Type::b16}, {"b32", Type::b32}, {"b64", Type::b64},
    {"u8", Type::u8},     {"u16", Type::u16}, {"u32", Type::u32}, {"u64", Type::u64}, {"s8", Type::s8},
    {"s16", Type::s16},   {"s32", Type::s32}, {"s64", Type::s64}, {"f16", Type::f16}, {"bf16", Type::bf16},
    {"f32", Type::f32},   {"f64", Type::f64}};
constexpr std::pair<std::string_view, Op> kOps[] = {
    {"mov", Op::mov},    {"ld", Op::ld},       {"ldu", Op::ld},    {"st", Op::st},
    {"atom", Op::atom},  {"red", Op::atom},    {"add", Op::add},   {"sub", Op::sub},
    {"mul", Op::mul},    {"mad", Op::mad},     {"fma", Op::fma},   {"div", Op::div},
    {"rem", Op::rem},    {"min", Op::min},     {"max", Op::max},   {"abs", Op::abs},
    {"neg", Op::neg},    {"sqrt", Op::sqrt},   {"rcp", Op::rcp},   {"and", Op::and_},
    {"or", Op::or_},     {"xor", Op::xor_},    {"not", Op::not_},  {"shl", Op::shl},
    {"shr", Op::shr},    {"setp", Op::setp},   {"selp", Op::selp}, {"cvt", Op::cvt},
    {"cvta", Op::cvta},  {"bra", Op::bra},     {"bar", Op::bar},   {"ret", Op::ret},
    {"exit", Op::ret},   {"barrier", Op::bar}, {"popc", Op::popc}, {"activemask", Op::activemask},
    {"match", Op::warp}, {"shfl", Op::warp},   {"clz", Op::clz},   {"bfe", Op::bfe},
    {"bfi", Op::bfi}};
constexpr std::pair<std::string_view, Compare> kCompares[] = {
    {"eq", Compare::eq},  {"ne", Compare::ne},   {"lt", Compare::lt},  {"le", Compare::le},  {"gt", Compare::gt},
    {"ge", Compare::ge},  {"lo", Compare::lt},   {"ls", Compare::le},  {"hi", Compare::gt},  {"hs", Compare::ge},
    {"equ", Compare::eq}, {"neu", Compare::ne},  {"ltu", Compare::lt}, {"leu", Compare::le}, {"gtu", Compare::gt},
    {"geu", Compare::ge}, {"num", Compare::num}, {"nan", Compare::nan}};
constexpr std::pair<std::string_view, Rounding> kRoundings[] = {
    {"rn", Rounding::nearest},   {"rz", Rounding::zero},         {"rm", Rounding::down},
    {"rp", Rounding::up},        {"rni", Rounding::nearest_int}, {"rzi", Rounding::zero_int},
    {"rmi", Rounding::down_int}, {"rpi", Rounding::up_int}};
constexpr std::pair<std::string_view, Atomic> kAtomics[] = {
    {"add", Atomic::add}, {"min", Atomic::min}, {"max", Atomic::max}, {"exch", Atomic::exch}};
constexpr std::pair<std::string_view, Space> kSpaces[] = {
    {"param", Space::param}, {"global", Space::global}, {"shared", Space::shared}};
constexpr std::pair<std::string_view, Special> kSpecials[] = {
    {"%tid.x", Special::tid}, {"%ntid.x", Special::ntid}, {"%ctaid.x", Special::ctaid}, {"%nctaid.x", Special::nctaid}};

}  // namespace

std::optional<Type> type_of(std::string_view word) { return find<Type>(word, kTypes); }
std::optional<Op> op_of(std::string_view word) { return find<Op>(word, kOps); }
std::optional<Compare> compare_of(std::string_view word) { return find<Compare>(word, kCompares); }
std::optional<Rounding> rounding_of(std::string_view word) { return find<Rounding>(word, kRoundings); }
std::optional<Atomic> atomic_of(std::string_view word) { return find<Atomic>(word, kAtomics); }
std::optional<Space> space_of(std::string_view word) { return find<Space>(word, kSpaces); }
std::optional<Special> special_of(std::string_view word) { return find<Special>(word, kSpecials); }

uint32_t bytes_of(Type type) {
  switch (type) {
    case Type::b8:
    case Type::u8:
    case Type::s8:
      return 1;
    case Type::b16:
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
      return 2;
    case Type::b32:
    case Type::u32:
    case Type::s32:
    case Type::f32:
      return 4;
    default:
      return 8;
  }
}
bool is_signed(Type type) { return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64; }
bool is_float(Type type) { return type == Type::f32 || type == Type::f64; }

}  // namespace standin::ptx
