// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/collective_bench.cpp: the time of collectives through the plugins of transports, beside the time that the
// machine's memory takes with all ranks busy at once (the floor). Transports take turns, each in processes of its own. Time is
// that of the slowest rank. Each result is checked. A size is that of a whole vector on one rank: all_gather and
// reduce_scatter have pieces of size / ranks. "window" are the host's windows and exchanges over shared pages, where nothing
// is gathered; "private" is memory of each rank's own.
// Usage: collective_bench [--transports shm,gloo] [--ranks 2,4,8] [--sizes 1024,...] [--rounds 5] [--bind] [--json]
#include <sched.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "arguments.hpp"
#include "conformance/comm_rank.hpp"
#include "machine.hpp"
#include "memory_rates.hpp"
#include "pages.hpp"

namespace {

using namespace ddhost;
using namespace ddhost::bench;
using test::CommRank;

constexpr size_t kMostRows = 512;
constexpr size_t kMostWindows = kMostFirstCalls;  // each window has a first call, which makes its pages
constexpr uint64_t kSetBytes = 64;                // buffers begin at multiples of it

constexpr const char* kUsage =
    "[--transports shm,gloo] [--ranks 2,4,8] [--sizes 1024,1048576] [--rounds 5] [--bind] [--json]";

struct Request {
  std::vector<std::string> transports{"shm", "gloo"};
  std::vector<int> ranks{2, 4, 8};
  std::vector<uint64_t> sizes{1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  int rounds = 5;
  bool bind = false, json = false;
  int cores = static_cast<int>(allowed_cores().size());  // before ranks are bound
};

// What rank 0 of a world hands to the launcher, in pages that both map.
struct Shared {
  struct Sample {
    double us;        // of a call, on the slowest rank; negative: the transport lacks it
    double is_right;  // 1 if the result was right on every rank
  };
  Sample samples[kMostRows];
  MemoryRates rates;
};

struct Operation {
  const char* name;
  bool in_windows;
};
constexpr Operation kOperations[] = {{"all_reduce", false},    {"reduce_scatter", false}, {"all_gather", false},
                                     {"all_to_all", false},    {"broadcast", false},      {"all_reduce", true},
                                     {"reduce_scatter", true}, {"all_gather", true}};

double us_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

// All threads of this process, a rank, to one core. Else the ranks' and the engines' threads change
// cores at will, and times differ by a factor.
void bind_to_core(int rank) {
  const cpu_set_t mine = ddhost::bench::core_of(ddhost::bench::allowed_cores(), rank);
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
    ::sched_setaffinity(std::atoi(thread.path().filename().c_str()), sizeof mine, &mine);
}

// Small whole numbers, whose sums are exact in every order.
float value(int32_t rank, uint64_t i) {
  return static_cast<float>((i * 7 + static_cast<uint64_t>(rank + 1) * 13) % 101);
}
float sum_of(int32_t world, uint64_t i) {
  float sum = 0;
  for (int32_t r = 0; r < world; ++r) sum += value(r, i);
  return sum;
}

class NoNorm final : public NormSink {
 public:
  void add_gradient(const float*, uint64_t, uint64_t, std::span<const ddh_range>) override {}
  [[nodiscard]] bool sums_on_device() const override { return false; }
  void add_device_gradient(const float*, uint64_t, uint64_t, std::span<const ddh_range>, ddh_stream*) override {}
};

// One rank: two arenas, through which the buffers of calls rotate.
class Bench {
 public:
  Bench(CommRank& rank, const Request& request, Shared& shared)
      : rank_(rank),
        request_(request),
        shared_(shared),
        world_(static_cast<uint64_t>(rank.world)),
        comm_(rank.instance.get(), &rank.table, rank.shared_or_null, clock_),
        numel_(arena_bytes() / sizeof(float)),
        send_(numel_),
        recv_(numel_) {
    for (uint64_t i = 0; i < numel_; ++i) send_[i] = value(rank.rank, i);
  }

