// SPDX-License-Identifier: Apache-2.0
//
// A CAD-MLLM from the command line: its whole curriculum, folders of data, and what is refused in one sentence.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
using nlohmann::json;

namespace {

struct Ended {
  int code;
  std::string out, err, command;
  RunRecord record;
};

Ended run_program(std::vector<std::string> args, bool trains = true) {
  const TempFolder folder;
  if (trains) args.push_back("run.dir=" + folder.file("run"));
  Process process(args);
  const int code = process.wait(std::chrono::seconds(120));
  return {code, process.out(), process.err(), process.command(),
          trains ? read_run(folder.path() / "run") : RunRecord{}};
}

Ended train(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"--model",
                                   "cad_mllm",
                                   "strategy.plugin=ddp",
                                   "run.nproc=1",
                                   "train.steps=2",
                                   "run.quiet=true",
                                   "data.micro_batch=2",
                                   "train.programs=[\"stage3_all\"]",
                                   "run.sample_tokens=0"};
  args.insert(args.end(), more.begin(), more.end());
  return run_program(args);
}

void check_refused(const std::vector<std::string>& args, const std::vector<std::string>& words) {
  const Ended run = train(args);
  INFO(run.command << "\nexit " << run.code << "\n" << run.err);
  CHECK(run.code > 0);
  CHECK(run.code < 128);
  for (const std::string& word : words) CHECK_THAT(run.err, Catch::Contains(word));
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') <= 2);
}

// A folder that the model wrote.
std::string written(const TempFolder& folder, int samples, const std::string& views = "model.views=1") {
  std::string path = folder.file("data");
  const Ended run =
      train({"data.path=" + path, "data.dummy_samples=" + std::to_string(samples), "train.steps=1", views});
  INFO(run.command << "\n" << run.err);
  REQUIRE(run.code == 0);
  return path;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void write_lines(const std::string& path, const std::vector<std::string>& lines) {
  std::ofstream out(path);
  for (const std::string& line : lines) out << line << '\n';
}

}  // namespace

TEST_CASE("one command runs the curriculum: three stages, each with a new optimizer, its rate and its warm-up",
          "[cli]") {
  const Ended run =
      run_program({"--config", std::string(DDHOST_SOURCE_DIR) + "/configs/cad_mllm_tiny.json", "run.quiet=true"});
  INFO(run.command << "\n" << run.err);
  REQUIRE(run.code == 0);
  REQUIRE(run.record.steps.size() == 24);
  const char* const kPrograms[] = {"stage1_text", "stage2_text_pc", "stage3_all"};
  const double kRates[] = {2e-3, 2e-3, 1e-3};
  for (size_t i = 0; i < 24; ++i) {
    CHECK(run.record.steps[i].at("program") == kPrograms[i / 8]);
    // The third step of a stage is the first after its warm-up.
    const double share = i % 8 < 2 ? static_cast<double>(i % 8 + 1) / 3 : 1;
    if (i % 8 <= 2) CHECK(run.record.steps[i].at("lr").get<double>() == Approx(kRates[i / 8] * share));
  }
  for (size_t stage = 0; stage < 3; ++stage) {
    const double first = run.record.steps[8 * stage].at("loss"), last = run.record.steps[8 * stage + 7].at("loss");
    INFO("stage " << stage + 1 << ": " << first << " to " << last);
    CHECK(last < first);
  }
}

