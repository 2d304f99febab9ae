// SPDX-License-Identifier: Apache-2.0
//
// The collectives of loop and shm against a plain reference: every bit, over worlds, sizes, dtypes and places of buffers.
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "unit/plugins/comm/same_host/comm_fixture.hpp"

using namespace ddhost::test;

namespace {

struct Bf16 {
  uint16_t bits;
};

template <class T>
struct Type;
template <>
struct Type<float> {
  static constexpr int32_t kDtype = DDH_F32;
  using Acc = float;
};
template <>
struct Type<double> {
  static constexpr int32_t kDtype = DDH_F64;
  using Acc = double;
};
template <>
struct Type<int32_t> {
  static constexpr int32_t kDtype = DDH_I32;
  using Acc = int32_t;
};
template <>
struct Type<int64_t> {
  static constexpr int32_t kDtype = DDH_I64;
  using Acc = int64_t;
};
template <>
struct Type<Bf16> {
  static constexpr int32_t kDtype = DDH_BF16;
  using Acc = float;
};

template <class T>
typename Type<T>::Acc load(T x) {
  return x;
}
float load(Bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// Rounds to nearest, ties to even, by looking at both neighbours.
Bf16 round_to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const Bf16 down{static_cast<uint16_t>(bits >> 16)}, up{static_cast<uint16_t>(down.bits + 1)};
  const double to_down = std::fabs(double{x} - double{load(down)}), to_up = std::fabs(double{load(up)} - double{x});
  if (to_down != to_up) return to_down < to_up ? down : up;
  return down.bits % 2 == 0 ? down : up;
}
template <class T>
T store(typename Type<T>::Acc x) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return round_to_bf16(x);
  } else {
    return x;
  }
}

// What a rank contributes at an index: magnitudes so far apart that every order of a sum gives another result.
template <class T>
T contribution(int32_t rank, uint64_t index) {
  uint64_t h = (index + 1) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(rank + 1) * 0xD1B54A32D192ED03u;
  h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u;
  h ^= h >> 32;
  const double value = std::ldexp(static_cast<double>(h % 20011) - 10005.0, static_cast<int>(h >> 32) % 12 - 6);
  if constexpr (std::is_same_v<T, Bf16>) {
    return {static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16)};
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(h % 200011) - 100005;
  } else {
    return static_cast<T>(value) / T{3};
  }
}

template <class A>
A apply(int32_t op, A a, A b) {
  return op == DDH_SUM ? a + b : op == DDH_MAX ? std::max(a, b) : std::min(a, b);
}

// What a fold starts from at an index of this rank's result: no contribution of any rank.
float start_value(uint64_t index) { return contribution<float>(99, index); }

// The sum's law: rank order inside a block, then the blocks in order, onto `start` where there is one.
template <class T>
T reduced(int32_t op, int32_t size, uint32_t block, uint64_t index, const float* start = nullptr) {
  using Acc = typename Type<T>::Acc;
  Acc total = start != nullptr ? static_cast<Acc>(*start) : Acc{};
  for (int32_t first = 0; first < size; first += static_cast<int32_t>(block)) {
    Acc in_block = load(contribution<T>(first, index));
    const int32_t end = std::min(size, first + static_cast<int32_t>(block));
    for (int32_t r = first + 1; r < end; ++r) in_block = apply<Acc>(op, in_block, load(contribution<T>(r, index)));
    total = first == 0 && start == nullptr ? in_block : apply<Acc>(op, total, in_block);
  }
  return store<T>(total);
}

// What surrounds one collective: where its buffers lie and how it is cut.
struct Shape {
  uint64_t total;  // elements of all pieces
  bool uneven, in_place, in_region;
};

template <class T>
class Case {
 public:
  Case(CommRank& c, Shape shape, uint32_t block, std::byte* region, uint64_t region_stride)
      : c_(c), shape_(shape), block_(block), n_(static_cast<size_t>(c.size)), me_(static_cast<size_t>(c.rank)) {
    const uint64_t even = shape.total / n_;
    counts_.assign(n_, even);
    if (shape.uneven) {  // some pieces empty, one that holds the rest
      uint64_t left = shape.total;
      for (size_t r = 0; r < n_; ++r) {
        counts_[r] = r + 1 == n_ ? left : r % 2 == 1 ? 0 : std::min(left, shape.total / 3 + 5);
        left -= counts_[r];
      }
    }
    total_ = std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
    for (size_t r = 0; r < me_; ++r) first_ += counts_[r];
    const uint64_t room = std::max<uint64_t>(shape.total, 1);
    own_.resize(2 * room);
    T* base = shape.in_region ? reinterpret_cast<T*>(region + me_ * region_stride) : own_.data();
    a_ = base;
    b_ = base + room;
  }