  void run() {
    measure_memory();
    size_t row = 0;
    for (const Operation& operation : kOperations)
      for (const uint64_t bytes : request_.sizes) {
        const Shared::Sample sample =
            operation.in_windows ? windows(operation.name, bytes) : private_memory(operation.name, bytes);
        if (rank_.rank == 0) shared_.samples[row] = sample;
        ++row;
      }
  }

 private:
  // All ranks' arenas are at least four times the last-level cache.
  [[nodiscard]] uint64_t arena_bytes() const {
    const uint64_t most = *std::max_element(request_.sizes.begin(), request_.sizes.end());
    return std::max(2 * most, 4 * last_level_cache_bytes() / world_);
  }
  void barrier() const { ddh::call(rank_.table.barrier, rank_.instance.get(), rank_.group); }
  [[nodiscard]] double slowest(double mine) const {
    std::vector<double> all(world_);
    comm_.all_gather_bytes(&mine, all.data(), sizeof mine, "times");
    return *std::max_element(all.begin(), all.end());
  }

  // By as many ranks as there are cores: more would take turns, and each would measure only its own.
  void measure_memory() {
    const int busy = std::min(rank_.world, request_.cores);
    if (rank_.rank >= busy) {
      for (int i = 0; i < kRatePasses; ++i) {
        barrier();
        static_cast<void>(slowest(0));
      }
      return;
    }
    const MemoryRates rates = memory_rates(busy, [&](const auto& pass) {
      barrier();
      const auto begin = std::chrono::steady_clock::now();
      pass();
      return slowest(us_since(begin)) / 1e6;
    });
    if (rank_.rank == 0) shared_.rates = rates;
  }

  [[nodiscard]] CommRank::Collective collective(const std::string& name) const {
    const ddh_comm_backend_api& table = rank_.table;
    if (name == "all_reduce") return table.all_reduce;
    if (name == "reduce_scatter") return table.reduce_scatter;
    if (name == "all_gather") return table.all_gather;
    if (name == "all_to_all") return table.all_to_all;
    return table.broadcast;
  }
  template <class Call>
  TimedCalls timed(uint64_t bytes, Call&& call) {
    return timed_calls(arena_bytes() / bytes, bytes, [&](uint64_t first, uint64_t n) {
      barrier();
      const auto begin = std::chrono::steady_clock::now();
      for (uint64_t c = first; c < first + n; ++c) call(c);
      return slowest(us_since(begin) / static_cast<double>(n));
    });
  }

  Shared::Sample private_memory(const std::string& name, uint64_t bytes) {
    const CommRank::Collective function = collective(name);
    if (function == nullptr) return {-1, 1};
    const uint64_t n = bytes / sizeof(float), piece = n / world_, sets = numel_ / n;
    const bool has_pieces = name == "reduce_scatter" || name == "all_gather" || name == "all_to_all";
    const auto offset = [&](uint64_t call) { return call * (sets / 3 + 1) % sets * n; };
    const auto call = [&](uint64_t c) {
      float* const recv = recv_.data() + offset(c);
      const float* const send = name == "broadcast" && rank_.rank == 0 ? send_.data() + offset(c) : nullptr;
      rank_.call(function, name == "broadcast" ? send : send_.data() + offset(c), recv, has_pieces ? piece : n);
    };
    const auto [us, last_index] = timed(bytes, call);
    bool right = true;
    const uint64_t checked = last_index + 1;  // another call, which must write each element
    std::fill_n(recv_.data() + offset(checked), n, std::numeric_limits<float>::quiet_NaN());
    call(checked);
    const uint64_t at = offset(checked), me = static_cast<uint64_t>(rank_.rank);
    const float* const got = recv_.data() + at;
    for (uint64_t i = 0; i < (name == "reduce_scatter" ? piece : has_pieces ? piece * world_ : n); ++i) {
      const auto from = static_cast<int32_t>(i / std::max<uint64_t>(piece, 1));
      const uint64_t within = i % std::max<uint64_t>(piece, 1);
      const float expected = name == "all_reduce"       ? sum_of(rank_.world, at + i)
                             : name == "reduce_scatter" ? sum_of(rank_.world, at + me * piece + i)
                             : name == "all_gather"     ? value(from, at + within)
                             : name == "all_to_all"     ? value(from, at + me * piece + within)
                                                        : value(0, at + i);
      right = right && got[i] == expected;
    }
    return {us, agreed(right)};
  }
  [[nodiscard]] double agreed(bool right) const { return slowest(right ? 0 : 1) > 0 ? 0 : 1; }

