// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/mpi_collectives.cpp: the collectives of an MPI library alone, as collective_bench measures those of transports:
// the same sizes, buffers in private memory that rotate through four times the last-level cache, the slowest rank's time, and
// checked results. Prints one line "operation bytes us" for each; collectives_vs_mpi.py runs it.
// Usage: mpirun -n 2 mpi_collectives 1024 1048576 ...
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "machine.hpp"
#include "pages.hpp"

namespace {

// Small whole numbers, whose sums are exact in every order.
float value(int rank, size_t i) { return static_cast<float>((i * 7 + static_cast<size_t>(rank + 1) * 13) % 101); }

class Bench {
 public:
  Bench(size_t most_bytes, int rank, int world)
      : rank_(rank),
        world_(world),
        send_(std::max(2 * most_bytes, 4 * ddhost::bench::last_level_cache_bytes() / static_cast<size_t>(world)) /
              sizeof(float)),
        recv_(send_.size()) {
    for (size_t i = 0; i < send_.size(); ++i) send_[i] = value(rank_, i);
  }

  void run(size_t bytes) {
    const auto n = static_cast<int>(bytes / sizeof(float)), piece = n / world_;
    time("all_reduce", bytes,
         [&](const float* from, float* to) { MPI_Allreduce(from, to, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    time("reduce_scatter", bytes, [&](const float* from, float* to) {
      MPI_Reduce_scatter_block(from, to, piece, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    time("all_gather", bytes, [&](const float* from, float* to) {
      MPI_Allgather(from, piece, MPI_FLOAT, to, piece, MPI_FLOAT, MPI_COMM_WORLD);
    });
    time("all_to_all", bytes, [&](const float* from, float* to) {
      MPI_Alltoall(from, piece, MPI_FLOAT, to, piece, MPI_FLOAT, MPI_COMM_WORLD);
    });
    time("broadcast", bytes, [&](const float* from, float* to) {
      MPI_Bcast(rank_ == 0 ? const_cast<float*>(from) : to, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    });
  }

 private:
  void time(const std::string& name, size_t bytes, const std::function<void(const float*, float*)>& call) {
    const size_t n = bytes / sizeof(float), sets = send_.size() / n;
    const auto offset = [&](size_t c) { return c * (sets / 3 + 1) % sets * n; };
    const auto [us, last] = ddhost::bench::timed_calls(sets, bytes, [&](uint64_t first, uint64_t count) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      for (size_t c = first; c < first + count; ++c) call(send_.data() + offset(c), recv_.data() + offset(c));
      double mine = (MPI_Wtime() - begin) / static_cast<double>(count) * 1e6, slowest = 0;
      MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      return slowest;
    });
    const size_t checked = last + 1;  // another call, which must write each element
    std::fill_n(recv_.data() + offset(checked), n, std::numeric_limits<float>::quiet_NaN());
    call(send_.data() + offset(checked), recv_.data() + offset(checked));
    check(name, n, offset(checked));
    if (rank_ == 0) std::printf("%s %zu %.3f\n", name.c_str(), bytes, us);
  }

  void check(const std::string& name, size_t n, size_t at) const {
    if (name == "broadcast" && rank_ == 0) return;
    const size_t piece = n / static_cast<size_t>(world_), me = static_cast<size_t>(rank_);
    for (size_t i = 0; i < (name == "reduce_scatter" ? piece : n); ++i) {
      const auto from = static_cast<int>(i / piece);
      float expected = value(0, at + i);
      if (name == "all_gather") expected = value(from, at + i % piece);
      if (name == "all_to_all") expected = value(from, at + me * piece + i % piece);
      if (name == "all_reduce" || name == "reduce_scatter") {
        expected = 0;
        for (int r = 0; r < world_; ++r) expected += value(r, at + i + (name == "all_reduce" ? 0 : me * piece));
      }
      if (recv_[at + i] != expected) throw std::runtime_error(name + " gave a wrong result");
    }
  }

  const int rank_, world_;
  const ddhost::bench::Floats send_, recv_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 0;
  try {
    std::vector<size_t> sizes;
    for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    int rank = 0, world = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    const auto fits = [&](size_t bytes) { return bytes > 0 && bytes % (64 * static_cast<size_t>(world)) == 0; };
    if (sizes.empty() || !std::all_of(sizes.begin(), sizes.end(), fits))
      throw std::runtime_error("give sizes that are multiples of 64 bytes for each rank");
    Bench bench(*std::max_element(sizes.begin(), sizes.end()), rank, world);
    for (const size_t bytes : sizes) bench.run(bytes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_collectives: %s\n", error.what());
    code = 1;
  }
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return 0;
}