  void all_reduce(int32_t op) {
    fill(a_, shape_.total);
    T* recv = shape_.in_place ? a_ : b_;
    ddh_coll c = c_.coll(Type<T>::kDtype, a_, recv, shape_.total);
    c.op = op;
    c_.run(c_.backend->all_reduce, c);
    for (uint64_t i = 0; i < shape_.total; ++i) same(recv[i], reduced<T>(op, c_.size, block_, i), "all_reduce", i);
    if (!shape_.in_place) unchanged(shape_.total);
  }
  void reduce_scatter(int32_t op) {
    fill(a_, total_);
    T* recv = shape_.in_place ? a_ + first_ : b_;
    ddh_coll c = c_.coll(Type<T>::kDtype, a_, recv, counts_[me_], counts());
    c.op = op;
    c_.run(c_.backend->reduce_scatter, c);
    for (uint64_t i = 0; i < counts_[me_]; ++i)
      same(recv[i], reduced<T>(op, c_.size, block_, first_ + i), "reduce_scatter", i);
    if (!shape_.in_place) unchanged(total_);
  }
  // Sums that start from a value, which is in the result's buffer or in another one.
  void sums_from_a_value(bool apart) {
    if (!shape_.uneven) {
      fill(a_, shape_.total);
      sum_from_a_value(c_.backend->all_reduce, "all_reduce", shape_.total, 0, a_, apart);
    }
    fill(a_, total_);
    sum_from_a_value(c_.backend->reduce_scatter, "reduce_scatter", counts_[me_], first_, a_ + first_, apart);
  }
  void all_gather() {
    T* send = shape_.in_place ? a_ + first_ : b_;
    for (uint64_t i = 0; i < counts_[me_]; ++i) send[i] = contribution<T>(c_.rank, i);
    c_.run(c_.backend->all_gather, c_.coll(Type<T>::kDtype, send, a_, counts_[me_], counts()));
    uint64_t at = 0;
    for (int32_t r = 0; r < c_.size; ++r)
      for (uint64_t i = 0; i < counts_[static_cast<size_t>(r)]; ++i, ++at)
        same(a_[at], contribution<T>(r, i), "all_gather", at);
  }
  void broadcast(int32_t root) {
    fill(a_, shape_.total);
    T* recv = shape_.in_place ? a_ : b_;
    ddh_coll c = c_.coll(Type<T>::kDtype, c_.rank == root ? a_ : nullptr, recv, shape_.total);
    c.root = root;
    c_.run(c_.backend->broadcast, c);
    for (uint64_t i = 0; i < shape_.total; ++i) same(recv[i], contribution<T>(root, i), "broadcast", i);
  }
  // Rank a sends rank b (3 a + 5 b) % 7 parts of a piece: some pieces are empty, none is like another.
  void uneven_all_to_all() {
    const uint64_t part = shape_.total / n_ / 7;
    const auto numel = [part](size_t from, size_t to) { return (3 * from + 5 * to) % 7 * part + (from + to) % 2; };
    std::vector<uint64_t> sent, got;
    uint64_t sent_total = 0, got_total = 0;
    for (size_t r = 0; r < n_; ++r) {
      sent.push_back(numel(me_, r));
      got.push_back(numel(r, me_));
      sent_total += sent.back();
      got_total += got.back();
    }
    std::vector<T> out(sent_total), in(got_total);
    fill(out.data(), sent_total);
    ddh_coll c = c_.coll(Type<T>::kDtype, out.data(), in.data(), 0, sent.data());
    c.recv_counts = got.data();
    c_.run(c_.backend->all_to_all, c);
    uint64_t at = 0;
    for (size_t from = 0; from < n_; ++from) {
      uint64_t offset = 0;  // of what `from` sends to me
      for (size_t to = 0; to < me_; ++to) offset += numel(from, to);
      for (uint64_t i = 0; i < numel(from, me_); ++i, ++at)
        same(in[at], contribution<T>(static_cast<int32_t>(from), offset + i), "uneven all_to_all", at);
    }
  }
  void all_to_all() {
    const uint64_t piece = shape_.total / n_;
    fill(a_, piece * n_);
    c_.run(c_.backend->all_to_all, c_.coll(Type<T>::kDtype, a_, b_, piece));
    for (int32_t r = 0; r < c_.size; ++r)
      for (uint64_t i = 0; i < piece; ++i)
        same(b_[static_cast<size_t>(r) * piece + i], contribution<T>(r, me_ * piece + i), "all_to_all", i);
  }