  Shared::Sample windows(const std::string& name, uint64_t bytes) {
    if (!rank_.has(DDH_COMM_SHARED_VIEW) || rank_.shared_or_null == nullptr) return {-1, 1};
    const uint64_t n = bytes / sizeof(float) / world_ * world_;
    const std::vector<uint64_t> segments(world_, n / world_);
    const size_t count = std::clamp<size_t>(arena_bytes() / bytes, 1, kMostWindows);
    return name == "all_gather" ? gather_window(segments, count, bytes) : reduce_window(name, segments, count, bytes);
  }

  // Only the hand-over is timed, not the writing of values: a strategy's optimizer writes in place.
  Shared::Sample gather_window(const std::vector<uint64_t>& segments, size_t count, uint64_t bytes) {
    std::vector<std::unique_ptr<ddh_window>> all;
    const ddh_window_args args{sizeof args, DDH_F32, nullptr, segments.data(), "bench", DDH_TAG_PARAM, 0};
    for (size_t w = 0; w < count; ++w) {
      all.push_back(make_shared_window(comm_, memory_, args, "the benchmark"));
      auto* const segment = static_cast<float*>(all[w]->segment());
      for (uint64_t i = 0; i < segments[0]; ++i) segment[i] = value(rank_.rank, i);
    }
    const float* view = nullptr;
    const double us = timed(bytes, [&](uint64_t c) {
                        ddh_window& window = *all[c % count];
                        window.write_begin(nullptr);
                        window.commit(nullptr);
                        view = static_cast<const float*>(window.open(nullptr, nullptr));
                        window.close(nullptr);
                      }).us;
    bool right = true;
    for (uint64_t i = 0; i < segments[0] * world_; ++i)
      right = right && view[i] == value(static_cast<int32_t>(i / segments[0]), i % segments[0]);
    const double result = agreed(right);
    barrier();
    return {us, result};
  }

  Shared::Sample reduce_window(const std::string& name, const std::vector<uint64_t>& segments, size_t count,
                               uint64_t bytes) {
    const uint64_t n = segments[0] * world_;
    std::vector<std::unique_ptr<ddh_exchange>> all;
    const Floats dst(segments[0]);  // as the memory of a strategy
    const ddh_exchange_args args{sizeof args, 0, nullptr, n, "bench"};
    WindowSettings settings;
    settings.reduce_block = 1;
    for (size_t w = 0; w < count; ++w) {
      all.push_back(make_shared_exchange(comm_, memory_, args, settings, "the benchmark"));
      for (uint64_t i = 0; i < n; ++i) all[w]->buffer()[i] = value(rank_.rank, i);
    }
    const bool to_all = name == "all_reduce";
    const ddh_reduce_args reduction{sizeof reduction,
                                    to_all ? DDH_REDUCE_TO_ALL : 0U,
                                    segments.data(),
                                    to_all ? nullptr : dst.data(),
                                    nullptr,
                                    0,
                                    0};
    NoNorm norm;
    const auto reduce = [&](ddh_exchange& exchange) {
      exchange.write_begin(nullptr);
      exchange.ready(nullptr);
      exchange.reduce(reduction, norm, nullptr);
      exchange.wait(nullptr);
    };
    const double us = timed(bytes, [&](uint64_t c) { reduce(*all[c % count]); }).us;
    // all_reduce has overwritten its contributions: once more, from known ones.
    ddh_exchange& last = *all[0];
    for (uint64_t i = 0; i < n; ++i) last.buffer()[i] = value(rank_.rank, i);
    reduce(last);
    bool right = true;
    const uint64_t first = segments[0] * static_cast<uint64_t>(rank_.rank);
    for (uint64_t i = 0; i < (to_all ? n : segments[0]); ++i)
      right = right && (to_all ? last.buffer()[i] == sum_of(rank_.world, i) : dst[i] == sum_of(rank_.world, first + i));
    const double result = agreed(right);
    barrier();
    return {us, result};
  }

