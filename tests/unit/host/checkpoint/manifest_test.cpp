// SPDX-License-Identifier: Apache-2.0
//
// The manifest of a checkpoint is read back as it was written.
#include "checkpoint/manifest.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace ddhost;

TEST_CASE("numbers of a schedule that are not finite are read back", "[checkpoint]") {
  const double infinity = std::numeric_limits<double>::infinity();
  Manifest manifest;
  manifest.config = "{}";
  manifest.files.push_back({"model.safetensors", 0, 0, 0});
  manifest.progress.programs.push_back({"train", 1, 1});
  manifest.progress.optimizers.push_back(
      {"optimizer",
       "adamw",
       "1",
       {{{"best", infinity}, {"worst", -infinity}, {"last", std::nan("")}, {"n", 2}}},
       {},
       {}});
  const Manifest back = parse_manifest(manifest_text(manifest), "manifest.json");
  const std::map<std::string, double>& numbers = back.progress.optimizers.at(0).schedules.at(0);
  CHECK(numbers.at("best") == infinity);
  CHECK(numbers.at("worst") == -infinity);
  CHECK(std::isnan(numbers.at("last")));
  CHECK(numbers.at("n") == 2);
}