 private:
  [[nodiscard]] const uint64_t* counts() const { return shape_.uneven ? counts_.data() : nullptr; }
  void fill(T* to, uint64_t n) const {
    for (uint64_t i = 0; i < n; ++i) to[i] = contribution<T>(c_.rank, i);
  }
  // `in_place`: where the result goes when it is not apart from what is sent.
  void sum_from_a_value(CommRank::Collective collective, const char* name, uint64_t count, uint64_t first, T* in_place,
                        bool apart) {
    T* const recv = shape_.in_place ? in_place : b_;
    std::vector<T> values(count + 1);
    T* const initial = apart || shape_.in_place ? values.data() : recv;
    for (uint64_t i = 0; i < count; ++i) initial[i] = static_cast<T>(start_value(first + i));
    ddh_coll c = c_.coll(Type<T>::kDtype, a_, recv, count, name[0] == 'a' ? nullptr : counts());
    c.initial = initial;
    c_.run(collective, c);
    for (uint64_t i = 0; i < count; ++i) {
      const float start = start_value(first + i);
      same(recv[i], reduced<T>(DDH_SUM, c_.size, block_, first + i, &start), name, i);
    }
    for (uint64_t i = 0; initial != recv && i < count; ++i)
      same(initial[i], static_cast<T>(start_value(first + i)), "the start value afterwards", i);
  }
  void unchanged(uint64_t n) const {
    for (uint64_t i = 0; i < n; ++i) same(a_[i], contribution<T>(c_.rank, i), "the contribution afterwards", i);
  }
  void same(T got, T want, const char* what, uint64_t index) const {
    if (std::memcmp(&got, &want, sizeof(T)) == 0) return;
    expect(false, what, " differs at ", index, " of ", shape_.total, " on rank ", c_.rank, ", dtype ", Type<T>::kDtype,
           shape_.uneven ? ", uneven" : "", shape_.in_place ? ", in place" : "",
           shape_.in_region ? ", in a region" : "", ": ", load(got), " for ", load(want));
  }

  CommRank& c_;
  const Shape shape_;
  const uint32_t block_;
  const size_t n_, me_;
  std::vector<uint64_t> counts_;  // elements of each rank's piece
  uint64_t total_ = 0, first_ = 0;
  std::vector<T> own_;
  T* a_ = nullptr;
  T* b_ = nullptr;
};

template <class T>
void all_collectives(CommRank& c, Shape shape, uint32_t block, std::byte* region, uint64_t stride,
                     const std::vector<int32_t>& ops) {
  Case<T> test(c, shape, block, region, stride);
  for (const int32_t op : ops) {
    if (!shape.uneven) test.all_reduce(op);
    test.reduce_scatter(op);
  }
  if constexpr (std::is_same_v<T, float>) {
    test.sums_from_a_value(true);
    test.sums_from_a_value(false);
  }
  test.all_gather();
  if (shape.uneven) return test.uneven_all_to_all();
  test.broadcast(0);
  test.broadcast(c.size - 1);
  if (!shape.in_place) test.all_to_all();
}

constexpr uint64_t kLargest = 300'000;

void algebra(CommRank& c, uint32_t block, const std::vector<uint64_t>& sizes) {
  const std::vector<int32_t> every_op{DDH_SUM, DDH_MAX, DDH_MIN};
  const uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const uint64_t stride = (2 * largest * sizeof(double) + 4095) / 4096 * 4096;
  auto* region = c.region<std::byte>("algebra", stride * static_cast<uint64_t>(c.size), c.world());
  for (const uint64_t size : sizes) {
    for (int bits = 0; bits < 8; ++bits) {
      const Shape shape{size, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
      const bool big = size == kLargest;
      all_collectives<float>(c, shape, block, region, stride, big ? std::vector<int32_t>{DDH_SUM} : every_op);
      if (big) continue;
      all_collectives<Bf16>(c, shape, block, region, stride, every_op);
      all_collectives<double>(c, shape, block, region, stride, every_op);
      all_collectives<int32_t>(c, shape, block, region, stride, every_op);
      all_collectives<int64_t>(c, shape, block, region, stride, every_op);
    }
  }
}

}  // namespace

TEST_CASE("collectives give the bits of the reference in every world") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  const int32_t size = GENERATE(1, 2, 3, 4, 8);
  require_world(transport, size, [&](CommRank& c) {
    algebra(c, static_cast<uint32_t>(c.size), {0, 1, 3, 63, 64, 65, 1000});
  });
}