  CommRank& rank_;
  const Request& request_;
  Shared& shared_;
  const uint64_t world_;
  Clock clock_;
  Memory memory_;
  Comm comm_;
  const uint64_t numel_;
  const Floats send_, recv_;
};

// Microseconds that memory takes at least, while all ranks use it, for what they give and get: each byte is read and written
// once. A window's all_gather moves nothing.
double floor_us(const Operation& operation, uint64_t bytes, int world, const MemoryRates& rates) {
  const std::string name = operation.name;
  if (operation.in_windows && name == "all_gather") return 0;
  const auto of_one = static_cast<double>(bytes), of_all = of_one * world;
  const bool gives_one = name == "all_gather" || name == "broadcast";  // all pieces together, or the root's
  return rates.seconds(gives_one ? of_one : of_all, name == "reduce_scatter" ? of_one : of_all) * 1e6;
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> out;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) out.push_back(word);
  return out;
}

template <class Number>
std::vector<Number> numbers_of(const std::string& flag, const std::vector<std::string>& words, int64_t most) {
  std::vector<Number> out;
  for (const std::string& word : words) out.push_back(static_cast<Number>(whole_number(flag, word, 1, most)));
  return out;
}

// Error: a sentence.
Request request_of(int argc, char** argv) {
  Request out;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--json" || flag == "--bind") {
      (flag == "--json" ? out.json : out.bind) = true;
      continue;
    }
    const bool known = flag == "--transports" || flag == "--ranks" || flag == "--sizes" || flag == "--rounds";
    if (!known || i + 1 == argc)
      ddh::fail(DDH_INVALID_ARGUMENT, "'", flag, "' is no flag of it, or lacks its value; give ", kUsage);
    const std::vector<std::string> words = words_of(argv[++i]);
    if (words.empty()) ddh::fail(DDH_INVALID_ARGUMENT, flag, " is empty; give values with commas between them");
    if (flag == "--transports") out.transports = words;
    if (flag == "--sizes") out.sizes = numbers_of<uint64_t>(flag, words, int64_t{1} << 36);
    if (flag == "--ranks") out.ranks = numbers_of<int>(flag, words, 1024);
    if (flag == "--rounds") out.rounds = static_cast<int>(whole_number(flag, words.front(), 1, 1000));
  }
  for (const uint64_t bytes : out.sizes)
    for (const int ranks : out.ranks)
      if (bytes % (kSetBytes * static_cast<uint64_t>(ranks)) != 0)
        ddh::fail(DDH_INVALID_ARGUMENT, "a size of ", bytes, " bytes can't be cut for ", ranks,
                  " ranks into pieces of ", kSetBytes, "-byte multiples; give a multiple of ",
                  kSetBytes * static_cast<uint64_t>(ranks));
  if (std::size(kOperations) * out.sizes.size() > kMostRows)
    ddh::fail(DDH_INVALID_ARGUMENT, "--sizes has ", out.sizes.size(), " sizes, and at most ",
              kMostRows / std::size(kOperations), " fit");
  return out;
}

struct Row {
  std::string transport;
  int ranks;
  Operation operation;
  uint64_t bytes;
  std::vector<double> us, floors_us;
  double most_steal = 0;
  bool right = true;
};

