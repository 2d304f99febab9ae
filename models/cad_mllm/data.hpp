// SPDX-License-Identifier: Apache-2.0
//
// cad_mllm/data.hpp: prompts with their CAD sequences, images and point clouds: from a folder, or made up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../images/transform.hpp"
#include "config.hpp"

namespace cad {

// What a sample has, or what is wanted of it.
struct Inputs {
  bool text, points, image;
};

struct Item {
  std::string prompt;         // ends with a line break
  std::string target;         // the CAD sequence as compact JSON
  std::vector<float> pixels;  // (views, 3, side, side), normalized; missing views are 0. Empty: it has no image
  std::vector<float> points;  // (N, 6): x y z and the normal; empty: it has none
};

// The prompt of a sample without a caption.
inline const std::string kBarePrompt = "Generate a CAD model\n";

// Read by several threads at once.
class ItemSet {
 public:
  ItemSet() = default;
  ItemSet(const ItemSet&) = delete;
  ItemSet& operator=(const ItemSet&) = delete;
  virtual ~ItemSet() = default;
  [[nodiscard]] virtual uint64_t size() const = 0;
  // Prompt and target alone.
  [[nodiscard]] virtual std::pair<std::string, std::string> texts(uint64_t i) const = 0;
  // Pixels and points as `wanted`: files of others are not opened. Throws ddh::Error where a file can't be read.
  [[nodiscard]] virtual Item item(uint64_t i, Inputs wanted) const = 0;
};

struct CadData {
  std::unique_ptr<ItemSet> train, eval;  // eval: nullptr where there is none
};

// How files become pixels.
images::TransformOptions transform_of(const ImageShape& shape);

// What data.path and data.dummy_samples say: a folder; without one, made-up samples. A folder that does not exist yet is
// written where data.dummy_samples is given. The log says which.
CadData open_data(const ddh::Host& host, const Config& config);

// Made-up samples (shapes.cpp). A fifth as many for evaluation, of other perturbations.
CadData make_up_data(const Config& config, int64_t n_train);

// <folder>/train.jsonl and <folder>/val.jsonl (folder.cpp). Bad lines are refused, or passed over and counted.
CadData read_data(const ddh::Host& host, const Config& config, const std::string& folder);
// The bare prompt with an image and a point cloud of these paths; "": it has none.
Item read_item(const Config& config, const std::string& image, const std::string& points);
void write_data(const CadData& data, const Config& config, const std::string& folder);

}  // namespace cad
