// SPDX-License-Identifier: Apache-2.0
//
// engine/record/known_curve.hpp: the documented losses of a configuration (run.known_curve), and how a run compares with them.
// docs/models/known_curve.py makes such a file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {

class KnownCurve {
 public:
  // `text`: of the file. `config`: of the run, as config.json has it; `facts`: as run.json has them, "": not known. Error: the
  // file is none.
  KnownCurve(const std::string& text, const std::string& config, const std::string& facts, int64_t world_size);

  void add(int64_t step, double loss);
  // "step 500: loss 1.884, documented 1.884: same bits"; "": no step of the run is documented.
  [[nodiscard]] std::string text() const;

 private:
  struct Point {
    double loss = 0, noise = 0;  // noise: how far runs with other seeds are from it
  };
  [[nodiscard]] std::string verdict() const;
  void compare_surroundings(const Json& documented, const std::string& facts);

  std::map<int64_t, Point> points_;
  std::vector<std::string> other_options_;       // of the run, which decide its losses
  std::string other_data_, other_instructions_;  // sentences; "": as documented, or not known
  struct Seen {
    int64_t step = 0;
    double loss = 0;
    Point documented;
  };
  int64_t compared_ = 0;
  std::optional<Seen> last_, first_other_, first_outside_;
};

}  // namespace ddhost
