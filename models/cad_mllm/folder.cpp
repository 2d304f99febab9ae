// SPDX-License-Identifier: Apache-2.0
//
// A folder of samples: train.jsonl and val.jsonl with a JSON object on each line, and the images and point clouds that the
// lines name, by paths relative to the folder. A point cloud is a text of lines "x y z" or "x y z nx ny nz".
#include <png.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <unistd.h>

#include "../images/image_set.hpp"
#include "data.hpp"
#include "ddh/sdk/files/input_file.hpp"

namespace cad {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::array<std::string_view, 6> kKeys = {"input_text", "caption", "target_text", "image", "points", "cad_id"};

constexpr float kLargestCoordinate = 1e6F;  // larger ones overflow in the encoder

constexpr Inputs kEverything = {true, true, true};

// A line of train.jsonl.
struct Line {
  std::string prompt, target;
  std::vector<std::string> images;  // paths, one for each view
  std::string points;               // path; empty: none
};

std::string text_at(const json& object, const char* key) {
  if (!object.contains(key)) return "";
  if (!object.at(key).is_string()) ddh::fail(DDH_DATA_LOSS, "its ", key, " is no text");
  return object.at(key).get<std::string>();
}

std::string file_of(const std::string& name, const char* key, const fs::path& folder) {
  if (name.empty()) return "";
  const std::string path = (folder / name).string();
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) ddh::fail(DDH_DATA_LOSS, "its ", key, " '", path, "' is no file");
  return path;
}

// A path, or a list with one for each view. None: "", or no key.
std::vector<std::string> images_of(const json& object, const fs::path& folder, int64_t views) {
  if (!object.contains("image") || !object.at("image").is_array()) {
    const std::string path = file_of(text_at(object, "image"), "image", folder);
    return path.empty() ? std::vector<std::string>() : std::vector<std::string>{path};
  }
  std::vector<std::string> paths;
  for (const json& name : object.at("image")) {
    if (!name.is_string() || name.get<std::string>().empty())
      ddh::fail(DDH_DATA_LOSS, "its image is a list with an entry that is no path");
    paths.push_back(file_of(name.get<std::string>(), "image", folder));
  }
  if (static_cast<int64_t>(paths.size()) > views)
    ddh::fail(DDH_DATA_LOSS, "it has ", paths.size(), " images, but a sample has ", views, " (model.views)");
  return paths;
}

// Throws a half sentence about what is wrong with the line.
Line line_of(const std::string& text, const fs::path& folder, const Config& config) {
  if (text.find_first_not_of(" \t\r") == std::string::npos) ddh::fail(DDH_DATA_LOSS, "it is empty");
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) ddh::fail(DDH_DATA_LOSS, "it is no JSON object");
  for (const auto& [key, value] : object.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      ddh::fail(DDH_DATA_LOSS, "it has the unknown key '", key, "'");
  }
  Line line;
  const std::string input = text_at(object, "input_text"), caption = text_at(object, "caption");
  if (input.empty() == caption.empty()) ddh::fail(DDH_DATA_LOSS, "it needs either input_text or caption");
  line.prompt = (caption.empty() ? input : "Generate a CAD model: " + caption) + "\n";
  line.target = text_at(object, "target_text");
  if (!json::accept(line.target)) ddh::fail(DDH_DATA_LOSS, "its target_text is no JSON");
  // A prompt that is dropped becomes the bare one.
  const size_t tokens = std::max(line.prompt.size(), kBarePrompt.size()) + line.target.size() + 1;
  if (static_cast<int64_t>(tokens) > config.max_tokens)
    ddh::fail(DDH_DATA_LOSS, "it has ", tokens, " tokens of prompt, target and end mark, more than ", config.max_tokens,
              " (model.max_tokens)");
  line.images = images_of(object, folder, config.image.views);
  line.points = file_of(text_at(object, "points"), "points", folder);
  return line;
}