TEST_CASE("made-up samples are written as a folder, which trains like them", "[cli]") {
  const TempFolder folder;
  const int views = GENERATE(1, 3);
  const std::string option = "model.views=" + std::to_string(views), path = written(folder, 20, option);
  CHECK(lines_of(path + "/train.jsonl").size() == 20);
  CHECK(lines_of(path + "/val.jsonl").size() == 4);
  const json line = json::parse(lines_of(path + "/train.jsonl")[1]);
  CHECK(line.at("cad_id") == "dummy_0001");
  CHECK(line.at("input_text") == "Generate a CAD model with a cylindrical component.");
  CHECK(line.at("target_text") == R"({"type":"cylinder","radius":3,"height":8})");
  if (views == 3)
    CHECK(line.at("image") == json({"images/train_0001.png", "images/train_0001_1.png", "images/train_0001_2.png"}));
  const Ended read = train({"data.path=" + path, option}), made = train({"data.dummy_samples=20", option});
  REQUIRE(read.code == 0);
  REQUIRE(made.code == 0);
  // Images are rounded to 8 bits in files, and coordinates to 6 digits.
  for (size_t i = 0; i < 2; ++i)
    CHECK(read.record.steps[i].at("loss").get<double>() ==
          Approx(made.record.steps[i].at("loss").get<double>()).epsilon(1e-4));
}

TEST_CASE("bad CAD data gets a sentence with file and line", "[cli]") {
  const TempFolder folder;
  const std::string path = written(folder, 10), file = path + "/train.jsonl";
  const std::vector<std::string> good = lines_of(file);
  const auto with = [&](const std::string& line) {
    std::vector<std::string> lines = good;
    lines[2] = line;
    write_lines(file, lines);
    return std::vector<std::string>{"data.path=" + path};
  };
  const auto changed = [&](const char* key, const json& value) {
    json line = json::parse(good[2]);
    line[key] = value;
    return line.dump();
  };
  check_refused(with(""), {file + ":3", "it is empty"});
  check_refused(with("{\"input_text\": "), {file + ":3", "no JSON object"});
  check_refused(with(changed("target_text", "{\"type\":")), {file + ":3", "target_text is no JSON"});
  check_refused(with(changed("colour", "red")), {file + ":3", "unknown key 'colour'"});
  check_refused(with(changed("image", "images/none.png")), {file + ":3", "images/none.png", "is no file"});
  check_refused(with(changed("image", json({"images/train_0000.png", "images/train_0001.png"}))),
                {file + ":3", "2 images", "model.views"});
  for (const json& entry : {json(7), json("")})
    check_refused(with(changed("image", json::array({entry}))), {file + ":3", "an entry that is no path"});
  check_refused(with(changed("input_text", 7)), {file + ":3", "input_text is no text"});
  check_refused(with(changed("input_text", std::string(500, 'x'))), {file + ":3", "more than 160 (model.max_tokens)"});
  const std::string long_target = changed("target_text", "\"" + std::string(150, 'x') + "\"");
  check_refused(with(long_target), {file + ":3", "more than 160 (model.max_tokens)"});
  std::vector<std::string> passing_over = with(long_target);
  passing_over.insert(passing_over.end(), {"model.bad_data=skip", "run.quiet=false"});
  CHECK_THAT(train(passing_over).err,
             Catch::Contains("passed over 1 of 10 lines") && Catch::Contains("model.max_tokens"));
  check_refused(with(changed("caption", "a box")), {file + ":3", "either input_text or caption"});
  std::vector<std::string> skipping = with("nothing");
  skipping.insert(skipping.end(), {"model.bad_data=skip", "run.quiet=false"});
  const Ended skipped = train(skipping);
  INFO(skipped.err);
  CHECK(skipped.code == 0);
  CHECK_THAT(skipped.err, Catch::Contains("passed over 1 of 10 lines") && Catch::Contains(file + ":3"));

  write_lines(file, {good[2]});
  const std::string cloud = path + "/points/train_0002.xyz";
  // Enough epochs of the one sample that one draws its points, and one its image.
  const std::vector<std::string> often = {"data.path=" + path, "data.micro_batch=1", "train.steps=16"};
  write_lines(cloud, {"0 0 1", "0 one 2"});
  check_refused(often, {cloud + ":2", "three or six finite numbers"});
  write_lines(cloud, {"0 0 1", "0 1e38 0"});
  check_refused(often, {cloud + ":2", "none beyond 1e+06"});
  write_lines(cloud, {});
  check_refused(often, {cloud, "has no points"});
  write_lines(cloud, {"0 0 1"});
  write_lines(path + "/images/train_0002.png", {"no picture"});
  check_refused(often, {"train_0002.png", "neither a PNG nor a JPEG"});
  check_refused({"data.path=" + path, "model.bad_data=skip"}, {file, "holds no sample"});
  write_lines(file, good);
  write_lines(path + "/points/train_0007.xyz", {"0 0"});
  const Ended torn = train({"data.path=" + path, "model.bad_data=skip", "run.quiet=false"});
  INFO(torn.err);
  CHECK(torn.code == 0);
  CHECK_THAT(torn.err, Catch::Contains("passed over 2 of 10 lines") && Catch::Contains(file + ":3") &&
                           Catch::Contains("train_0002.png"));
  check_refused({"data.path=" + folder.file("none")}, {folder.file("none"), "is no folder", "data.dummy_samples"});
}

