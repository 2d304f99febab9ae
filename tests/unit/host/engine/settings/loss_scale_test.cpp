// SPDX-License-Identifier: Apache-2.0
//
// Loss scaling against the tables of DeepSpeed's own tests (tests/unit/runtime/half_precision/test_dynamic_loss_scale.py)
// and of the rules it had before v0.17.1.
#include "engine/settings/loss_scale.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace ddhost;

namespace {

LossScaleSettings dynamic(double initial, int64_t window, int64_t hysteresis) {
  LossScaleSettings s;
  s.dynamic = true;
  s.initial = initial;
  s.window = window;
  s.hysteresis = hysteresis;
  return s;
}

// The scale after each step of a pattern: 'o' overflows, '.' doesn't; 0 where the run ends.
std::vector<double> scales(const LossScaleSettings& settings, const std::string& pattern) {
  LossScale scale(settings);
  std::vector<double> out;
  for (const char c : pattern) out.push_back(scale.step_done(c == 'o') ? scale.value() : 0);
  return out;
}
using Scales = std::vector<double>;

}  // namespace

TEST_CASE("without overflow the scale doubles one step after the window, then every window") {
  const Scales expected = {256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096};
  CHECK(scales(dynamic(256, 2, 1), "..........") == expected);
  CHECK(scales(dynamic(256, 2, 2), "..........") == expected);
}

TEST_CASE("with torch's rule the scale grows one step earlier") {
  LossScaleSettings s = dynamic(256, 2, 1);
  s.grows_at_window_end = true;
  CHECK(scales(s, "..........") == Scales{256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096, 8192});
}

TEST_CASE("overflows halve the scale down to the smallest, where it stays or the run ends") {
  LossScaleSettings s = dynamic(16, 1000, 1);
  s.raise_at_min = false;
  CHECK(scales(s, "oooooooo") == Scales{8, 4, 2, 1, 1, 1, 1, 1});
  s.min = 2;
  CHECK(scales(s, "oooooooo") == Scales{8, 4, 2, 2, 2, 2, 2, 2});
  CHECK(scales(dynamic(256, 2, 1), "ooooooooo") == Scales{128, 64, 32, 16, 8, 4, 2, 1, 0});
  CHECK(scales(dynamic(4, 1000, 2), "oooo") == Scales{4, 2, 1, 0});
}

TEST_CASE("an overflow restarts the window") {
  CHECK(scales(dynamic(256, 2, 1), "oo...o") == Scales{128, 64, 64, 64, 128, 64});
}

TEST_CASE("hysteresis takes the first overflow, and is refilled by a rise or by any good step") {
  CHECK(scales(dynamic(16, 2, 2), "oooo....oo") == Scales{16, 8, 4, 2, 2, 2, 4, 4, 4, 2});
  LossScaleSettings s = dynamic(65536, 1000, 2);
  CHECK(scales(s, "o.o.oo") == Scales{65536, 65536, 32768, 32768, 16384, 8192});
  s.consecutive_hysteresis = true;
  CHECK(scales(s, "o.o.oo") == Scales{65536, 65536, 65536, 65536, 65536, 32768});
}

TEST_CASE("a static scale never changes") {
  LossScaleSettings s;
  s.initial = 128;
  CHECK(scales(s, "o.oo") == Scales{128, 128, 128, 128});
}