// (n, 6). A cloud of more points gives up some at equal distances, one of fewer repeats its points.
std::vector<float> read_points(const std::string& path, int64_t n) {
  std::istringstream in(ddh::read_input(path, {"point cloud", "correct the line that names it"}));
  std::vector<std::array<float, 6>> all;
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    std::array<float, 6> point{};
    size_t values = 0;
    const char *at = text.data(), *const end = at + text.size();
    bool is_good = true;
    for (;;) {
      while (at < end && (*at == ' ' || *at == '\t' || *at == '\r')) ++at;
      if (at == end) break;
      float value = 0;
      const auto [next, error] = std::from_chars(at, end, value);
      is_good = error == std::errc{} && std::abs(value) <= kLargestCoordinate && values < point.size();
      if (!is_good) break;
      point.at(values++) = value;
      at = next;
    }
    if (!is_good || (values != 3 && values != 6))
      ddh::fail(DDH_DATA_LOSS, path, ":", number, " is no point: a line has three or six finite numbers, ",
                "x y z and the normal, none beyond ", kLargestCoordinate, "; correct the file");
    all.push_back(point);
  }
  if (all.empty()) ddh::fail(DDH_DATA_LOSS, "point cloud '", path, "' has no points; correct the file");
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) {
    const auto count = static_cast<int64_t>(all.size());
    const std::array<float, 6>& point = all[static_cast<size_t>(count >= n ? i * count / n : i % count)];
    out.insert(out.end(), point.begin(), point.end());
  }
  return out;
}

// Throws where a file of the line can't be used.
void read_files(const Line& line) {
  for (const std::string& path : line.images) static_cast<void>(images::decode(path));
  if (!line.points.empty()) static_cast<void>(read_points(line.points, 1));
}

// The lines that are good; bad ones are refused, or counted. To pass over lines, their files are read once here,
// before the host compares the numbers of samples of all ranks.
std::vector<Line> read_lines(const ddh::Host& host, const Config& config, const fs::path& file) {
  std::istringstream in(
      ddh::read_input(file.string(), {"data file", "data.path is a folder of CAD data, with a train.jsonl"}));
  const bool skips = host.text("model.bad_data") == "skip";
  std::vector<Line> lines;
  std::string text, first_skipped;
  int64_t number = 0, skipped = 0;
  while (std::getline(in, text)) {
    ++number;
    try {
      Line line = line_of(text, file.parent_path(), config);
      if (skips) read_files(line);
      lines.push_back(std::move(line));
    } catch (const ddh::Error& e) {
      const std::string sentence = ddh::str(file.string(), ":", number, " is no sample: ", e.what());
      if (!skips) ddh::fail(e.code(), sentence, "; correct the line, or set model.bad_data=skip");
      if (skipped++ == 0) first_skipped = sentence;
    }
  }
  if (skipped > 0)
    host.log(DDH_LOG_WARN, "passed over ", skipped, " of ", number, " lines of ", file.string(),
             "; the first: ", first_skipped);
  if (lines.empty()) ddh::fail(DDH_DATA_LOSS, "'", file.string(), "' holds no sample; add lines, or correct data.path");
  return lines;
}

Item item_of(const Line& line, const ImageShape& shape, int64_t n_points, Inputs wanted) {
  Item item{line.prompt, line.target, {}, {}};
  if (wanted.image && !line.images.empty()) {
    item.pixels.resize(static_cast<size_t>(shape.numel()));
    float* view = item.pixels.data();
    for (const std::string& path : line.images) {
      images::transform(images::decode(path), transform_of(shape), nullptr, view);
      view += shape.view_numel();
    }
  }
  if (wanted.points && !line.points.empty()) item.points = read_points(line.points, n_points);
  return item;
}

class FolderItems final : public ItemSet {
 public:
  FolderItems(std::vector<Line> lines, const Config& config)
      : lines_(std::move(lines)), image_(config.image), n_points_(config.point.points) {}
  [[nodiscard]] uint64_t size() const override { return lines_.size(); }
  [[nodiscard]] std::pair<std::string, std::string> texts(uint64_t i) const override {
    return {lines_[i].prompt, lines_[i].target};
  }
  [[nodiscard]] Item item(uint64_t i, Inputs wanted) const override {
    return item_of(lines_[i], image_, n_points_, wanted);
  }

 private:
  const std::vector<Line> lines_;
  const ImageShape image_;
  const int64_t n_points_;
};

void write_png(const float* pixels, const ImageShape& shape, const std::string& path) {
  const std::vector<uint8_t> bytes = images::shown_pixels(pixels, 1, transform_of(shape));
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = static_cast<png_uint_32>(shape.side);
  image.format = PNG_FORMAT_RGB;
  if (png_image_write_to_file(&image, path.c_str(), 0, bytes.data(), 0, nullptr) == 0)
    ddh::fail(DDH_PERMISSION_DENIED, "cannot write '", path, "': ", image.message);
}

void write_points(const std::vector<float>& points, const std::string& path) {
  std::ofstream out(path);
  for (size_t i = 0; i < points.size(); ++i) out << points[i] << (i % 6 == 5 ? '\n' : ' ');
  if (!out.flush()) ddh::fail(DDH_PERMISSION_DENIED, "cannot write '", path, "': ", std::strerror(errno));
}