TEST_CASE("a stage opens no file that its samples do not need: torn ones do not end it", "[cli]") {
  const TempFolder folder;
  const std::string path = written(folder, 10);
  const auto ended = [&](const std::string& stage) {
    return train({"data.path=" + path, "train.programs=[\"" + stage + "\"]", "train.steps=10", "train.eval_every=10"});
  };
  const auto tear_all = [&](const char* kind) {
    for (const auto& file : std::filesystem::directory_iterator(path + "/" + kind)) write_lines(file.path(), {"torn"});
  };
  tear_all("images");
  for (const char* stage : {"stage1_text", "stage2_text_pc"}) {
    const Ended run = ended(stage);
    INFO(run.command << "\n" << run.err);
    CHECK(run.code == 0);
  }
  CHECK(ended("stage3_all").code != 0);
  tear_all("points");
  CHECK(ended("stage1_text").code == 0);
  CHECK(ended("stage2_text_pc").code != 0);
}

TEST_CASE("a trained CAD-MLLM is evaluated on single inputs and generates from a sample of the evaluation", "[cli]") {
  const TempFolder folder;
  const std::string weights = folder.file("w.safetensors");
  REQUIRE(train({"--save-final", weights}).code == 0);
  const std::vector<std::string> use = {"--model", "cad_mllm", "--weights", weights, "train.programs=[\"stage3_all\"]"};
  const auto with = [&](std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), use.begin(), use.end());
    args.insert(args.end(), more.begin(), more.end());
    return run_program(args, false);
  };
  std::vector<std::string> seen;
  for (const char* inputs : {"stage", "text", "image", "points", "image_points"}) {
    const Ended eval = with({"eval"}, {std::string("model.eval_inputs=") + inputs});
    INFO(eval.command << "\n" << eval.err);
    REQUIRE(eval.code == 0);
    CHECK_THAT(eval.out, Catch::Contains("eval_all: 20 samples") && Catch::Contains("exact"));
    CHECK(std::find(seen.begin(), seen.end(), eval.out) == seen.end());
    seen.push_back(eval.out);
  }
  const Ended text = with({"generate"}, {"--condition", "2", "--temperature", "0", "--length", "5"});
  INFO(text.command << "\n" << text.err);
  REQUIRE(text.code == 0);
  CHECK_THAT(text.out, Catch::Contains("Generate a CAD model with a circular base and vertical walls.\n"));
  const Ended beyond = with({"generate"}, {"--condition", "20", "--length", "5"});
  CHECK(beyond.code != 0);
}

