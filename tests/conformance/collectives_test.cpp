// SPDX-License-Identifier: Apache-2.0
//
// A conformance test for transports (conformance.hpp): the algebra of collectives against straightforward sums in rank order:
// sizes, dtypes, worlds, in place and not, uneven and empty pieces, staged and in shared pages.
#include <cstring>
#include <numeric>

#include "conformance/comm_world.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

void test_all_reduce(CommRank& r, int32_t block) {
  if (!r.offers(r.table.all_reduce != nullptr, "all_reduce")) return;
  for (const uint64_t n : kSizes) {
    std::vector<float> x = mine(r, n), out(n + 1, 77.0F);
    r.call(r.table.all_reduce, x.data(), out.data(), n);
    r.call(r.table.all_reduce, x.data(), x.data(), n);
    for (uint64_t i = 0; i < n; ++i) {
      expect(out[i] == sum_in_order(r, i, block) && x[i] == out[i], "all_reduce", n);
    }
    expect(out[n] == 77.0F, "all_reduce beyond its end", n);
  }
}

void test_pieces(CommRank& r) {
  if (!r.offers(r.table.reduce_scatter != nullptr, "reduce_scatter")) return;
  for (const uint64_t n : kSizes) {
    const bool uneven = n % 2 == 1;
    std::vector<uint64_t> counts;
    uint64_t total = 0, my_offset = 0;
    for (int32_t p = 0; p < r.world; ++p) {
      counts.push_back(uneven ? n * static_cast<uint64_t>(p) / 2 : n);  // rank 0 has an empty piece
      if (p < r.rank) my_offset += counts.back();
      total += counts.back();
    }
    const uint64_t my_count = counts[static_cast<size_t>(r.rank)];
    const uint64_t* given = uneven ? counts.data() : nullptr;
    const std::vector<float> x = mine(r, total);
    std::vector<float> piece(my_count + 1), all(total + 1);
    r.call(r.table.reduce_scatter, x.data(), piece.data(), n, DDH_F32, DDH_SUM, given);
    for (uint64_t i = 0; i < my_count; ++i) expect(piece[i] == sum_in_order(r, my_offset + i, 1), "reduce_scatter", n);
    r.call(r.table.all_gather, piece.data(), all.data(), n, DDH_F32, DDH_SUM, given);
    for (uint64_t i = 0; i < total; ++i) expect(all[i] == sum_in_order(r, i, 1), "all_gather", n);
    std::vector<float> in_place = x;
    r.call(r.table.reduce_scatter, in_place.data(), in_place.data() + my_offset, n, DDH_F32, DDH_SUM, given);
    r.call(r.table.all_gather, in_place.data() + my_offset, in_place.data(), n, DDH_F32, DDH_SUM, given);
    for (uint64_t i = 0; i < total; ++i) expect(in_place[i] == all[i], "reduce_scatter and all_gather in place", n);
  }
}

// Rank a sends rank b (a + 2 b) % 3 times n elements: some pieces are empty.
void test_uneven_all_to_all(CommRank& r, uint64_t n) {
  const auto world = static_cast<uint64_t>(r.world), me = static_cast<uint64_t>(r.rank);
  const auto count = [n](uint64_t from, uint64_t to) { return (from + 2 * to) % 3 * n; };
  std::vector<uint64_t> sent, got;
  for (uint64_t p = 0; p < world; ++p) {
    sent.push_back(count(me, p));
    got.push_back(count(p, me));
  }
  const std::vector<float> x = mine(r, std::accumulate(sent.begin(), sent.end(), uint64_t{0}));
  std::vector<float> out(std::accumulate(got.begin(), got.end(), uint64_t{1}));
  const ddh_coll c{sizeof c, DDH_F32, DDH_SUM, 0,      nullptr, out.data(), 0,
                   nullptr,  r.group, nullptr, "test", nullptr, nullptr};
  ddh_coll with_counts = c;
  with_counts.send = x.data();
  with_counts.counts = sent.data();
  with_counts.recv_counts = got.data();
  ddh::call(r.table.all_to_all, r.instance.get(), &with_counts);
  uint64_t at = 0;
  for (uint64_t from = 0; from < world; ++from) {
    uint64_t offset = 0;
    for (uint64_t to = 0; to < me; ++to) offset += count(from, to);
    for (uint64_t i = 0; i < got[from]; ++i, ++at)
      expect(out[at] == value(r, static_cast<int32_t>(from), offset + i), "all_to_all of uneven pieces", n);
  }
}

