// SPDX-License-Identifier: Apache-2.0
#include "session.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

namespace mpi_transport {
namespace {

// PMIx is how Open MPI and Slurm tell a process its place, PMI how MPICH and its kin do. MPI_Init without one of them begins
// a world of one process.
constexpr const char* kRankVariables[] = {"PMIX_RANK", "PMI_RANK"};

std::optional<int32_t> launched_rank() {
  for (const char* const name : kRankVariables) {
    const char* const text = std::getenv(name);
    int32_t rank = 0;
    if (text != nullptr && std::from_chars(text, text + std::strlen(text), rank).ec == std::errc()) return rank;
  }
  return std::nullopt;
}

// The ranks of a task would all call MPI_Init as the same process of MPI, which hangs.
void require_own_task(const ddh_comm_init& args) {
  const std::optional<int32_t> task = launched_rank();
  if (!task)
    ddh::fail(
        DDH_FAILED_PRECONDITION,
        "MPI needs processes that its launcher has started, and this one has neither PMIX_RANK nor PMI_RANK in its "
        "environment; start the run with `mpirun -n ",
        args.world_size, " ddhost ...` or `srun --mpi=pmix -n ", args.world_size, " ddhost ...`, or use --comm gloo");
  if (*task != args.rank)
    ddh::fail(DDH_FAILED_PRECONDITION, "MPI needs one task for each rank, but rank ", args.rank, " of the ",
              args.world_size, " ranks is in task ", *task, " of the MPI launcher; start ", args.world_size,
              " tasks, as `mpirun -n ", args.world_size,
              " ddhost ...` does, and leave out --nproc, or use --comm gloo");
}

}  // namespace

Session::Session(const ddh_comm_init& args) : rank_(args.rank), world_size_(args.world_size) {
  require_own_task(args);
  int is_begun = 0;
  check(MPI_Initialized(&is_begun));
  if (is_begun != 0)
    ddh::fail(DDH_FAILED_PRECONDITION,
              "this process has begun MPI already, and it can begin only once; use comm 'mpi' for one ",
              "transport of the run");
  int threads = MPI_THREAD_SINGLE, size = 0, rank = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads));
  // By default MPI ends the process where a call fails.
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  if (threads < MPI_THREAD_SERIALIZED)
    ddh::fail(DDH_FAILED_PRECONDITION, "this MPI takes calls from one thread alone (MPI_Init_thread gives ", threads,
              "), and ranks call from several; use an MPI with MPI_THREAD_SERIALIZED, or --comm gloo");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size));
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  if (size != world_size_ || rank != rank_)
    ddh::fail(DDH_FAILED_PRECONDITION, "rank ", rank_, " of the run's ", world_size_, " is process ", rank,
              " of MPI's ", size, "; start the run with `mpirun -n ", world_size_,
              "` and leave out --nproc, or use --comm gloo");
}

// The lock is free while MPI_Finalize waits for other ranks, so that stop() does not wait with it.
void Session::end() {
  {
    const std::lock_guard lock(mutex_);
    require_running();
    is_stopped_ = true;
  }
  check(MPI_Finalize());
}

void Session::require_running() const {
  if (is_stopped_) throw std::runtime_error("this rank has given up");
}

int Session::next_tag() {
  void* bound = nullptr;
  int is_set = 0;
  call([&] { return MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &is_set); });
  const int64_t highest = is_set != 0 ? *static_cast<const int*>(bound) : 32767;  // what the standard promises
  const int64_t tag = 2 * (int64_t{groups_++} * world_size_ + rank_);
  if (tag + 1 > highest)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "rank ", rank_, " begins ", groups_, " groups, and this MPI has numbers up to ",
              highest, " for the messages of all ranks; use fewer groups, or --comm gloo");
  return static_cast<int>(tag);
}

void Session::check(int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(text, static_cast<size_t>(std::max(length, 0))));
}

}  // namespace mpi_transport