void print(const std::vector<Row>& rows, bool json) {
  if (json) {
    nlohmann::ordered_json out = {{"machine", processor_name()},
                                  {"last_level_cache_bytes", last_level_cache_bytes()},
                                  {"rows", nlohmann::ordered_json::array()}};
    for (const Row& row : rows)
      out["rows"].push_back({{"transport", row.transport},
                             {"ranks", row.ranks},
                             {"operation", row.operation.name},
                             {"memory", row.operation.in_windows ? "window" : "private"},
                             {"bytes", row.bytes},
                             {"us", median(row.us)},
                             {"rounds_us", row.us},
                             {"floor_us", median(row.floors_us)},
                             {"steal_percent", row.most_steal},
                             {"is_right", row.right}});
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  std::printf("%-8s %5s  %-14s %-8s %10s %12s %12s %8s\n", "", "ranks", "operation", "memory", "bytes", "us",
              "floor us", "floor/us");
  for (const Row& row : rows) {
    const double us = median(row.us), floor = median(row.floors_us);
    std::printf("%-8s %5d  %-14s %-8s %10llu %12.1f %12.1f %8.2f%s%s\n", row.transport.c_str(), row.ranks,
                row.operation.name, row.operation.in_windows ? "window" : "private",
                static_cast<unsigned long long>(row.bytes), us, floor, us > 0 ? floor / us : 0,
                row.most_steal > kMostSteal ? "  steal > 5 %" : "", row.right ? "" : "  WRONG RESULT");
  }
}

int run(const Request& request) {
  void* const pages = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) ddh::fail(DDH_RESOURCE_EXHAUSTED, "there is no memory for the results");
  auto& shared = *static_cast<Shared*>(pages);
  std::vector<Row> rows;
  bool all_right = true;
  for (const int ranks : request.ranks) {
    std::map<std::string, std::vector<Row>> of_transports;
    for (int round = 0; round < request.rounds; ++round)
      for (const std::string& transport : request.transports) {
        const Steal before = Steal::now();
        const Outcome outcome = test::run_world(
            transport, ranks,
            [&](CommRank& rank) {
              if (request.bind) bind_to_core(rank.rank);
              Bench(rank, request, shared).run();
            },
            1, /*staging_bytes=*/"");
        if (outcome.exit_code != 0)
          ddh::fail(DDH_INTERNAL, transport, " with ", ranks, " ranks failed: ", outcome.sentence);
        const double steal = Steal::now().percent_since(before);
        std::vector<Row>& mine = of_transports[transport];
        size_t index = 0;
        for (const Operation& operation : kOperations)
          for (const uint64_t bytes : request.sizes) {
            if (round == 0) mine.push_back({transport, ranks, operation, bytes, {}, {}, 0, true});
            const Shared::Sample& sample = shared.samples[index];
            Row& row = mine[index++];
            if (sample.us < 0) continue;
            row.us.push_back(sample.us);
            row.floors_us.push_back(floor_us(operation, bytes, ranks, shared.rates));
            row.most_steal = std::max(row.most_steal, steal);
            row.right = row.right && sample.is_right > 0;
          }
        if (!request.json && round == 0)
          std::printf("%s, %d ranks at once: read %.1f, write %.1f, copy %.1f, update %.1f GB/s\n", transport.c_str(),
                      ranks, shared.rates.read / 1e9, shared.rates.write / 1e9, shared.rates.copy / 1e9,
                      shared.rates.update / 1e9);
      }
    for (const std::string& transport : request.transports)
      for (Row& row : of_transports[transport])
        if (!row.us.empty()) {
          if (!row.right)
            std::fprintf(stderr, "collective_bench: %s of %llu bytes on %d ranks over %s gave a wrong result\n",
                         row.operation.name, static_cast<unsigned long long>(row.bytes), ranks, transport.c_str());
          all_right = all_right && row.right;
          rows.push_back(std::move(row));
        }
  }
  print(rows, request.json);
  ::munmap(pages, sizeof(Shared));
  return all_right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("collective_bench", kUsage, argc, argv, [&] { return run(request_of(argc, argv)); });
}
