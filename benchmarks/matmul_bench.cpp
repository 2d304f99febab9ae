// SPDX-License-Identifier: Apache-2.0
//
// Measures every library of matrix products, and prints what measuring would choose beside what the table of
// models/ops/choice.cpp chooses: forward and both gradients of a linear layer (rows, in) -> (rows, out). Set
// OMP_NUM_THREADS=1, as benchmarks/run does.
//   matmul_bench                 the widest layers of the GPT sizes, 64 to 768 rows, fp32 and bf16
//   matmul_bench ROWS IN OUT     one layer
#include <cstdio>

#include "arguments.hpp"
#include "ops/choice.hpp"

namespace {

struct Dtype {
  int32_t id;
  const char* name;
};
constexpr Dtype kDtypes[] = {{DDH_F32, "fp32"}, {DDH_BF16, "bf16"}};

bool print_row(ops::LinearShape shape, const Dtype& dtype) {
  const std::string table = ops::chosen_products(shape, dtype.id, ops::this_processor());
  const std::vector<ops::Measured> measured = ops::measure_products(shape, dtype.id);
  const ops::Measured* quickest = measured.data();
  double of_table = 0;
  std::printf("%-5s %6lld %6lld %6lld ", dtype.name, static_cast<long long>(shape.rows),
              static_cast<long long>(shape.in), static_cast<long long>(shape.out));
  for (const ops::Measured& library : measured) {
    std::printf(" %s %8.3f", library.name.c_str(), library.milliseconds);
    if (library.milliseconds < quickest->milliseconds) quickest = &library;
    if (library.name == table) of_table = library.milliseconds;
  }
  const double ratio = quickest->milliseconds / of_table;
  std::printf("   measured: %s, table: %s%s\n", quickest->name.c_str(), table.c_str(),
              ratio < 0.95 ? "   <- the table is slower by more than 5 %" : "");
  return ratio >= 0.95;
}

// "64", "768", "3072"
ops::LinearShape shape_of(char** words) {
  constexpr int64_t kMost = 1'000'000, kMostNumel = int64_t{1} << 31;  // of the three matrices
  const auto number = [&](const char* what, int i) { return ddhost::bench::whole_number(what, words[i], 1, kMost); };
  const ops::LinearShape shape{number("ROWS", 0), number("IN", 1), number("OUT", 2)};
  if (shape.rows * shape.in + shape.in * shape.out + shape.rows * shape.out > kMostNumel)
    ddh::fail(DDH_INVALID_ARGUMENT, "ROWS IN OUT are matrices with more than ", kMostNumel, " elements; give less");
  return shape;
}

int run(int argc, char** argv) {
  if (argc != 1 && argc != 4) ddh::fail(DDH_INVALID_ARGUMENT, "give nothing, or ROWS IN OUT");
  const ops::LinearShape given = argc == 4 ? shape_of(argv + 1) : ops::LinearShape{};
  std::printf("%s; milliseconds, one thread\ndtype   rows     in    out\n", ops::this_processor().text().c_str());
  int slower = 0;
  for (const Dtype& dtype : kDtypes) {
    if (argc == 4) {
      slower += print_row(given, dtype) ? 0 : 1;
      continue;
    }
    for (const int64_t rows : {64, 256, 768})
      for (const int64_t width : {64, 128, 256, 384, 768, 1024})
        slower += print_row({rows, width, 4 * width}, dtype) ? 0 : 1;
  }
  std::printf("%d rows in which the table is slower by more than 5 %%\n", slower);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ddhost::bench::run_program("matmul_bench", "[ROWS IN OUT]", argc, argv, [&] { return run(argc, argv); });
}
