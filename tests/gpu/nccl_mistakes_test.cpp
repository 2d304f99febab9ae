// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in calls of the transport nccl, made on purpose, and libraries that can't be used: the stand-in for NCCL says
// what is wrong. Each mistake is made beside the same work without it.
#include <fcntl.h>
#include <unistd.h>

#include <regex>

#include "fixtures/harness/ddhost_process.hpp"
#include "gpu/nccl_fixture.hpp"

using namespace ddhost;
using namespace ddhost::test;
using Catch::Contains;

namespace {

const char* const kWhy = "only the stand-ins find mistakes in every run";
const std::vector<Override> kSymmetric = {{"comm.symmetric_windows", "true", "test"}, {"comm.timeout_s", "1", "test"}};

struct Ended {
  Outcome outcome;
  std::string printed;  // by all ranks
};

// Two ranks, whose words on stderr are kept.
Ended run_two(const std::function<void(NcclRank&)>& body, const std::vector<Override>& settings = {}) {
  const StandinGpus gpus(2);
  const TempFolder folder;
  const std::string file = folder.file("stderr");
  const int before = dup(STDERR_FILENO), to = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  REQUIRE(dup2(to, STDERR_FILENO) == STDERR_FILENO);
  const Outcome outcome = run_world(2, body, settings);
  dup2(before, STDERR_FILENO);
  for (const int end : {before, to}) close(end);
  return {outcome, read_text(file)};
}

// Without the mistake the work ends well; with it the run fails, and the words are printed.
void check_found(const std::string& words, const std::function<void(NcclRank&, bool mistake)>& work,
                 const std::vector<Override>& settings = {}) {
  const Ended right = run_two([&](NcclRank& r) { work(r, false); }, settings);
  CAPTURE(right.outcome.sentence, right.printed);
  CHECK(right.outcome.exit_code == 0);
  const Ended wrong = run_two([&](NcclRank& r) { work(r, true); }, settings);
  CHECK(wrong.outcome.exit_code != 0);
  INFO(wrong.printed);
  CHECK(std::regex_search(wrong.printed, std::regex(words)));
}

void check_mismatch_is_found() {
  check_found("NCCL: rank [01] sends 40[04] bytes .*, but rank [01] expects 40[04] ", [](NcclRank& r, bool mistake) {
    float* const all = r.upload(std::vector<float>(404, NAN));
    const uint64_t n = mistake && r.rank == 0 ? 100 : 101;
    r.call(r.table().all_gather, r.coll(r.upload(values(r.rank, 101)), all, n));
    r.device().synchronize(nullptr);
  });
}

void check_swap_is_found() {
  check_found("NCCL: rank [01] sends 256 bytes in a call of kind [12], but rank [01] expects 256 in one of kind [12]",
              [](NcclRank& r, bool mistake) {
                constexpr uint64_t n = 64;
                float *const x = r.upload(values(r.rank, n)), *const all = r.upload(std::vector<float>(2 * n, NAN));
                const auto gather = [&] { r.call(r.table().all_gather, r.coll(x, all, n)); };
                const auto cast = [&] { r.call(r.table().broadcast, r.coll(x, x, n)); };
                const bool swaps = mistake && r.rank == 1;
                if (!swaps) gather();
                cast();
                if (swaps) gather();
                r.device().synchronize(nullptr);
              });
}

// NCCL orders the calls of one communicator, not those of two.
void check_missing_wait_is_found() {
  check_found("the gather came before the broadcast", [](NcclRank& r, bool mistake) {
    constexpr uint64_t n = 64;
    const int32_t members[] = {0, 1};
    ddh_group* pair = nullptr;
    ddh::call(r.table().group_create, r.inst(), "pair", members, 2U, &pair);
    const ddh_stream_api& streams = r.device().streams();
    ddh_stream *first = nullptr, *second = nullptr;
    for (ddh_stream** stream : {&first, &second}) ddh::call(streams.create, r.device().context(), "test", stream);
    StreamMark done(r.device());
    float *const x = r.upload(values(r.rank, n)), *const all = r.upload(std::vector<float>(2 * n, NAN));
    r.device().synchronize(nullptr);
    ddh_coll cast = r.coll(x, x, n), gather = r.coll(x, all, n);
    cast.stream = first;
    gather.stream = second;
    gather.group = pair;
    r.call(r.table().broadcast, cast);
    done.set(first);
    if (!mistake) done.order(second);
    r.call(r.table().all_gather, gather);
    for (ddh_stream* stream : {second, first}) r.device().synchronize(stream);
    std::vector<float> expected = values(0, n);
    expected.insert(expected.end(), expected.begin(), expected.begin() + n);
    if (r.read(all, 2 * n) != expected) std::fprintf(stderr, "the gather came before the broadcast\n");
    expect(r.read(all, 2 * n) == expected, "a gather after a broadcast", n);
    for (ddh_stream* stream : {first, second}) streams.destroy(r.device().context(), stream);
  });
}

void check_window_mistakes_are_found() {
  check_found(
      "NCCL: rank [01] registers a window of [0-9]+ bytes, and rank [01] one of [0-9]+",
      [](NcclRank& r, bool mistake) {
        r.table().buffer_release(r.inst(), r.group, window_of(r, mistake && r.rank == 1 ? 128 : 64));
      },
      kSymmetric);
  check_found(
      "NCCL: a call uses 256 bytes of a window that ends after 128",
      [](NcclRank& r, bool mistake) {
        float* const window = window_of(r, 64);
        float* const half = window + 32;
        r.call(r.table().broadcast, r.coll(half, half, mistake ? 64 : 32));
        r.device().synchronize(nullptr);
        r.table().buffer_release(r.inst(), r.group, window);
      },
      kSymmetric);
  const Ended by_one_rank = run_two(
      [](NcclRank& r) {
        if (r.rank == 0)
          window_of(r, 64);
        else
          std::this_thread::sleep_for(std::chrono::seconds(20));
      },
      kSymmetric);
  CHECK_THAT(by_one_rank.outcome.sentence, Contains("NCCL was not done with registering a window in group 'world'"));
}

}  // namespace