TEST_CASE("large collectives go through staging in many chunks, past the caches or not, and give the same bits") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  const int32_t size = GENERATE(2, 3);
  const char* const bypass = GENERATE("never", "always", "auto");
  require_world(transport, size, [&](CommRank& c) { algebra(c, static_cast<uint32_t>(c.size), {kLargest}); },
                {.staging_bytes = 65536, .bypass_caches = bypass});
}

TEST_CASE("sums follow blocks of reduce_block ranks") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  const auto [size, block] = GENERATE(std::pair{4, 1u}, std::pair{4, 2u}, std::pair{3, 2u}, std::pair{8, 4u});
  require_world(transport, size,
                [block = block](CommRank& c) {
                  algebra(c, block, {65, 1000});
                },
                {.reduce_block = block});
}

TEST_CASE("another order than the reference's gives other bits, so the tests above can fail") {
  int differs = 0;
  for (uint64_t i = 0; i < 1000; ++i) differs += reduced<float>(DDH_SUM, 4, 4, i) != reduced<float>(DDH_SUM, 4, 2, i);
  CHECK(differs > 100);
}

TEST_CASE("a group of some ranks is one block of its own") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 4,
                [](CommRank& c) {
                  const std::vector<int32_t> ranks = {0, 1, 3};
                  if (c.rank == 2) return;
                  ddh_coll args = c.coll(DDH_F32, nullptr, nullptr, 1);
                  args.group = c.group("three", ranks);
                  for (uint64_t i = 0; i < 200; ++i) {
                    const float mine = contribution<float>(c.rank, i), start = start_value(i);
                    float sum = contribution<float>(0, i), total = 0;
                    for (const int32_t r : {1, 3}) sum += contribution<float>(r, i);
                    args.send = &mine;
                    args.recv = &total;
                    args.initial = &start;
                    c.run(c.backend->all_reduce, args);
                    expect(total == start + sum, "from a value, at ", i, ": ", total, " for ", start + sum);
                    args.initial = nullptr;
                    c.run(c.backend->all_reduce, args);
                    expect(total == sum, "at ", i, ": ", total, " for ", sum);
                  }
                },
                {.reduce_block = 1});
}

TEST_CASE("a start value of a sum is refused where it has no meaning") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    uint32_t caps = 0;
    int32_t rank = 0, size = 0;
    ddh::call(c.backend->group_info, c.inst, c.world(), &rank, &size, &caps);
    expect((caps & DDH_COMM_INITIAL) != 0, "caps ", caps);
    std::vector<double> x(2), start(2);
    for (const auto& [dtype, op] : {std::pair{DDH_F64, DDH_SUM}, {DDH_I32, DDH_SUM}, {DDH_F32, DDH_MAX}}) {
      for (const auto collective : {c.backend->all_reduce, c.backend->reduce_scatter}) {
        ddh_coll args = c.coll(dtype, x.data(), x.data(), 1);
        args.op = op;
        args.initial = start.data();
        const Failure f = failure_of([&] { c.run(collective, args); });
        expect(f.code == DDH_UNIMPLEMENTED && f.names("SUM of F32"), f.code, " ", f.sentence);
      }
    }
    c.barrier();
  });
}

TEST_CASE("an all_reduce that starts from a value on only some ranks is refused on all") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 3, [](CommRank& c) {
    float x = 1, start = 1;
    ddh_coll args = c.coll(DDH_F32, &x, &x, 1);
    if (c.rank == 1) args.initial = &start;
    const Failure f = failure_of([&] { c.run(c.backend->all_reduce, args); });
    expect(f.code == DDH_FAILED_PRECONDITION && f.names("with a start value") && f.names("rank 1"), f.sentence);
  });
}

TEST_CASE("an all_to_all whose ranks expect different counts is refused on every rank, and the error names both") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 3, [](CommRank& c) {
    // Rank 2 sends rank 1 four elements, and rank 1 expects five of it.
    std::vector<uint64_t> sent = {1, 2, 3}, got(3, static_cast<uint64_t>(c.rank) + 1);
    if (c.rank == 2) sent[1] = 4;
    if (c.rank == 1) got[2] = 5;
    std::vector<float> out(16), in(16);
    ddh_coll args = c.coll(DDH_F32, out.data(), in.data(), 0, sent.data());
    args.recv_counts = got.data();
    const Failure f = failure_of([&] { c.run(c.backend->all_to_all, args); });
    expect(f.code == DDH_FAILED_PRECONDITION && f.names("rank 2 sends 4") && f.names("rank 1, which expects 5"),
           f.sentence);
    c.barrier();  // the world goes on
    args.recv_counts = nullptr;
    const Failure alone = failure_of([&] { c.run(c.backend->all_to_all, args); });
    expect(alone.code == DDH_INVALID_ARGUMENT && alone.names("give both"), alone.sentence);
    ddh_coll equal = c.coll(DDH_F32, out.data(), in.data(), 1);
    if (c.rank == 0) equal.counts = sent.data(), equal.recv_counts = got.data();
    const Failure mixed = failure_of([&] { c.run(c.backend->all_to_all, equal); });
    expect(mixed.code == DDH_FAILED_PRECONDITION && mixed.names("with counts"), mixed.sentence);
  });
}

