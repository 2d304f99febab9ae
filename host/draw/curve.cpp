// SPDX-License-Identifier: Apache-2.0
#include "draw/curve.hpp"

#include <algorithm>
#include <cmath>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

Curve::Bucket Curve::merged(const Bucket& a, const Bucket& b) {
  Point low = a.first, high = a.first;
  for (const Point& p : {a.second, b.first, b.second}) {
    if (p.y < low.y) low = p;
    if (p.y > high.y) high = p;
  }
  return low.x <= high.x ? Bucket{low, high} : Bucket{high, low};
}

void Curve::add(int64_t step, double value) {
  if (!std::isfinite(value)) {
    ++nonfinite_;
    return;
  }
  ++count_;
  const Point point{static_cast<double>(step), value};
  last_ = point;
  if (in_last_ == 0 || in_last_ == per_bucket_) {
    if (buckets_.size() == kMost) {
      for (size_t i = 0; i < kMost / 2; ++i) buckets_[i] = merged(buckets_[2 * i], buckets_[2 * i + 1]);
      buckets_.resize(kMost / 2);
      per_bucket_ *= 2;
    }
    buckets_.push_back({point, point});
    in_last_ = 1;
    return;
  }
  buckets_.back() = merged(buckets_.back(), {point, point});
  ++in_last_;
}

std::string Curve::label() const { return nonfinite_ == 0 ? name_ : ddh::str(name_, " (", nonfinite_, " not finite)"); }

std::optional<Point> Curve::lowest() const {
  std::optional<Point> best;
  for (const Bucket& bucket : buckets_)
    for (const Point& p : {bucket.first, bucket.second})
      if (!best || p.y < best->y) best = p;
  return best;
}

std::optional<Point> Curve::highest() const {
  std::optional<Point> best;
  for (const Bucket& bucket : buckets_)
    for (const Point& p : {bucket.first, bucket.second})
      if (!best || p.y > best->y) best = p;
  return best;
}

std::vector<Point> Curve::points(size_t most) const {
  std::vector<Point> out;
  const size_t group = std::max<size_t>(1, (2 * buckets_.size() + most - 1) / std::max<size_t>(most, 1));
  for (size_t i = 0; i < buckets_.size(); i += group) {
    Bucket bucket = buckets_[i];
    for (size_t j = i + 1; j < std::min(i + group, buckets_.size()); ++j) bucket = merged(bucket, buckets_[j]);
    out.push_back(bucket.first);
    if (bucket.second.x != bucket.first.x) out.push_back(bucket.second);
  }
  // The last value is what a reader looks for.
  if (last_ && !out.empty() && out.back().x < last_->x) out.push_back(*last_);
  return out;
}

}  // namespace ddhost
