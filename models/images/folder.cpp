// SPDX-License-Identifier: Apache-2.0
//
// Folders of images or videos, one subfolder for each class, and what is trained on without data.path.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "ddh/sdk/files/find_data.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"
#include "image_set.hpp"
#include "video_file.hpp"

namespace images {

namespace fs = std::filesystem;

namespace {

constexpr const char* kVideoNetworks = "the networks cnn_lstm, pretrained_cnn_lstm and conv3d of cnn";

// An image or a video. `video`: of a frame that is an image by itself, the folder of its video; else empty.
struct File {
  std::string path;
  int64_t label;
  std::string video = {};
};

// False also for what can't be looked at, such as a link that leads to itself.
bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

class FolderImages final : public ImageSet {
 public:
  explicit FolderImages(std::vector<File> files) : files_(std::move(files)) {}
  [[nodiscard]] uint64_t size() const override { return files_.size(); }
  [[nodiscard]] int64_t label(uint64_t i) const override { return files_[i].label; }
  [[nodiscard]] Image image(uint64_t i) const override { return decode(files_[i].path); }

 private:
  const std::vector<File> files_;
};

// The command that makes a folder of frames from a video file.
std::string to_frames(const fs::path& file) {
  const fs::path frames = fs::path(file).replace_extension();
  return ddh::str("mkdir '", frames.string(), "' && ffmpeg -i '", file.string(), "' '", (frames / "%05d.png").string(),
                  "'");
}

// What reads the video files among `videos`; nullptr if all are folders.
std::shared_ptr<const Ffmpeg> reader_of(const std::vector<File>& videos) {
  const auto file = std::find_if(videos.begin(), videos.end(), [](const File& v) { return !is_folder(v.path); });
  if (file == videos.end()) return nullptr;
  try {
    return open_ffmpeg();
  } catch (const ddh::Error& error) {
    ddh::fail(DDH_UNAVAILABLE, "'", file->path, "' is a video file, but ", error.what(),
              "; see docs/models/cnn.md, or ", "convert the file (Debian: package ffmpeg): ", to_frames(file->path),
              ", then move it away");
  }
}

// A video is a video file, or a folder of frames in the order of their names.
class FolderVideos final : public ImageSet {
 public:
  FolderVideos(std::vector<File> videos, int64_t frames)
      : videos_(std::move(videos)), frames_(frames), ffmpeg_(reader_of(videos_)) {}
  [[nodiscard]] uint64_t size() const override { return videos_.size(); }
  [[nodiscard]] int64_t label(uint64_t i) const override { return videos_[i].label; }
  [[nodiscard]] Image image(uint64_t i) const override;

