// SPDX-License-Identifier: Apache-2.0
//
// Folders of images that a model can only just train on, and those that it refuses in one sentence that names the file.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;

namespace {

// A gray PNG file of one white pixel.
constexpr unsigned char kPng[] = {0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
                                  0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00,
                                  0x00, 0x3a, 0x7e, 0x9b, 0x55, 0x00, 0x00, 0x00, 0x0a, 0x49, 0x44, 0x41, 0x54, 0x78,
                                  0x9c, 0x63, 0xf8, 0x0f, 0x00, 0x01, 0x01, 0x01, 0x00, 0xb1, 0x38, 0xf6, 0x14, 0x00,
                                  0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

void write_image(const TempFolder& folder, const std::string& name, size_t bytes = sizeof kPng) {
  const std::filesystem::path path = folder.path() / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(kPng), static_cast<std::streamsize>(bytes));
}

// Two classes of 8 images each.
void write_classes(const TempFolder& folder) {
  for (const char* name : {"cat", "dog"}) {
    for (int i = 0; i < 8; ++i) write_image(folder, std::string(name) + "/" + std::to_string(i) + ".png");
  }
}

struct Ended {
  int code;
  std::string err, command;
  std::vector<std::string> losses;  // of steps and evaluations, as they are written
};
Ended train(std::vector<std::string> args) {
  const TempFolder folder;
  args.insert(args.begin(),
              {"--model", "vit", "--nproc", "2", "train.steps=4", "data.micro_batch=2", "model.image_size=8",
               "model.n_layer=1", "model.width=8", "run.quiet=true", "run.dir=" + folder.file("run")});
  Process process(args);
  const int code = process.wait(std::chrono::seconds(60));
  Ended ended{code, process.err(), process.command(), {}};
  std::ifstream metrics(folder.file("run/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) {
    const size_t at = line.find("loss\":");
    if (at != std::string::npos && line.find("summary") == std::string::npos)
      ended.losses.push_back(line.substr(at, line.find(',', at) - at));
  }
  return ended;
}

void check_refused(const std::vector<std::string>& args, const std::vector<std::string>& words) {
  const Ended run = train(args);
  INFO(run.command << "\nexit " << run.code << "\n" << run.err);
  CHECK(run.code > 0);
  CHECK(run.code < 128);
  for (const std::string& word : words) CHECK_THAT(run.err, Catch::Contains(word));
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') <= 2);
}

}  // namespace

TEST_CASE("a folder of images trains", "[cli]") {
  const TempFolder folder;
  write_classes(folder);
  const Ended run = train({"data.path=" + folder.path().string(), "train.eval_every=4", "data.val_fraction=0.25"});
  INFO(run.command << "\n" << run.err);
  CHECK(run.code == 0);
}

// It was refused: "the class has no images".
TEST_CASE("a network of images trains on the frames of videos, and refuses a video file in a useful sentence",
          "[cli]") {
  const TempFolder folder;
  for (const char* name : {"run", "walk"}) {
    for (int video = 0; video < 4; ++video) {
      for (int frame = 0; frame < 3; ++frame)
        write_image(folder, std::string(name) + "/" + std::to_string(video) + "/" + std::to_string(frame) + ".png");
    }
  }
  const std::string path = "data.path=" + folder.path().string();
  const Ended run = train({path, "run.quiet=false", "train.eval_every=4", "data.val_fraction=0.25"});
  INFO(run.command << "\n" << run.err);
  CHECK(run.code == 0);
  CHECK(run.losses.size() == 5);
  CHECK_THAT(run.err, Catch::Contains(folder.path().string() + " has 8 videos"));
  std::ofstream(folder.path() / "walk/4.mp4") << "a film";
  check_refused({path},
                {folder.file("walk/4.mp4"), "takes images", "cnn_lstm, pretrained_cnn_lstm and conv3d", "ffmpeg -i"});
}

TEST_CASE("a folder that is missing, empty or a file is refused", "[cli]") {
  const TempFolder folder;
  check_refused({"data.path=" + folder.file("none")}, {folder.file("none"), "is not a folder"});
  check_refused({"data.path=" + folder.path().string()}, {folder.path().string(), "one for each class"});
  std::ofstream(folder.file("file")) << "no folder";
  check_refused({"data.path=" + folder.file("file")}, {folder.file("file"), "is not a folder"});
}

TEST_CASE("a truncated image ends the run with its name, whenever it is read", "[cli]") {
  const TempFolder folder;
  write_classes(folder);
  write_image(folder, "dog/3.png", 50);
  check_refused({"data.path=" + folder.path().string(), "data.val_fraction=0"},
                {folder.file("dog/3.png"), "cannot be decoded", "replace or remove it"});
}

TEST_CASE("by option bad images are passed over and counted, and the rest is numbered as without them", "[cli]") {
  const TempFolder folder, good;
  write_classes(folder);
  write_image(folder, "dog/3.png", 50);
  write_image(folder, "cat/0.png", 0);
  for (const char* name : {"cat", "dog"}) {
    for (int i = 0; i < 8; ++i) {
      const std::string image = std::string(name) + "/" + std::to_string(i) + ".png";
      if (image != "dog/3.png" && image != "cat/0.png") write_image(good, image);
    }
  }
  const std::vector<std::string> options = {"run.quiet=false", "data.val_fraction=0.25", "train.eval_every=4"};
  const auto trained = [&](const TempFolder& data, const std::string& more) {
    std::vector<std::string> args = {"data.path=" + data.path().string(), more};
    args.insert(args.end(), options.begin(), options.end());
    const Ended run = train(args);
    INFO(run.command << "\n" << run.err);
    REQUIRE(run.code == 0);
    return run;
  };
  const Ended skipping = trained(folder, "model.bad_data=skip"), plain = trained(good, "model.bad_data=refuse");
  const std::string sentence = "passed over 2 of 16 images of " + folder.path().string();
  CHECK_THAT(skipping.err, Catch::Contains(sentence) && Catch::Contains(folder.file("cat/0.png")));
  CHECK(skipping.losses == plain.losses);
  CHECK(skipping.losses.size() == 5);
  const TempFolder bad;
  write_image(bad, "cat/0.png", 50);
  check_refused({"data.path=" + bad.path().string(), "model.bad_data=skip"},
                {"model.bad_data=skip leaves nothing", bad.file("cat/0.png")});
}

TEST_CASE("a link that leads nowhere, a folder with an image's name and an empty class are named", "[cli]") {
  const TempFolder folder;
  write_classes(folder);
  const std::string path = "data.path=" + folder.path().string();
  std::filesystem::create_symlink("9.png", folder.path() / "dog/9.png");  // to itself
  check_refused({path, "data.val_fraction=0"}, {folder.file("dog/9.png")});
  std::filesystem::remove(folder.path() / "dog/9.png");
  std::filesystem::create_directory(folder.path() / "dog/9.png");
  check_refused({path, "data.val_fraction=0"}, {folder.file("dog/9.png")});
  std::filesystem::remove(folder.path() / "dog/9.png");
  std::filesystem::create_directory(folder.path() / "eel");
  check_refused({path}, {folder.file("eel"), "has no images", "move it away"});
  std::filesystem::rename(folder.path() / "eel", folder.path() / ".eel");  // hidden folders are no classes
  CHECK(train({path, "data.val_fraction=0"}).code == 0);
}

TEST_CASE("a resumed run warns when it has other images", "[cli]") {
  const TempFolder data, runs;
  write_classes(data);
  write_image(data, "dog/3.png", 50);
  const auto trained = [&](const std::string& name, const std::string& more) {
    Process process({"--model", "vit", "train.steps=4", "data.micro_batch=2", "model.image_size=8", "model.n_layer=1",
                     "model.width=8", "model.bad_data=skip", "data.path=" + data.path().string(), "data.val_fraction=0",
                     "checkpoint.every=2", "run.dir=" + runs.file(name), more});
    const int code = process.wait(std::chrono::seconds(60));
    INFO(process.command() << "\n" << process.err());
    REQUIRE(code == 0);
    return process.err();
  };
  static_cast<void>(trained("a", "run.resume=none"));
  const std::string resume = "run.resume=" + runs.file("a/checkpoints/step-2");
  CHECK_THAT(trained("b", resume), !Catch::Contains("when the checkpoint was written"));
  write_image(data, "dog/3.png");
  CHECK_THAT(trained("c", resume),
             Catch::Contains("has 16 samples in an epoch, but 15 when the checkpoint was written"));
}

TEST_CASE("images of several sizes need model.image_size", "[cli]") {
  const TempFolder folder;
  write_classes(folder);
  check_refused({"data.path=" + folder.path().string(), "model.image_size=0", "data.val_fraction=0"},
                {"may have several sizes", "model.image_size"});
}

TEST_CASE("a share of each class that is less than one image is told", "[cli]") {
  const TempFolder folder;
  write_classes(folder);
  // Also where a quiet run can't evaluate, whose error left the reason open.
  for (const char* every : {"train.eval_every=0", "train.eval_every=4"}) {
    const Ended run = train({"data.path=" + folder.path().string(), every});
    INFO(run.err);
    CHECK((run.code == 0) == (every == std::string("train.eval_every=0")));
    CHECK_THAT(run.err, Catch::Contains("data.val_fraction=0.1 of the 16 samples of " + folder.path().string() +
                                        " leaves none of any class for validation: each of the 2 classes has fewer "
                                        "than 10"));
  }
}