void write_part(const ItemSet& items, const Config& config, const fs::path& folder, const std::string& part) {
  fs::create_directories(folder / "images");
  fs::create_directories(folder / "points");
  std::ofstream lines(folder / (part + ".jsonl"));
  for (uint64_t i = 0; i < items.size(); ++i) {
    const Item item = items.item(i, kEverything);
    std::string number = std::to_string(i);
    number.insert(0, number.size() < 4 ? 4 - number.size() : 0, '0');
    const std::string id = "dummy_" + number, name = part + "_" + number;
    std::vector<std::string> images;
    for (int64_t view = 0; view < config.image.views; ++view) {
      images.push_back("images/" + name + (view > 0 ? "_" + std::to_string(view) : "") + ".png");
      write_png(item.pixels.data() + view * config.image.view_numel(), config.image, folder / images.back());
    }
    write_points(item.points, (folder / "points" / (name + ".xyz")).string());
    const json line = {{"cad_id", id},
                       {"input_text", item.prompt.substr(0, item.prompt.size() - 1)},
                       {"target_text", item.target},
                       {"image", images.size() == 1 ? json(images[0]) : json(images)},
                       {"points", "points/" + name + ".xyz"}};
    lines << line.dump() << '\n';
  }
  if (!lines.flush())
    ddh::fail(DDH_PERMISSION_DENIED, "cannot write '", (folder / (part + ".jsonl")).string(),
              "': ", std::strerror(errno));
}

}  // namespace

images::TransformOptions transform_of(const ImageShape& shape) {
  images::TransformOptions transform;
  transform.side = transform.resize = shape.side;
  transform.channels = 3;
  images::set_scale(transform, shape.normalize);
  return transform;
}

CadData read_data(const ddh::Host& host, const Config& config, const std::string& folder) {
  std::vector<Line> train = read_lines(host, config, fs::path(folder) / "train.jsonl"), eval;
  const std::string val_path = host.text("data.val_path");
  const fs::path val = fs::path(val_path.empty() ? folder : val_path) / "val.jsonl";
  std::error_code ignored;
  if (!val_path.empty() || fs::exists(val, ignored)) {
    eval = read_lines(host, config, val);
  } else {
    const auto n = static_cast<double>(train.size());
    const auto cut = train.begin() + static_cast<int64_t>(n * (1 - host.f64("data.val_fraction")));
    eval.assign(cut, train.end());
    train.erase(cut, train.end());
    if (train.empty())
      ddh::fail(DDH_INVALID_ARGUMENT, "data.val_fraction=", host.f64("data.val_fraction"), " leaves none of ", n,
                " samples to train on; lower it, or add a val.jsonl");
  }
  CadData data;
  data.train = std::make_unique<FolderItems>(std::move(train), config);
  if (!eval.empty()) data.eval = std::make_unique<FolderItems>(std::move(eval), config);
  return data;
}

Item read_item(const Config& config, const std::string& image, const std::string& points) {
  Line line{kBarePrompt, "", {}, points};
  if (!image.empty()) line.images.push_back(image);
  // Opened once before, since what reads them names the data as the cure.
  if (!image.empty()) static_cast<void>(ddh::InputFile(image, {"image file", "correct model.sample_image"}));
  if (!points.empty()) static_cast<void>(ddh::InputFile(points, {"point cloud", "correct model.sample_points"}));
  return item_of(line, config.image, config.point.points, kEverything);
}

// Ranks may write the same folder at once: each writes its own, and the first to rename it wins.
void write_data(const CadData& data, const Config& config, const std::string& folder) {
  const fs::path mine = ddh::str(folder, ".part-", ::getpid(), "-", static_cast<const void*>(&data));
  std::error_code failed;
  try {
    fs::create_directories(mine);
    write_part(*data.train, config, mine, "train");
    write_part(*data.eval, config, mine, "val");
  } catch (const fs::filesystem_error& e) {
    fs::remove_all(mine, failed);
    ddh::fail(DDH_PERMISSION_DENIED, "cannot write made-up data to '", folder, "': ", e.what());
  } catch (...) {
    fs::remove_all(mine, failed);
    throw;
  }
  fs::rename(mine, folder, failed);
  if (!failed) return;
  std::error_code ignored;
  fs::remove_all(mine, ignored);
  if (!fs::exists(folder, ignored))
    ddh::fail(DDH_PERMISSION_DENIED, "cannot write made-up data to '", folder, "': ", failed.message());
}

}  // namespace cad