 private:
  const std::vector<File> videos_;              // files or folders
  const int64_t frames_;                        // of each video that the model sees
  const std::shared_ptr<const Ffmpeg> ffmpeg_;  // nullptr: all are folders
};

// What follows the last point of a name, in small letters: ".png".
std::string ending_of(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return ending;
}

bool is_image_name(const fs::path& path) {
  const std::string ending = ending_of(path);
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

bool is_video_name(const fs::path& path) {
  static constexpr std::array<std::string_view, 8> kEndings = {".avi", ".mp4",  ".mkv",  ".mov",
                                                               ".mpg", ".mpeg", ".webm", ".y4m"};
  return std::find(kEndings.begin(), kEndings.end(), ending_of(path)) != kEndings.end();
}

enum class Kind { kFolder, kImage, kVideo };

// Names in a folder in ascending order: subfolders, or names that end as an image's does, whatever they are, or videos of
// both forms. Hidden ones are left out.
std::vector<std::string> entries(const fs::path& folder, Kind kind) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code ignored;  // of a link that leads nowhere
    const bool is_directory = it->is_directory(ignored);
    const std::string name = it->path().filename().string();
    const bool fits = kind == Kind::kImage   ? is_image_name(it->path())
                      : kind == Kind::kVideo ? is_directory || is_video_name(it->path())
                                             : is_directory;
    if (fits && !name.starts_with('.')) names.push_back(name);
  }
  if (failed)
    ddh::fail(DDH_PERMISSION_DENIED, "the folder '", folder.string(), "' can't be read: ", failed.message(),
              "; correct its permissions, or data.path");
  std::sort(names.begin(), names.end());
  return names;
}

// Evenly spaced frames, each from the middle of its part of the video. A video of fewer frames shows some of them again.
Image FolderVideos::image(uint64_t i) const {
  const fs::path folder = videos_[i].path;
  if (ffmpeg_ != nullptr && !is_folder(folder)) return read_video(*ffmpeg_, videos_[i].path, frames_);
  const std::vector<std::string> names = entries(folder, Kind::kImage);
  if (names.empty())
    ddh::fail(DDH_NOT_FOUND, "video '", folder.string(), "' has no frames (.png or .jpg files); add them or remove it");
  Image video;
  for (int64_t f = 0; f < frames_; ++f) {
    const auto place = static_cast<size_t>(middle_of_part(f, frames_, static_cast<int64_t>(names.size())));
    const Image frame = decode((folder / names[place]).string());
    if (f == 0) video = {frame.channels, frame.height, frame.width, {}, frames_};
    if (frame.channels != video.channels || frame.height != video.height || frame.width != video.width)
      ddh::fail(DDH_DATA_LOSS, "frame '", names[place], "' of video '", folder.string(), "' has ", frame.width, " x ",
                frame.height, " pixels and ", frame.channels, " channels, but the first has ", video.width, " x ",
                video.height, " and ", video.channels, "; give all frames of a video one size");
    video.pixels.insert(video.pixels.end(), frame.pixels.begin(), frame.pixels.end());
  }
  return video;
}

// The images of a class: those in its folder, then the frames of its videos. A video file is no image, and leaving it out
// would train on a part of the data.
std::vector<File> images_of(const fs::path& folder, int64_t label) {
  std::vector<File> files;
  for (const std::string& name : entries(folder, Kind::kImage)) files.push_back({(folder / name).string(), label});
  for (const std::string& name : entries(folder, Kind::kVideo)) {
    const fs::path video = folder / name;
    if (is_image_name(video)) continue;  // among the images, whose decoder refuses a folder
    if (!is_folder(video))
      ddh::fail(DDH_INVALID_ARGUMENT, "'", video.string(), "' is a video file, but the network takes images; only ",
                kVideoNetworks,
                " take videos. Choose one of them, or make frames, which are images of the class (Debian: ",
                "package ffmpeg), and move the file away: ", to_frames(video));
    for (const std::string& frame : entries(video, Kind::kImage))
      files.push_back({(video / frame).string(), label, video.string()});
  }
  return files;
}

std::vector<File> videos_of(const fs::path& folder, int64_t label) {
  std::vector<File> files;
  for (const std::string& name : entries(folder, Kind::kVideo)) files.push_back({(folder / name).string(), label});
  return files;
}

// The images of each class, or its videos. If `classes` is empty, it becomes the folder's classes; else the folder must have
// the same.
std::vector<std::vector<File>> list_files(const fs::path& folder, std::vector<std::string>& classes, bool videos) {
  const std::vector<std::string> found = entries(folder, Kind::kFolder);
  const bool is_first = classes.empty();
  if (is_first) classes = found;
  const auto [other, own] = std::mismatch(found.begin(), found.end(), classes.begin(), classes.end());
  if (const bool is_more = other != found.end() && (own == classes.end() || *other < *own);
      is_more || own != classes.end())
    ddh::fail(DDH_INVALID_ARGUMENT, "'", folder.string(), "' has ", is_more ? "the" : "no", " class (subfolder) '",
              is_more ? *other : *own, "', but the training data has ", is_more ? "none" : "one",
              " of that name; give both the same subfolders");
  std::vector<std::vector<File>> out;
  size_t n = 0;
  std::string empty;  // the first class without files
  for (size_t c = 0; c < classes.size(); ++c) {
    const fs::path place = folder / classes[c];
    const auto label = static_cast<int64_t>(c);
    const std::vector<File>& files = out.emplace_back(videos ? videos_of(place, label) : images_of(place, label));
    n += files.size();
    if (is_first && files.empty() && empty.empty()) empty = (folder / classes[c]).string();
  }
  if (n == 0 && videos)
    ddh::fail(DDH_NOT_FOUND, "'", folder.string(),
              "' holds no videos: a subfolder for each class, in it for each video a file",
              " (.mp4, .avi, .mkv ...) or a folder of .png or .jpg frames; correct data.path");
  if (n == 0)
    ddh::fail(DDH_NOT_FOUND, "'", folder.string(), "' holds neither MNIST's nor CIFAR-10's files, nor subfolders with",
              " .png or .jpg files, one for each class; correct data.path");
  if (!empty.empty())
    ddh::fail(DDH_NOT_FOUND, "the class '", empty, "' has no ", videos ? "videos" : "images",
              "; add some, or move it away");
  return out;
}

// `frames`: 0 for images.
std::unique_ptr<ImageSet> set_of(std::vector<File> files, int64_t frames) {
  if (frames > 0) return std::make_unique<FolderVideos>(std::move(files), frames);
  return std::make_unique<FolderImages>(std::move(files));
}

bool begins_video(const std::vector<File>& files, size_t i) {
  return !files[i].video.empty() && (i == 0 || files[i].video != files[i - 1].video);
}

size_t count_videos(const std::vector<std::vector<File>>& classes) {
  size_t n = 0;
  for (const std::vector<File>& files : classes) {
    for (size_t i = 0; i < files.size(); ++i) n += begins_video(files, i) ? 1 : 0;
  }
  return n;
}

// Leaves out what can't be decoded. The host checks that all ranks have the same number of samples then.
void leave_out_bad(std::vector<std::vector<File>>& classes, int64_t frames, BadFiles& bad) {
  size_t left = 0;
  for (std::vector<File>& files : classes) {
    const std::unique_ptr<ImageSet> set = set_of(files, frames);
    std::vector<File> good;
    for (size_t i = 0; i < files.size(); ++i) {
      try {
        static_cast<void>(set->image(i));
        good.push_back(files[i]);
      } catch (const ddh::Error& error) {
        if (bad.n++ == 0) bad.first = error.what();
      }
    }
    bad.of += files.size();
    left += good.size();
    files = std::move(good);
  }
  if (left == 0) ddh::fail(DDH_DATA_LOSS, "model.bad_data=skip leaves nothing; the first: ", bad.first);
}

std::unique_ptr<ImageSet> all_of(const std::vector<std::vector<File>>& classes, int64_t frames) {
  std::vector<File> files;
  for (const std::vector<File>& of_class : classes) files.insert(files.end(), of_class.begin(), of_class.end());
  return set_of(std::move(files), frames);
}

// `val_fraction` of each class goes to evaluation: images at equal distances. A video counts as one image, so that no
// evaluation has a frame beside those of the training.
void split(const std::vector<std::vector<File>>& classes, double val_fraction, int64_t frames, ImageData& data) {
  std::vector<File> train, eval;
  for (const std::vector<File>& of_class : classes) {
    double at = -1;
    for (size_t i = 0; i < of_class.size(); ++i) {
      if (of_class[i].video.empty() || begins_video(of_class, i)) ++at;
      (std::floor((at + 1) * val_fraction) > std::floor(at * val_fraction) ? eval : train).push_back(of_class[i]);
    }
  }
  data.train = set_of(std::move(train), frames);
  if (!eval.empty()) data.eval = set_of(std::move(eval), frames);
}

std::unique_ptr<PackedImages> stripes(bool colour, size_t n, uint64_t first) {
  auto set = std::make_unique<PackedImages>();
  set->channels = colour ? 3 : 1;
  set->height = set->width = colour ? 32 : 28;
  const ddh::CounterRng rng(0, "images.made_up");
  for (size_t i = 0; i < n; ++i) {
    const uint64_t image = first + i;
    const auto label = static_cast<uint8_t>(rng.bits(image) % 10);
    // Direction and width of the stripes; where they begin differs from image to image.
    const double angle = 0.6283 * (label % 5), period = label < 5 ? 5 : 9;
    const double across = std::cos(angle) / period, down = std::sin(angle) / period;
    const double phase = rng.uniform(image + (uint64_t{1} << 40));
    for (int64_t c = 0; c < set->channels; ++c) {
      for (int64_t y = 0; y < set->height; ++y) {
        for (int64_t x = 0; x < set->width; ++x) {
          const double along = static_cast<double>(x) * across + static_cast<double>(y) * down + phase;
          const double noise = rng.uniform((image << 16) + static_cast<uint64_t>((c * 32 + y) * 32 + x));
          set->pixels.push_back(static_cast<uint8_t>((along - std::floor(along) < 0.5 ? 60 : 120) + 75 * noise));
        }
      }
    }
    set->labels.push_back(label);
  }
  return set;
}

// `frames`: 0 for images.
ImageData open_folder(const ddh::Host& host, const std::string& path, int64_t frames = 0) {
  if (!is_folder(path))
    ddh::fail(DDH_NOT_FOUND, "data.path '", path, "' is not a folder; give one with the files of MNIST or CIFAR-10, or",
              " with a subfolder of images for each class");
  if (is_mnist(path) || is_cifar(path)) {
    if (frames > 0)
      ddh::fail(DDH_INVALID_ARGUMENT, "'", path, "' holds images, but the network takes videos; give a folder of",
                " videos (docs/models/cnn.md), or model.dataset=moving_mnist without data.path");
    if (!host.text("data.val_path").empty())
      ddh::fail(DDH_INVALID_ARGUMENT, "data.val_path is for folders of images; '", path,
                "' has its own test files; leave data.val_path out");
    return is_mnist(path) ? read_mnist(path) : read_cifar(path);
  }
  BadFiles bad;
  ImageData data = read_folder(path, host.text("data.val_path"), host.f64("data.val_fraction"), frames,
                               host.text("model.bad_data") == "skip" ? &bad : nullptr);
  if (bad.n > 0)
    host.log(DDH_LOG_WARN, "passed over ", bad.n, " of ", bad.of, frames > 0 ? " videos" : " images", " of ", path,
             "; the first: ", bad.first);
  if (data.videos > 0)
    host.log(DDH_LOG_INFO, path, " has ", data.videos,
             " videos, which are folders in those of the classes: each frame is ", "an image of the class");
  if (const double fraction = host.f64("data.val_fraction"); data.eval == nullptr && fraction > 0)
    host.log(DDH_LOG_WARN, "data.val_fraction=", fraction, " of the ", data.train->size(), " samples of ", path,
             " leaves none of any class for validation: each of the ", data.classes.size(), " classes has fewer than ",
             std::ceil(1 / fraction), " images or videos");
  return data;
}

}  // namespace