TEST_CASE("each collective may come from another thread of the rank") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 3, [](CommRank& c) {
    const std::vector<uint64_t> sizes = {1, 700, 20'000};
    std::vector<std::string> failures;
    for (int call = 0; call < 6; ++call) {
      std::thread([&] {
        failures.push_back(
            outcome_of([&] { algebra(c, static_cast<uint32_t>(c.size), {sizes[static_cast<size_t>(call) % 3]}); }));
      }).join();
      failures.push_back(outcome_of([&] { algebra(c, static_cast<uint32_t>(c.size), {65}); }));
    }
    for (const std::string& failure : failures) expect(failure.empty(), failure);
  });
}

TEST_CASE("a NaN of any rank stays in sum, maximum and minimum") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 3, [](CommRank& c) {
    for (const uint64_t count : {uint64_t{9}, uint64_t{5000}}) {
      for (const int32_t op : {DDH_SUM, DDH_MAX, DDH_MIN}) {
        std::vector<float> x(count, 1.0F);
        std::vector<uint16_t> b(count, 0x3F80);  // 1.0 in bf16
        x[static_cast<size_t>(c.rank)] = std::numeric_limits<float>::quiet_NaN();
        b[static_cast<size_t>(c.rank)] = 0x7F81;  // a NaN that lies next to infinity
        ddh_coll args = c.coll(DDH_F32, x.data(), x.data(), count);
        args.op = op;
        c.run(c.backend->all_reduce, args);
        args = c.coll(DDH_BF16, b.data(), b.data(), count);
        args.op = op;
        c.run(c.backend->all_reduce, args);
        for (size_t i = 0; i < count; ++i) {
          expect(std::isnan(x[i]) == (i < 3), "F32 op ", op, " at ", i, ": ", x[i]);
          expect(std::isnan(load(Bf16{b[i]})) == (i < 3), "BF16 op ", op, " at ", i, ": ", b[i]);
        }
      }
    }
  });
}

TEST_CASE("moves take every dtype, sums refuse those without an order") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    for (const int32_t dtype : {DDH_F16, DDH_U8, DDH_U16}) {
      const uint64_t bytes = ddh_dtype_bytes(dtype), count = 700;
      std::vector<unsigned char> mine(count * bytes, static_cast<unsigned char>(c.rank + 1)), all(2 * count * bytes);
      c.run(c.backend->all_gather, c.coll(dtype, mine.data(), all.data(), count));
      expect(all.front() == 1 && all.back() == 2 && all[count * bytes - 1] == 1, "all_gather of dtype ", dtype);
      const Failure f =
          failure_of([&] { c.run(c.backend->all_reduce, c.coll(dtype, mine.data(), all.data(), count)); });
      expect(f.code == DDH_UNIMPLEMENTED, "all_reduce of dtype ", dtype, ": ", f.code, " ", f.sentence);
    }
    c.barrier();
  });
}

TEST_CASE("messages between two ranks arrive in order, whatever their size") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 3, [](CommRank& c) {
    const int32_t next = (c.rank + 1) % 3, before = (c.rank + 2) % 3;
    for (const uint64_t count : {0, 1, 65, 1000, 300'000}) {
      std::vector<float> out(count), in(count);
      for (uint64_t i = 0; i < count; ++i) out[i] = contribution<float>(c.rank, i);
      ddh_coll to = c.coll(DDH_F32, out.data(), nullptr, count), from = c.coll(DDH_F32, nullptr, in.data(), count);
      to.root = next;
      from.root = before;
      if (c.rank == 0) c.run(c.backend->send, to);
      c.run(c.backend->recv, from);
      if (c.rank != 0) c.run(c.backend->send, to);
      for (uint64_t i = 0; i < count; ++i) expect(in[i] == contribution<float>(before, i), "recv differs at ", i);
    }
  });
}
