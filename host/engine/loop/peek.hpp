// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/peek.hpp: samples of a program as its model reads them (`ddhost data peek`). The only rank makes the model and
// its batches; there is no strategy, no optimizer and no forward. Samples depend neither on the number of ranks nor on the
// size of a micro-batch, so a training of any size reads the same.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddh/kind/batch_view.h"
#include "engine/services/rank_seat.hpp"
#include "engine/services/run_config.hpp"
#include "engine/settings/run_plan.hpp"

namespace ddhost {

enum class PartKind : int32_t { kText = DDH_VIEW_TEXT, kPixels = DDH_VIEW_PIXELS, kValues = DDH_VIEW_VALUES };

// A part of a sample (ddh_sample_part). One of text, pixels and values has something.
struct PeekedPart {
  PartKind kind = PartKind::kText;
  std::string name;
  std::array<uint64_t, 4> shape{};
  std::string text;
  std::vector<uint8_t> pixels;
  std::vector<float> values;
};

struct PeekedSample {
  uint64_t index = 0;  // in the order of the epoch
  int64_t sample = 0;  // of the data
  std::vector<PeekedPart> parts;
};

struct PeekWish {
  std::string program;  // empty: the first that the run trains
  uint64_t epoch = 0, index = 0, samples = 0;
  uint64_t world_size = 1;  // of the training
};

struct Peeked {
  std::string model, program;
  uint64_t epoch = 0, epoch_size = 0;  // samples of an epoch, without those that data.drop_last drops
  std::vector<PeekedSample> samples;
  bool is_read = true;  // false: the run ends before this epoch
};

// Error: the model shows no samples, there is no such program, epoch or index, or a plugin fails.
Peeked peek(const RunPlan& plan, std::unique_ptr<RunConfig> config, const RankSeat& seat, const PeekWish& wish);

}  // namespace ddhost
