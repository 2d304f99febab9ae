// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/ptx/program.hpp: the subset of PTX that nvcc makes of this project's kernels, decoded. An instruction
// that is not in the subset is refused when the module is parsed, with its line.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace standin::ptx {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Type : uint8_t { none, pred, b8, b16, b32, b64, u8, u16, u32, u64, s8, s16, s32, s64, f16, bf16, f32, f64 };
enum class Space : uint8_t { none, param, global, shared };
enum class Compare : uint8_t { eq, ne, lt, le, gt, ge, num, nan };
enum class Half : uint8_t { low, high, wide };  // which part of a product
enum class Atomic : uint8_t { none, add, min, max, exch };
enum class Rounding : uint8_t { none, nearest, zero, down, up, nearest_int, zero_int, down_int, up_int };

enum class Op : uint8_t {
  mov,
  ld,
  st,
  atom,
  add,
  sub,
  mul,
  mad,
  fma,
  div,
  rem,
  min,
  max,
  abs,
  neg,
  sqrt,
  rcp,
  and_,
  or_,
  xor_,
  not_,
  shl,
  shr,
  setp,
  selp,
  cvt,
  cvta,
  bra,
  bar,
  pack,        // two halves of 32 bits into 64 bits
  unpack,      // and the reverse
  activemask,  // the thread alone: threads run one after another, so they never meet in a warp
  warp,        // match.all or shfl, between threads that met: refused when a thread reaches it
  ret,
  popc,
  clz,
  bfe,
  bfi
};

// A register, or a constant; in the address of a load or store the instruction's offset is added.
struct Operand {
  int32_t reg = -1;
  uint64_t value = 0;
};

struct Instruction {
  Op op = Op::ret;
  Type type = Type::none, from = Type::none;  // `from`: the source of a cvt
  Space space = Space::none;
  Compare compare = Compare::eq;
  bool unordered = false;  // setp: true where an operand is NaN
  Half half = Half::low;
  Atomic atomic = Atomic::none;
  Rounding rounding = Rounding::none;
  bool saturates = false;
  int32_t guard = -1;  // predicate register; -1: none
  bool guard_negated = false;
  uint8_t vector = 1;  // elements of a load or store
  std::array<int32_t, 4> dst{-1, -1, -1, -1};
  std::array<Operand, 5> src{};  // a store: the address, then the values
  int64_t offset = 0;            // bytes, of an address
  uint32_t target = 0;           // of a branch: index of an instruction
  uint32_t line = 0;             // in the text
};

// Registers that the machine fills before a thread starts.
enum class Special : uint8_t { tid, ntid, ctaid, nctaid };

struct Kernel {
  std::string name;
  uint32_t param_bytes = 0, shared_bytes = 0, n_registers = 0;
  std::vector<Instruction> code;
  std::vector<std::pair<int32_t, Special>> specials;  // register, what it holds
};

struct Module {
  std::map<std::string, Kernel> kernels;
};

// Error: the text is not PTX of the subset.
Module parse(const std::string& text);

[[nodiscard]] uint32_t bytes_of(Type type);
[[nodiscard]] bool is_signed(Type type);
[[nodiscard]] bool is_float(Type type);

// The memory at a global address of `bytes` bytes, or nullptr: there is none.
using Reach = std::function<void*(uint64_t address, uint64_t bytes, bool writes)>;

// Runs a grid, block by block. The threads of a block run in turn, each up to the next barrier. `first_thread` is the
// thread that begins after a barrier, so that a missing barrier shows.
// Error: an access outside of memory, or a barrier that some threads do not reach.
void execute(const Kernel& kernel, const void* params, uint32_t blocks, uint32_t threads, const Reach& reach,
             uint32_t first_thread = 0);

}  // namespace standin::ptx
