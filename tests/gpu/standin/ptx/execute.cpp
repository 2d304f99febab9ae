// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/ptx/execute.cpp: runs decoded PTX. Arithmetic is IEEE as PTX specifies it: fma rounds once, and the
// result of an fp32 operation that is NaN is the canonical NaN 0x7fffffff.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "ddh/sdk/kernels/lowp.hpp"
#include "ptx/program.hpp"

namespace standin::ptx {
namespace {

constexpr uint32_t kNan32 = 0x7fffffff;

float f32_of(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
double f64_of(uint64_t bits) { return std::bit_cast<double>(bits); }
uint64_t bits_of(float value) { return std::isnan(value) ? kNan32 : std::bit_cast<uint32_t>(value); }
uint64_t bits_of(double value) { return std::bit_cast<uint64_t>(value); }

// The low bytes of a register, as the type's number.
uint64_t narrowed(uint64_t value, Type type) {
  const uint32_t bits = bytes_of(type) * 8;
  return bits == 64 ? value : value & ((uint64_t{1} << bits) - 1);
}
int64_t signed_value(uint64_t value, Type type) {
  const uint32_t unused = 64 - bytes_of(type) * 8;
  return static_cast<int64_t>(value << unused) >> unused;
}

template <class T>
T arithmetic(Op op, T a, T b, T c) {
  switch (op) {
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::fma:
    case Op::mad:
      return std::fma(a, b, c);
    case Op::div:
      return a / b;
    case Op::rcp:
      return 1 / a;
    case Op::sqrt:
      return std::sqrt(a);
    case Op::abs:
      return std::fabs(a);
    case Op::neg:
      return -a;
    // The number where one operand is NaN.
    case Op::min:
      return std::fmin(a, b);
    case Op::max:
      return std::fmax(a, b);
    default:
      throw Error("an operation that floats do not have");
  }
}

uint64_t product(const Instruction& i, uint64_t a, uint64_t b) {
  const bool is_signed_type = is_signed(i.type);
  const uint32_t bits = bytes_of(i.type) * 8;
  // NOLINTNEXTLINE(bugprone-narrowing-conversions): 128-bit products of 64-bit operands
  __extension__ using Wide = __int128;
  const Wide x = is_signed_type ? Wide{signed_value(a, i.type)} : Wide{narrowed(a, i.type)};
  const Wide y = is_signed_type ? Wide{signed_value(b, i.type)} : Wide{narrowed(b, i.type)};
  const Wide full = x * y;
  return static_cast<uint64_t>(i.half == Half::high ? full >> bits : full);
}

uint64_t integer(const Instruction& i, uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t ua = narrowed(a, i.type), ub = narrowed(b, i.type);
  const int64_t sa = signed_value(a, i.type), sb = signed_value(b, i.type);
  const bool is_signed_type = is_signed(i.type);
  const uint32_t bits = bytes_of(i.type) * 8;
  const auto shift = static_cast<uint32_t>(std::min<uint64_t>(narrowed(b, Type::u32), bits));
  switch (i.op) {
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return product(i, a, b);
    case Op::mad:
      return product(i, a, b) + c;
    case Op::div:
      if (ub == 0) return ~uint64_t{0};
      return is_signed_type ? static_cast<uint64_t>(sb == -1 ? -sa : sa / sb) : ua / ub;
    case Op::rem:
      if (ub == 0) return a;
      return is_signed_type ? static_cast<uint64_t>(sb == -1 ? 0 : sa % sb) : ua % ub;
    case Op::min:
      return is_signed_type ? static_cast<uint64_t>(std::min(sa, sb)) : std::min(ua, ub);
    case Op::max:
      return is_signed_type ? static_cast<uint64_t>(std::max(sa, sb)) : std::max(ua, ub);
    case Op::abs:
      return static_cast<uint64_t>(sa < 0 ? -sa : sa);
    case Op::neg:
      return static_cast<uint64_t>(-sa);
    case Op::and_:
      return a & b;
    case Op::or_:
      return a | b;
    case Op::xor_:
      return a ^ b;
    case Op::not_:
      return i.type == Type::pred ? static_cast<uint64_t>(a == 0) : ~a;
    case Op::shl:
      return shift >= 64 ? 0 : a << shift;
    case Op::shr:
      if (is_signed_type) return static_cast<uint64_t>(sa >> std::min(shift, 63U));
      return shift >= 64 ? 0 : ua >> shift;
    case Op::popc:
      return static_cast<uint64_t>(std::popcount(ua));
    case Op::clz:
      return static_cast<uint64_t>(std::countl_zero(ua)) - (64 - bits);
    case Op::bfe: {
      const auto n = static_cast<uint32_t>(std::min<uint64_t>(c & 0xff, bits));
      const auto from = static_cast<uint32_t>(std::min<uint64_t>(b & 0xff, 63));
      return n == 0 ? 0 : (ua >> from) & (n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1);
    }
    default:
      throw Error("an operation that integers do not have");
  }
}

// The low `count` bits of `field`, in the place of those of `whole` from `at` on.
uint64_t inserted(const std::array<uint64_t, 4>& src, Type type) {
  const auto [field, whole, at, count] = src;
  const uint64_t bits = bytes_of(type) * 8, first = at & 0xff;
  const uint64_t n = first >= bits ? 0 : std::min(count & 0xff, bits - first);
  const uint64_t mask = n == 0 ? 0 : (~uint64_t{0} >> (64 - n)) << first;
  return (whole & ~mask) | ((field << (first & 63)) & mask);
}

template <class T>
bool compared(Compare compare, T a, T b) {
  switch (compare) {
    case Compare::eq:
      return a == b;
    case Compare::ne:
      return a != b;
    case Compare::lt:
      return a < b;
    case Compare::le:
      return a <= b;
    case Compare::gt:
      return a > b;
    case Compare::ge:
      return a >= b;
    default:
      return false;
  }
}

bool holds(const Instruction& i, uint64_t a, uint64_t b) {
  if (is_float(i.type)) {
    const double x = i.type == Type::f32 ? static_cast<double>(f32_of(a)) : f64_of(a);
    const double y = i.type == Type::f32 ? static_cast<double>(f32_of(b)) : f64_of(b);
    const bool unordered = std::isnan(x) || std::isnan(y);
    if (i.compare == Compare::nan) return unordered;
    if (i.compare == Compare::num) return !unordered;
    return unordered ? i.unordered : compared(i.compare, x, y);
  }
  if (is_signed(i.type)) return compared(i.compare, signed_value(a, i.type), signed_value(b, i.type));
  return compared(i.compare, narrowed(a, i.type), narrowed(b, i.type));
}

double rounded_to_integer(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_int:
      return std::nearbyint(value);
    case Rounding::down_int:
      return std::floor(value);
    case Rounding::up_int:
      return std::ceil(value);
    default:
      return std::trunc(value);
  }
}

// Out of range gives the nearest number of the type, NaN gives 0.
uint64_t integer_of(double value, Type type) {
  if (std::isnan(value)) return 0;
  const uint32_t bits = bytes_of(type) * 8;
  const double limit = std::ldexp(1.0, static_cast<int>(is_signed(type) ? bits - 1 : bits));
  if (is_signed(type)) {
    if (value >= limit) return static_cast<uint64_t>(std::numeric_limits<int64_t>::max() >> (64 - bits));
    if (value <= -limit) return static_cast<uint64_t>(std::numeric_limits<int64_t>::min() >> (64 - bits));
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
  if (value <= 0) return 0;
  return value >= limit ? narrowed(~uint64_t{0}, type) : static_cast<uint64_t>(value);
}

uint64_t converted(const Instruction& i, uint64_t a) {
  const Type from = i.from, to = i.type;
  if (from == Type::f16) return to == Type::f32 ? bits_of(ddh::F16::to_f32(static_cast<uint16_t>(a))) : a;
  if (from == Type::bf16) return to == Type::f32 ? bits_of(ddh::Bf16::to_f32(static_cast<uint16_t>(a))) : a;
  if (to == Type::f16) return std::isnan(f32_of(a)) ? 0x7fff : ddh::F16::from_f32(f32_of(a));
  if (to == Type::bf16) return std::isnan(f32_of(a)) ? 0x7fff : ddh::Bf16::from_f32(f32_of(a));
  if (is_float(from)) {
    const double value = from == Type::f32 ? static_cast<double>(f32_of(a)) : f64_of(a);
    const bool to_integer = i.rounding >= Rounding::nearest_int;
    if (to == Type::f64) return bits_of(to_integer ? rounded_to_integer(value, i.rounding) : value);
    if (to == Type::f32) {
      auto result = static_cast<float>(to_integer ? rounded_to_integer(value, i.rounding) : value);
      if (i.saturates) result = result > 0 ? std::min(result, 1.0F) : 0.0F;
      return bits_of(result);
    }
    return integer_of(rounded_to_integer(value, i.rounding), to);
  }
  if (to == Type::f32)
    return bits_of(is_signed(from) ? static_cast<float>(signed_value(a, from)) : static_cast<float>(narrowed(a, from)));
  if (to == Type::f64)
    return bits_of(is_signed(from) ? static_cast<double>(signed_value(a, from))
                                   : static_cast<double>(narrowed(a, from)));
  return is_signed(from) ? static_cast<uint64_t>(signed_value(a, from)) : narrowed(a, from);
}

// One block of a grid.
class Block {
 public:
  Block(const Kernel& kernel, const void* params, uint32_t threads, const Reach& reach)
      : kernel_(kernel),
        params_(static_cast<const char*>(params)),
        threads_(threads),
        reach_(reach),
        shared_(kernel.shared_bytes),
        registers_(static_cast<size_t>(threads) * kernel.n_registers),
        next_(threads) {}

  void run(uint32_t block, uint32_t blocks, uint32_t first_thread) {
    std::fill(shared_.begin(), shared_.end(), '\x7f');
    std::fill(registers_.begin(), registers_.end(), uint64_t{0x7fa07fa07fa07fa0});
    std::fill(next_.begin(), next_.end(), 0U);
    for (uint32_t t = 0; t < threads_; ++t) {
      for (const auto& [reg, special] : kernel_.specials) {
        const uint32_t values[] = {t, threads_, block, blocks};
        registers_of(t)[reg] = values[static_cast<size_t>(special)];
      }
    }
    for (bool waits = true; waits;) {
      uint32_t n_waiting = 0, n_ended = 0;
      for (uint32_t k = 0; k < threads_; ++k) {
        const uint32_t t = (k + first_thread) % threads_;
        if (next_[t] != kEnded && run_thread(t)) ++n_waiting;
        if (next_[t] == kEnded) ++n_ended;
      }
      waits = n_waiting > 0;
      if (waits && n_ended > 0)
        throw Error("kernel " + kernel_.name + ": " + std::to_string(n_ended) + " of " + std::to_string(threads_) +
                    " threads ended without the barrier at which the others wait");
    }
  }

 private:
  static constexpr uint32_t kEnded = UINT32_MAX;

  uint64_t* registers_of(uint32_t thread) { return registers_.data() + size_t{thread} * kernel_.n_registers; }

  // Up to the next barrier (true) or the end of the thread.
  bool run_thread(uint32_t thread) {
    uint64_t* const r = registers_of(thread);
    for (;;) {
      const Instruction& i = kernel_.code[next_[thread]++];
      if (i.guard >= 0 && (r[i.guard] != 0) == i.guard_negated) continue;
      switch (i.op) {
        case Op::ret:
          next_[thread] = kEnded;
          return false;
        case Op::bar:
          return true;
        case Op::activemask:
          r[i.dst[0]] = uint64_t{1} << (thread % 32);
          break;
        case Op::warp:
          throw Error("kernel " + kernel_.name + ", line " + std::to_string(i.line) +
                      ": threads pass values within a warp, though none have met");
        case Op::bra:
          next_[thread] = i.target;
          break;
        default:
          step(i, r);
      }
    }
  }

  static uint64_t value(const Operand& operand, const uint64_t* r) {
    return operand.reg >= 0 ? r[operand.reg] : operand.value;
  }

  void step(const Instruction& i, uint64_t* r) {
    const uint64_t a = value(i.src[0], r), b = value(i.src[1], r);
    switch (i.op) {
      case Op::ld:
        return load(i, a, r);
      case Op::st:
        return store(i, a, r);
      case Op::atom:
        return change(i, a, b, r);
      case Op::mov:
      case Op::cvta:
        r[i.dst[0]] = narrowed(a, i.type);
        return;
      case Op::pack:
        r[i.dst[0]] = (a & 0xffffffffU) | b << 32;
        return;
      case Op::unpack:
        r[i.dst[0]] = a & 0xffffffffU;
        r[i.dst[1]] = a >> 32;
        return;
      case Op::setp:
        r[i.dst[0]] = holds(i, a, b) ? 1 : 0;
        return;
      case Op::selp:
        r[i.dst[0]] = narrowed(value(i.src[2], r) != 0 ? a : b, i.type);
        return;
      case Op::cvt:
        r[i.dst[0]] = narrowed(converted(i, a), i.type);
        return;
      case Op::bfi:
        r[i.dst[0]] = narrowed(inserted({a, b, value(i.src[2], r), value(i.src[3], r)}, i.type), i.type);
        return;
      default:
        break;
    }
    const uint64_t c = value(i.src[2], r);
    if (i.type == Type::f32)
      r[i.dst[0]] = bits_of(arithmetic(i.op, f32_of(a), f32_of(b), f32_of(c)));
    else if (i.type == Type::f64)
      r[i.dst[0]] = bits_of(arithmetic(i.op, f64_of(a), f64_of(b), f64_of(c)));
    else if (i.half == Half::wide)
      r[i.dst[0]] = integer(i, a, b, c);
    else
      r[i.dst[0]] = narrowed(integer(i, a, b, c), i.type);
  }

  // The memory of an access to `bytes` at `at`, in the instruction's space.
  char* memory(const Instruction& i, uint64_t at, uint64_t bytes, bool writes) {
    at += static_cast<uint64_t>(i.offset);
    char* found = nullptr;
    if (at % (bytes / i.vector) != 0) refuse(i, at, bytes, writes, "at an address that is not aligned");
    if (i.space == Space::shared && at + bytes <= shared_.size()) found = shared_.data() + at;
    if (i.space == Space::param && !writes && at + bytes <= kernel_.param_bytes)
      found = const_cast<char*>(params_) + at;
    if (i.space == Space::global || i.space == Space::none) found = static_cast<char*>(reach_(at, bytes, writes));
    if (found == nullptr) refuse(i, at, bytes, writes, "outside of its memory");
    return found;
  }
  [[noreturn]] void refuse(const Instruction& i, uint64_t at, uint64_t bytes, bool writes, const char* why) const {
    std::ostringstream out;
    out << "kernel " << kernel_.name << ", PTX line " << i.line << ": " << (writes ? "writes " : "reads ") << bytes
        << " bytes at 0x" << std::hex << at << ", " << why;
    throw Error(out.str());
  }

  void load(const Instruction& i, uint64_t at, uint64_t* r) {
    const uint32_t bytes = bytes_of(i.type);
    const char* from = memory(i, at, uint64_t{bytes} * i.vector, false);
    for (uint8_t k = 0; k < i.vector; ++k) {
      uint64_t read = 0;
      std::memcpy(&read, from + size_t{k} * bytes, bytes);
      r[i.dst[k]] = is_signed(i.type) ? static_cast<uint64_t>(signed_value(read, i.type)) : read;
    }
  }
  void store(const Instruction& i, uint64_t at, const uint64_t* r) {
    const uint32_t bytes = bytes_of(i.type);
    char* to = memory(i, at, uint64_t{bytes} * i.vector, true);
    for (uint8_t k = 0; k < i.vector; ++k) {
      const uint64_t written = value(i.src[k + 1U], r);
      std::memcpy(to + size_t{k} * bytes, &written, bytes);
    }
  }
  void change(const Instruction& i, uint64_t at, uint64_t operand, uint64_t* r) {
    const uint32_t bytes = bytes_of(i.type);
    char* place = memory(i, at, bytes, true);
    uint64_t old = 0, changed = operand;
    std::memcpy(&old, place, bytes);
    Instruction as = i;
    as.op = i.atomic == Atomic::min ? Op::min : i.atomic == Atomic::max ? Op::max : Op::add;
    if (i.atomic != Atomic::exch && is_float(i.type)) throw Error("kernel " + kernel_.name + ": atomics of floats");
    if (i.atomic != Atomic::exch) changed = integer(as, old, operand, 0);
    std::memcpy(place, &changed, bytes);
    if (i.dst[0] >= 0) r[i.dst[0]] = old;
  }

  const Kernel& kernel_;
  const char* const params_;
  const uint32_t threads_;
  const Reach& reach_;
  std::vector<char> shared_;
  std::vector<uint64_t> registers_;
  std::vector<uint32_t> next_;  // per thread: its next instruction
};

}  // namespace

void execute(const Kernel& kernel, const void* params, uint32_t blocks, uint32_t threads, const Reach& reach,
             uint32_t first_thread) {
  Block block(kernel, params, threads, reach);
  for (uint32_t b = 0; b < blocks; ++b) block.run(b, blocks, first_thread);
}

}  // namespace standin::ptx