TEST_CASE("a CAD-MLLM generates from files of one's own as from the sample of the evaluation that has them", "[cli]") {
  const TempFolder folder;
  const std::string path = written(folder, 20), weights = folder.file("w.safetensors");
  const std::string image = path + "/images/val_0002.png", points = path + "/points/val_0002.xyz";
  REQUIRE(train({"--save-final", weights, "model.init=fan_in", "train.steps=1", "optimizer.lr=0.001"}).code == 0);
  const auto generate = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"generate",         "--model", "cad_mllm", "--weights", weights,
                                     "--temperature",    "1",       "--length", "40",        "model.init=fan_in",
                                     "data.path=" + path};
    args.insert(args.end(), more.begin(), more.end());
    return run_program(args, false);
  };
  const std::string stage = "train.programs=[\"stage3_all\"]";
  const auto text = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {stage};
    args.insert(args.end(), more.begin(), more.end());
    const Ended run = generate(args);
    INFO(run.command << "\n" << run.err);
    REQUIRE(run.code == 0);
    return run.out;
  };
  const std::string from_image = text({"model.sample_image=" + image});
  CHECK(from_image == text({"--condition", "2", "model.eval_inputs=image"}));
  const std::string from_both = text({"model.sample_image=" + image, "model.sample_points=" + points});
  CHECK(from_both == text({"--condition", "2", "model.eval_inputs=image_points"}));
  CHECK(text({"model.sample_points=" + points}) == text({"--condition", "2", "model.eval_inputs=points"}));
  CHECK(from_both != from_image);
  CHECK_THAT(text({"model.sample_image=" + image, "--prompt", "A ring"}), Catch::Contains("A ring\n"));
  const auto refused = [&](const std::vector<std::string>& more) {
    const Ended run = generate(more);
    CHECK(run.code != 0);
    return run.err;
  };
  CHECK_THAT(refused({stage, "model.sample_image=" + folder.file("none.png")}),
             Catch::Contains("none.png") && Catch::Contains("correct model.sample_image"));
  CHECK_THAT(refused({stage, "model.sample_image=" + image, "--condition", "2"}), Catch::Contains("give one of them"));
  CHECK_THAT(refused({"train.programs=[\"stage2_text_pc\"]", "model.sample_image=" + image}),
             Catch::Contains("stage2_text_pc does not know"));
}

TEST_CASE("adapters are merged into the language model, which then gives the same loss without them", "[cli]") {
  const TempFolder folder;
  const std::string weights = folder.file("w.safetensors");
  const auto text = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"train.programs=[\"stage1_text\"]", "model.init=fan_in", "schedule.warmup_steps=0"});
    const Ended run = train(more);
    INFO(run.command << "\n" << run.err);
    REQUIRE(run.code == 0);
    return run.record.steps.at(0).at("loss").get<double>();
  };
  const double untrained = text({"optimizer.lr=0.02", "--save-final", weights});
  const std::string script = std::string(DDHOST_SOURCE_DIR) + "/models/cad_mllm/export_lora.py";
  for (const std::string what : {"merged", "adapter"}) {
    const std::string command =
        "python3 '" + script + "' " + what + " '" + weights + "' '" + folder.file(what) + "' --alpha 8";
    REQUIRE(std::system(command.c_str()) == 0);
  }
  const json adapter = json::parse(read_text(folder.path() / "adapter/adapter_config.json"));
  CHECK(adapter.at("r") == 4);
  CHECK(adapter.at("lora_alpha") == 8);
  CHECK(adapter.at("target_modules").size() == 7);
  CHECK_THAT(read_text(folder.path() / "adapter/adapter_model.safetensors"),
             Catch::Contains("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));
  // Adapters that no file has begin with B = 0, and change nothing.
  const json merged = json::array(
      {{{"file", folder.file("merged") + "/model.safetensors"}, {"prefix", "llm."}, {"allow_missing", {"*lora_*"}}}});
  const double trained = text({"train.init_from=" + weights});
  CHECK(trained != Approx(untrained).epsilon(1e-3));
  const double loaded = text({"train.init_from=" + merged.dump()});
  CHECK(loaded == Approx(trained).epsilon(1e-6));
  CHECK(text({"train.init_from=" + merged.dump(), "strategy.plugin=zero3", "run.nproc=2", "data.micro_batch=1"}) ==
        Approx(loaded).epsilon(1e-6));
}
