// SPDX-License-Identifier: Apache-2.0
//
// tests/equivalence/variants.hpp: strategies are compared bit for bit. A cell is one run of the program: a variant (a
// strategy with a transport and options), a world size, further options. Cells that differ only in their variant must
// give the same bits: metrics and gradient norms are compared as text, final parameters and buffers as bytes.
//
// With DDHOST_STRATEGY=name, path.so or path.so:id in the environment, that strategy is compared with ddp instead of
// the built-in ones. So the same test programs can check an external strategy.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "fixtures/harness/ddhost_process.hpp"

namespace ddhost::test {

using Options = std::vector<std::string>;

// A strategy with a transport and options.
struct Variant {
  std::string strategy;
  std::string comm;
  Options options;
  bool always = false;  // false: only with DDHOST_ALL_VARIANTS
};

// A built-in strategy with the options of one of its modes.
struct Mode {
  std::string strategy;
  Options options;
  bool sums_in_blocks = false;  // needs train.reduce_block, which the reference then has too
};
const std::vector<Mode>& built_in_modes();

// Instead of a number of steps: the options say how long the run is (train.phases).
inline constexpr int kStepsOfOptions = -1;

struct Cell {
  Variant way;
  int world = 1;
  Options options;  // options of all variants in a comparison
  int steps = 20;
  std::string model = toy_model();
};

struct Result {
  Cell cell;
  int code = 0;  // exit code; the members below are only set if it is 0
  std::string command, err;
  RunRecord record;
  std::string loss, grad_norm, weights;
  std::string metrics;      // the model's values of all steps, including the loss
  std::string evaluations;  // all rows of evaluations
};

inline const Variant kReference = {"ddp", "loop", {}, true};
// One variant of each strategy.
inline const std::vector<Variant> kOneOfEachStrategy = {
    {"ddp", "shm", {}},
    {"zero1", "shm", {}},
    {"zero2", "loop", {"comm.windows=copy"}},
    {"zero3", "shm", {}},
    {"zero3_offload", "loop", {"strategy.offload_optimizer.device=cpu"}},
    {"fsdp", "shm", {}}};
inline const Variant kDdp = {"ddp", "shm", {}}, kZero1 = {"zero1", "shm", {}}, kZero3 = {"zero3", "shm", {}};

// The folder for files of offloaded state.
const std::string& nvme_path();
// Matrices of 350 elements, which every sharded strategy splits.
inline const char* const kManyBlocks = "model.hidden=70";

// Runs the toy model, or the model in `options`. If the run fails, the test fails with the command and its output.
Result run(const Variant& way, int world, const Options& options, int steps = 20);
Result run(const Cell& cell);
// The same, for a run that may fail.
Result attempt(const Cell& cell);
// The command line of a cell, for a reader who repeats it by hand.
std::string command_line(const Cell& cell);

// DDHOST_ALL_VARIANTS is set, as in `./dev test --all`.
bool all_variants();
// The first `few` of these; all of them with DDHOST_ALL_VARIANTS.
template <class T>
std::vector<T> selected(size_t few, std::vector<T> all) {
  if (!all_variants() && all.size() > few) all.erase(all.begin() + static_cast<std::ptrdiff_t>(few), all.end());
  return all;
}

// All selected variants, the reference first; DDHOST_ALL_VARIANTS and DDHOST_STRATEGY select them.
std::vector<Variant> taken_variants();
// "ddp", "zero1", ... or the strategy in DDHOST_STRATEGY, without those in `except`.
std::vector<std::string> taken_strategies(const std::vector<std::string>& except = {});

[[nodiscard]] bool same_bits(const Result& a, const Result& b);
// For two runs that differ: a sentence and the two shortest commands that show the difference.
std::string shortest_commands(const Result& reference, const Result& other);
// A difference prints them.
void check_same_bits(const Result& reference, const Result& other);
// Compares every selected variant with ddp on loop. Returns the number of cells.
int check_all_equal(int world, const Options& options);

// For runs that differ by rounding: the largest relative difference of a step's loss, and of the decrease of the loss
// from the first step to the last.
double loss_distance(const Result& result, const Result& from);
double fall_distance(const Result& result, const Result& from);

uint64_t peak_bytes(const Result& result, size_t rank, const char* tag);
uint64_t planned_bytes(const Result& result, size_t rank, const char* tag);
// Memory by tag, including the peak, equals the strategy's plan on every rank.
[[nodiscard]] bool keeps_its_plan(const Result& result);
void check_plan(const Result& result);
// The calls of collectives and windows equal the plan too.
void check_counts(const Result& result);

}  // namespace ddhost::test