ImageData read_folder(const std::string& folder, const std::string& val_path, double val_fraction, int64_t frames,
                      BadFiles* passed_over) {
  ImageData data;
  data.channels = 3;
  const fs::path root = folder, train = is_folder(root / "train") ? root / "train" : root;
  fs::path eval = val_path;
  for (const char* name : {"val", "test"}) {
    if (eval.empty() && train != root && is_folder(root / name)) eval = root / name;
  }
  if (!eval.empty() && !is_folder(eval))
    ddh::fail(DDH_NOT_FOUND, "data.val_path '", eval.string(),
              "' is not a folder; give a folder with the same subfolders as data.path");
  const auto list = [&](const fs::path& place) {
    std::vector<std::vector<File>> files = list_files(place, data.classes, frames > 0);
    if (passed_over != nullptr) leave_out_bad(files, frames, *passed_over);
    data.videos += count_videos(files);
    return files;
  };
  const std::vector<std::vector<File>> files = list(train);
  if (eval.empty()) {
    split(files, val_fraction, frames, data);
    return data;
  }
  data.train = all_of(files, frames);
  data.eval = all_of(list(eval), frames);
  return data;
}

ImageData make_up_images(bool colour) {
  ImageData data;
  data.channels = colour ? 3 : 1, data.side = colour ? 32 : 28;
  constexpr size_t kTrain = 2048, kEval = 512;
  data.train = stripes(colour, kTrain, 0);
  data.eval = stripes(colour, kEval, kTrain);
  for (int i = 0; i < 10; ++i) data.classes.push_back(ddh::str("stripes ", i));
  return data;
}

ImageData open_images(const ddh::Host& host, const std::string& dataset, int64_t frames) {
  if (const std::string path = host.text("data.path"); !path.empty()) return open_folder(host, path, frames);
  if ((frames > 0) != (dataset == "moving_mnist"))
    ddh::fail(DDH_INVALID_ARGUMENT, "model.dataset=moving_mnist is for ", kVideoNetworks,
              ", and these take only this data or a folder of videos (data.path); change one of them");
  if (dataset == "moving_mnist") return move_images(open_images(host, "mnist", 0), frames);
  const bool colour = dataset != "mnist" && dataset != "made_up";
  if (dataset != "made_up") {
    if (const std::string folder = ddh::find_data(host, dataset); !folder.empty()) return open_folder(host, folder);
  }
  host.log(DDH_LOG_INFO, "no data.path given",
           dataset == "made_up" ? std::string() : ddh::str(" and no folder ", dataset, " found"),
           ": training on made-up images of stripes");
  return make_up_images(colour);
}

}  // namespace images
