// SPDX-License-Identifier: Apache-2.0
//
// tests/equivalence/variants.hpp: strategies are compared bit for bit. A cell is one run of the program: a strategy in one
// of the ways that a transport may serve it, a world, options. Cells that differ only in their way must give the same
// bits: metrics and gradient norms compared as text, final parameters and buffers as bytes.
//
// With DDHOST_STRATEGY=name, path.so or path.so:id in the environment that one strategy is compared with ddp, in place of
// those that are built in. So the same test programs judge a strategy of anybody's.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "fixtures/harness/ddhost_process.hpp"

namespace ddhost::test {

using Options = std::vector<std::string>;

// One strategy in one of the ways that a transport may serve it.
struct Way {
  std::string strategy;
  std::string comm;
  Options options;
  bool always = false;  // else with DDHOST_ALL_WAYS only
};

struct Cell {
  Way way;
  int world = 1;
  Options options;  // what all ways of a comparison share
  int steps = 20;
  std::string model = toy_model();
};

struct Result {
  Cell cell;
  int code = 0;  // exit code; what follows is there with 0 only
  std::string command, err;
  RunRecord record;
  std::string loss, grad_norm, weights;
  std::string metrics;      // all that the model reports of steps, the loss among it
  std::string evaluations;  // all rows of evaluations
};

inline const Way kReference = {"ddp", "loop", {}, true};
inline const Way kDdp = {"ddp", "shm", {}}, kZero1 = {"zero1", "shm", {}}, kZero3 = {"zero3", "shm", {}};

// Where the files of offloaded states lie.
const std::string& nvme_path();
// Matrices of 350 elements, which any strategy would cut.
inline const char* const kManyBlocks = "model.hidden=70";

// Runs the toy model, or what `options` name. A run that fails fails the test, with the command and its words.
Result run(const Way& way, int world, const Options& options, int steps = 20);
Result run(const Cell& cell);
// The same, for a run that may fail.
Result attempt(const Cell& cell);
// The command line of a cell, for a reader who repeats it by hand.
std::string command_line(const Cell& cell);

// All ways that this program takes, the reference first; DDHOST_ALL_WAYS and DDHOST_STRATEGY choose.
std::vector<Way> taken_ways();
// "ddp", "zero1", ... or what DDHOST_STRATEGY names, without those in `except`.
std::vector<std::string> taken_strategies(const std::vector<std::string>& except = {});

[[nodiscard]] bool same_bits(const Result& a, const Result& b);
// For two runs that differ: the two shortest commands that show it, as a sentence and two lines.
std::string shortest_commands(const Result& reference, const Result& other);
// A difference prints them.
void check_same_bits(const Result& reference, const Result& other);
// Every taken way against ddp on loop. Returns the number of cells.
int check_all_equal(int world, const Options& options);

// For runs that differ by roundings: the largest relative difference of a step's loss, and that of what the loss fell by from
// the first step to the last.
double loss_distance(const Result& result, const Result& from);
double fall_distance(const Result& result, const Result& from);

uint64_t peak_bytes(const Result& result, size_t rank, const char* tag);
uint64_t planned_bytes(const Result& result, size_t rank, const char* tag);
// Memory by tag is the strategy's own estimate on every rank, peak included.
[[nodiscard]] bool keeps_its_plan(const Result& result);
void check_plan(const Result& result);
// So are the calls of collectives and of windows.
void check_counts(const Result& result);

}  // namespace ddhost::test