void test_moves(CommRank& r) {
  const auto world = static_cast<uint64_t>(r.world);
  const bool sends_to_all = r.offers(r.table.all_to_all != nullptr, "all_to_all");
  const bool sends = r.offers(r.table.send != nullptr && r.table.recv != nullptr, "send and recv");
  for (const uint64_t n : kSizes) {
    for (int32_t root = 0; root < r.world; ++root) {
      std::vector<float> x = mine(r, n);
      r.call(r.table.broadcast, x.data(), x.data(), n, DDH_F32, DDH_SUM, nullptr, root);
      for (uint64_t i = 0; i < n; ++i) expect(x[i] == value(r, root, i), "broadcast", n);
    }
    const std::vector<float> x = mine(r, n * world);
    if (sends_to_all) {
      std::vector<float> out(n * world + 1);
      r.call(r.table.all_to_all, x.data(), out.data(), n);
      for (uint64_t i = 0; i < n * world; ++i) {
        const uint64_t from = i / n, index = static_cast<uint64_t>(r.rank) * n + i % n;
        expect(out[i] == value(r, static_cast<int32_t>(from), index), "all_to_all", n);
      }
      test_uneven_all_to_all(r, n);
    }
    // A ring of messages: even ranks send first.
    if (!sends || r.world < 2 || r.world % 2 == 1) continue;
    std::vector<float> got(n + 1);
    const int32_t next = (r.rank + 1) % r.world, before = (r.rank + r.world - 1) % r.world;
    const auto send = [&] { r.call(r.table.send, x.data(), nullptr, n, DDH_F32, 0, nullptr, next); };
    const auto recv = [&] { r.call(r.table.recv, nullptr, got.data(), n, DDH_F32, 0, nullptr, before); };
    if (r.rank % 2 == 0) send();
    recv();
    if (r.rank % 2 == 1) send();
    for (uint64_t i = 0; i < n; ++i) expect(got[i] == value(r, before, i), "send and recv", n);
  }
}

// Sums that start from a value of this rank's own, in place of the result and apart.
void test_start_values(CommRank& r, int32_t block) {
  if (!r.offers(r.has(DDH_COMM_INITIAL), "sums that start from a value")) return;
  for (const uint64_t n : kSizes) {
    const uint64_t first = n * static_cast<uint64_t>(r.rank);
    const std::vector<float> x = mine(r, n * static_cast<uint64_t>(r.world));
    const auto start = [&](uint64_t offset) {
      std::vector<float> values(n + 1);
      for (uint64_t i = 0; i < n; ++i) values[i] = value(r, -1, offset + i);
      return values;
    };
    std::vector<float> all = start(0), piece = start(first), out(n + 1);
    ddh_coll c{sizeof c, DDH_F32, DDH_SUM, 0,      x.data(), all.data(), n,
               nullptr,  r.group, nullptr, "test", nullptr,  all.data()};
    ddh::call(r.table.all_reduce, r.instance.get(), &c);
    c.recv = piece.data();
    c.initial = piece.data();
    ddh::call(r.table.reduce_scatter, r.instance.get(), &c);
    const std::vector<float> apart = start(first);
    c.recv = out.data();
    c.initial = apart.data();
    ddh::call(r.table.reduce_scatter, r.instance.get(), &c);
    for (uint64_t i = 0; i < n; ++i) {
      expect(all[i] == sum_in_order(r, i, block, true), "all_reduce from a value", n);
      expect(piece[i] == sum_in_order(r, first + i, block, true), "reduce_scatter from a value", n);
      expect(out[i] == piece[i], "reduce_scatter from a value that lies apart", n);
    }
  }
}