TEST_CASE("ranks that give different sizes to a collective end with an error that has both", "[gpu]") {
  if (needs_stand_ins(kWhy)) return;
  check_mismatch_is_found();
}

TEST_CASE("ranks that swap two collectives end with an error that has both kinds", "[gpu]") {
  if (needs_stand_ins(kWhy)) return;
  check_swap_is_found();
}

TEST_CASE("a missing wait between the collectives of two groups, on two streams, is found", "[gpu]") {
  if (needs_stand_ins(kWhy)) return;
  check_missing_wait_is_found();
}

TEST_CASE("mistakes with symmetric windows end the run with the sizes", "[gpu]") {
  if (needs_stand_ins(kWhy)) return;
  check_window_mistakes_are_found();
}

TEST_CASE("these mistakes are found in ten of ten runs", "[.all]") {
  if (needs_stand_ins(kWhy)) return;
  for (int i = 0; i < 10; ++i) {
    check_mismatch_is_found();
    check_swap_is_found();
    check_missing_wait_is_found();
    check_window_mistakes_are_found();
  }
}

TEST_CASE("symmetric windows are refused with an NCCL that has none, or makes none between the GPUs", "[gpu]") {
  if (needs_stand_ins("only the stand-in can be another NCCL")) return;
  {
    const Setting none("DDHOST_STANDIN_NCCL_NO_WINDOWS", "1");
    CHECK_THAT(run_two([](NcclRank& r) { window_of(r, 64); }, kSymmetric).outcome.sentence,
               Contains("NCCL makes no symmetric windows") && Contains("comm.symmetric_windows=false"));
  }
  const Setting old("DDHOST_STANDIN_NCCL_VERSION", "22602");
  const auto nothing = [](NcclRank&) {};
  CHECK_THAT(run_world(1, nothing, kSymmetric).sentence,
             Contains("needs NCCL 2.27") && Contains("is 2.26.2") && Contains("comm.symmetric_windows=false"));
}

TEST_CASE("an old NCCL is refused with its version", "[gpu]") {
  if (needs_stand_ins("only the stand-in can be another NCCL")) return;
  const Setting old("DDHOST_STANDIN_NCCL_VERSION", "21403");
  const auto nothing = [](NcclRank&) {};
  CHECK_THAT(run_world(1, nothing).sentence, Contains("is NCCL 2.14.3") && Contains("2.18.0"));
}

TEST_CASE("a rank that never connects ends the run at the deadline", "[gpu]") {
  if (needs_stand_ins(kWhy)) return;
  const StandinGpus gpus(2);
  const Outcome outcome = run_world(2,
                                    [](NcclRank& r) {
                                      if (r.rank == 1)
                                        std::this_thread::sleep_for(std::chrono::seconds(20));  // in no group
                                      const int32_t members[] = {0, 1};
                                      ddh_group* pair = nullptr;
                                      ddh::call(r.table().group_create, r.inst(), "pair", members, 2U, &pair);
                                    },
                                    {{"comm.timeout_s", "1", "test"}});
  CHECK_THAT(outcome.sentence, Contains("NCCL was not done with connecting the ranks in group 'pair'"));
}

TEST_CASE("work of NCCL that never ends, and that no abort ends, ends these tests at their limit", "[gpu]") {
  if (needs_stand_ins(kWhy)) return;
  const StandinGpus gpus(2);
  const Setting lost("DDHOST_STANDIN_NCCL_LOST", "1:0"), ignored("DDHOST_STANDIN_IGNORES", "ncclCommAbort");
  const auto gather = [](NcclRank& r) {
    r.call(r.table().all_gather, r.coll(r.upload(values(r.rank, 64)), r.upload(std::vector<float>(128, NAN)), 64));
    r.device().synchronize(nullptr);
  };
  CHECK_THAT(run_world(2, gather, {}, 2, /*limit_s=*/2).sentence, Contains("was killed by signal 14"));
}