template <class T>
void test_dtype(CommRank& r, int32_t dtype) {
  if (r.table.all_reduce == nullptr) return;
  for (const uint64_t n : {uint64_t{1}, uint64_t{65}, uint64_t{20'000}}) {
    for (const int32_t op : {DDH_SUM, DDH_MAX, DDH_MIN}) {
      std::vector<T> x(n), expected(n);
      const auto at = [](int32_t rank, uint64_t i) {
        return static_cast<T>((i * 31 + static_cast<uint64_t>(rank) * 17) % 1000) - static_cast<T>(500);
      };
      for (uint64_t i = 0; i < n; ++i) {
        x[i] = at(r.rank, i);
        expected[i] = at(0, i);
        for (int32_t p = 1; p < r.world; ++p) {
          expected[i] = op == DDH_SUM   ? expected[i] + at(p, i)
                        : op == DDH_MAX ? std::max(expected[i], at(p, i))
                                        : std::min(expected[i], at(p, i));
        }
      }
      r.call(r.table.all_reduce, x.data(), x.data(), n, dtype, op);
      expect(x == expected, "all_reduce of another dtype", n);
    }
  }
}

// bf16: the sum in fp32, rounded once at the end.
void test_bf16(CommRank& r) {
  if (r.table.all_reduce == nullptr || !r.offers(r.has(DDH_COMM_ORDERED_SUM), "promised order of sums: bf16")) return;
  const auto to_bf16 = [](float f) {
    uint32_t bits = 0;
    std::memcpy(&bits, &f, sizeof bits);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  };
  const auto to_float = [](uint16_t h) {
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float f = 0;
    std::memcpy(&f, &bits, sizeof f);
    return f;
  };
  for (const uint64_t n : {uint64_t{3}, uint64_t{1000}, uint64_t{50'000}}) {
    std::vector<uint16_t> x(n);
    for (uint64_t i = 0; i < n; ++i)
      x[i] = to_bf16(1.0F + 0.01F * static_cast<float>(i % 97) + static_cast<float>(r.rank));
    r.call(r.table.all_reduce, x.data(), x.data(), n, DDH_BF16);
    for (uint64_t i = 0; i < n; ++i) {
      float sum = to_float(to_bf16(1.0F + 0.01F * static_cast<float>(i % 97)));
      for (int32_t p = 1; p < r.world; ++p)
        sum += to_float(to_bf16(1.0F + 0.01F * static_cast<float>(i % 97) + static_cast<float>(p)));
      expect(x[i] == to_bf16(sum), "all_reduce of bf16", n);
    }
  }
}

// The same calls on buffers that all ranks map: nothing is staged.
void test_regions(CommRank& r) {
  if (!r.offers(r.shared_or_null != nullptr, "shared pages")) return;
  constexpr uint64_t kNumel = 40'000;
  const auto world = static_cast<uint64_t>(r.world), rank = static_cast<uint64_t>(r.rank);
  void* base = nullptr;
  ddh_region* region = nullptr;
  ddh::call(r.shared().region_create, r.instance.get(), r.group, "test", kNumel * world * sizeof(float), &base,
            &region);
  float* own = static_cast<float*>(base) + rank * kNumel;
  const auto refill = [&] {
    for (uint64_t i = 0; i < kNumel; ++i) own[i] = value(r, r.rank, i);
    ddh::call(r.table.barrier, r.instance.get(), r.group);
  };
  refill();
  r.call(r.table.all_reduce, own, own, kNumel);
  for (uint64_t i = 0; i < kNumel; ++i) expect(own[i] == sum_in_order(r, i, 1), "all_reduce in shared pages", kNumel);
  refill();
  const uint64_t piece = kNumel / 8;
  std::vector<float> out(piece), all(piece * world);
  r.call(r.table.reduce_scatter, own, out.data(), piece);
  for (uint64_t i = 0; i < piece; ++i)
    expect(out[i] == sum_in_order(r, rank * piece + i, 1), "reduce_scatter from shared pages", piece);
  r.call(r.table.all_gather, own, all.data(), piece);
  for (uint64_t i = 0; i < piece * world; ++i)
    expect(all[i] == value(r, static_cast<int32_t>(i / piece), i % piece), "all_gather from shared pages", piece);
  ddh::call(r.table.barrier, r.instance.get(), r.group);
  r.shared().region_destroy(r.instance.get(), region);
}

}  // namespace

TEST_CASE("collectives equal their definition, sums in rank order", "[comm]") {
  const std::string transport = GENERATE(from_range(transports()));
  const int world = GENERATE(1, 2, 3, 4, 8);
  check_world(transport, world, [](CommRank& r) {
    test_all_reduce(r, 1);
    test_start_values(r, 1);
    test_pieces(r);
    test_moves(r);
    test_dtype<double>(r, DDH_F64);
    test_dtype<int32_t>(r, DDH_I32);
    test_dtype<int64_t>(r, DDH_I64);
    test_bf16(r);
    test_regions(r);
  });
}

TEST_CASE("sums keep to blocks of ranks", "[comm]") {
  const std::string transport = GENERATE(from_range(transports()));
  const int32_t block = GENERATE(2, 3);  // with 3 the order inside a block shows too
  check_world(
      transport, 5,  // the last block is shorter
      [block](CommRank& r) {
        if (!r.offers(r.has(DDH_COMM_ORDERED_SUM), "promised order of sums: blocks")) return;
        test_all_reduce(r, block);
        test_start_values(r, block);
      },
      static_cast<uint32_t>(block));
}

TEST_CASE("a group of some ranks works at the same time as the group of all ranks", "[comm]") {
  const std::string transport = GENERATE(from_range(transports()));
  check_world(transport, 4, [](CommRank& r) {
    const int32_t even[] = {0, 2}, odd[] = {1, 3};
    ddh::call(r.table.group_create, r.instance.get(), r.rank % 2 == 0 ? "even" : "odd", r.rank % 2 == 0 ? even : odd,
              2u, &r.group);
    for (const uint64_t n : kSizes) {
      std::vector<float> x = mine(r, n);
      r.call(r.table.all_reduce, x.data(), x.data(), n);
      for (uint64_t i = 0; i < n; ++i)
        expect(x[i] == value(r, r.rank % 2, i) + value(r, r.rank % 2 + 2, i), "all_reduce in a group", n);
    }
  });
}

TEST_CASE("collectives come from any thread of a rank, one after the other", "[comm]") {
  const std::string transport = GENERATE(from_range(transports()));
  check_world(transport, 3, [](CommRank& r) {
    for (int i = 0; i < 3; ++i) {
      std::exception_ptr failure;
      std::thread([&] {
        try {
          test_all_reduce(r, 1);
          test_pieces(r);
          test_moves(r);
        } catch (...) {
          failure = std::current_exception();
        }
      }).join();
      if (failure) std::rethrow_exception(failure);
      test_all_reduce(r, 1);
    }
  });
}
