// SPDX-License-Identifier: Apache-2.0
//
// KGAT from the command line: the config that comes with it, its alternation over checkpoints, evaluation of weights, and
// data that can't be used, which is refused in one sentence with file and line, or skipped and counted.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "fixtures/harness/skip.hpp"

using namespace ddhost::test;

namespace {

struct Ended {
  int code;
  std::string out, err, command;
  RunRecord record;
};

Ended run(std::vector<std::string> args, const std::string& run_dir) {
  args.push_back("run.dir=" + run_dir);
  Process process(args);
  const int code = process.wait(std::chrono::seconds(100));
  return {code, process.out(), process.err(), process.command(), read_run(run_dir)};
}

// A few steps on a folder of data.
Ended train(const std::string& data, std::vector<std::string> more = {}) {
  const TempFolder folder;
  std::vector<std::string> args = {"--model",           "kgat",
                                   "--nproc",           "2",
                                   "train.steps=2",     "train.optimizers=[\"optimizer\", \"optimizer_kg\"]",
                                   "data.path=" + data, "optimizer_kg.plugin=adam",
                                   "data.micro_batch=2"};
  args.insert(args.end(), more.begin(), more.end());
  return run(args, folder.file("run"));
}

void write(const TempFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.file(name)) << text;
}

// Three users, four items, six entities.
void write_data(const TempFolder& folder) {
  write(folder, "train.txt", "0 0 1\n1 1 2\n2 3\n");
  write(folder, "test.txt", "0 2\n1 3\n2\n");
  write(folder, "kg_final.txt", "0 0 4\n1 0 4\n2 1 5\n3 1 5\n");
}

void check_refused(const TempFolder& folder, const std::vector<std::string>& words) {
  const Ended ended = train(folder.path().string(), {"run.quiet=true"});
  INFO(ended.command << "\nexit " << ended.code << "\n" << ended.err);
  CHECK(ended.code > 0);
  CHECK(ended.code < 128);
  for (const std::string& word : words) CHECK_THAT(ended.err, Catch::Contains(word));
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') <= 2);
}

std::string tiny_config() { return std::string(DDHOST_SOURCE_DIR) + "/configs/kgat_tiny.json"; }
// The config on the made-up graph.
std::vector<std::string> tiny(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"--config",
                                   tiny_config(),
                                   "--nproc",
                                   "2",
                                   "model.dataset=made_up",
                                   "run.quiet=true",
                                   "data.micro_batch.cf=50",
                                   "model.matmul=aten",
                                   "data.micro_batch.kg=100"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

}  // namespace

TEST_CASE("the tiny config of KGAT learns, with data and without", "[cli]") {
  const TempFolder folder;
  const Ended made_up = run(tiny({"run.quiet=false", "train.cycles=8"}), folder.file("made_up"));
  INFO(made_up.command << "\n" << made_up.err);
  REQUIRE(made_up.code == 0);
  CHECK_THAT(made_up.err, Catch::Contains("made-up graph"));
  const auto recall = [](const nlohmann::json& row) { return row.at("val_recall@20").get<double>(); };
  REQUIRE(made_up.record.evaluations.size() == 8);
  CHECK(recall(made_up.record.evaluations.back()) > recall(made_up.record.evaluations.front()));
  CHECK(recall(made_up.record.evaluations.back()) > 0.7);  // a ranking by chance finds 20 of 48 items
  const Ended as_it_is = run({"--config", tiny_config()}, folder.file("as_it_is"));
  INFO(as_it_is.command << "\n" << as_it_is.err);
  CHECK(as_it_is.code == 0);
  CHECK(as_it_is.record.evaluations.size() == 2);
}

TEST_CASE("an alternation that is resumed at any checkpoint ends with the same bits", "[cli]") {
  const TempFolder folder;
  const auto weights = [&](const std::string& name) { return read_text(folder.file(name)); };
  const Ended whole = run(tiny({"checkpoint.every=1", "checkpoint.keep_last=0", "--save-final", folder.file("whole")}),
                          folder.file("run"));
  INFO(whole.command << "\n" << whole.err);
  REQUIRE(whole.code == 0);
  int n = 0;
  std::vector<std::filesystem::path> checkpoints;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path() / "run"))
    if (entry.is_directory() && entry.path().filename().string().starts_with("step-"))
      checkpoints.push_back(entry.path());
  std::sort(checkpoints.begin(), checkpoints.end());
  REQUIRE(checkpoints.size() > 8);
  // One in each phase, at the end of a phase, and after the attention was renewed.
  for (const size_t i : {checkpoints.size() / 4, checkpoints.size() / 2, checkpoints.size() - 3}) {
    const std::string name = "resumed" + std::to_string(n++);
    const Ended resumed =
        run(tiny({"--resume", checkpoints[i].string(), "--strategy", "zero3", "--save-final", folder.file(name)}),
            folder.file(name + "-run"));
    INFO(resumed.command << "\n" << resumed.err);
    REQUIRE(resumed.code == 0);
    CHECK((weights(name) == weights("whole")));
  }
}

TEST_CASE("ddhost eval has the metrics of the run that wrote the weights", "[cli]") {
  const TempFolder folder;
  const std::string weights = folder.file("weights.safetensors");
  // The run ends with a step and an evaluation, so that has seen the final weights.
  const std::string phases = R"(train.phases=[{"program": "kg", "epochs": 1}, {"program": "attention"},)"
                             R"( {"program": "cf", "epochs": 1}])";
  const Ended trained = run(tiny({phases, "--save-final", weights, "train.eval_every_epochs=0", "train.eval_every=1"}),
                            folder.file("run"));
  INFO(trained.command << "\n" << trained.err);
  REQUIRE(trained.code == 0);
  Process eval({"eval", "--model", "kgat", "--weights", weights, "--nproc", "3", "model.dataset=made_up",
                "model.embed_dim=16", "model.relation_dim=16", "model.layers=[16, 8]", "model.matmul=aten",
                "data.micro_batch=7", "train.eval_batches=all"});
  const int code = eval.wait();
  INFO(eval.command() << "\n" << eval.out() << eval.err());
  REQUIRE(code == 0);
  for (const auto& [name, value] : trained.record.evaluations.back().items()) {
    if (!name.starts_with("val_")) continue;
    std::istringstream out(eval.out());
    double printed = -1;
    for (std::string line, word; std::getline(out, line);) {
      std::istringstream words(line);
      if (words >> word && word == name.substr(4)) words >> printed;
    }
    CHECK(printed == Approx(value.get<double>()).epsilon(1e-12));  // other micro-batches: sums in another order
  }
}

TEST_CASE("a folder in the format of KGAT trains", "[cli]") {
  const TempFolder folder;
  write_data(folder);
  const Ended ended = train(folder.path().string());
  INFO(ended.command << "\n" << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, Catch::Contains("3 users, 4 items, 6 entities, 18 edges"));
}

TEST_CASE("data of KGAT that can't be used is refused with file and line", "[cli]") {
  const TempFolder folder;
  write_data(folder);
  const auto spoiled = [&](const std::string& name, const std::string& text, std::vector<std::string> words) {
    write_data(folder);
    write(folder, name, text);
    words.push_back(name);
    check_refused(folder, words);
    write_data(folder);
  };
  spoiled("train.txt", "0 0 1\n\n2 3\n", {"line 2", "is empty"});
  spoiled("train.txt", "0 0 1\n1 1 x2\n", {"line 2", "'x2'", "no id"});
  spoiled("train.txt", "0 0 1\n1 -1\n", {"line 2", "'-1'", "no id"});
  spoiled("train.txt", "0 0 99999999999\n", {"line 1", "'99999999999'", "no id"});
  spoiled("train.txt", "0 0 1\n1\n", {"line 2", "user 1", "without items"});
  spoiled("train.txt", "0 0 1\n1 2\n0 3\n", {"line 3", "user 0", "a second time"});
  spoiled("train.txt", "1 1 2\n2 3\n0 0 1 2 3\n", {"line 3", "user 0", "all items"});
  spoiled("test.txt", "0 2\n5 1\n", {"line 2", "user 5", "no items in train.txt"});
  // Ids that no list names: one that is far too large would take all memory.
  spoiled("train.txt", "0 0 1\n2000000000 1\n", {"line 2", "user 2000000000", "without user_list.txt", "16777216"});
  spoiled("train.txt", "0 0 2147483647\n", {"line 1", "item 2147483647", "without item_list.txt", "16777216"});
  spoiled("kg_final.txt", "0 0 2147483646\n", {"line 1", "entity 2147483646", "without entity_list.txt"});
  spoiled("kg_final.txt", "0 2147483647 4\n", {"line 1", "relation 2147483647", "without relation_list.txt", "65536"});
  spoiled("kg_final.txt", "0 0 4\n1 4\n", {"line 2", "2 numbers", "head, relation and tail"});
  write(folder, "item_list.txt", "org_id remap_id\na 0\nb 1\nc 2\nd 3\n");
  spoiled("test.txt", "0 2\n1 4\n", {"line 2", "item 4", "item_list.txt names only 4 items"});
  write(folder, "user_list.txt", "org_id remap_id\na 0\nb 1\nc 2\n");
  spoiled("test.txt", "3 2\n", {"line 1", "user 3", "user_list.txt names only 3 users"});
  write(folder, "relation_list.txt", "org_id remap_id\na 0\nb 1\n");
  spoiled("kg_final.txt", "0 2 4\n", {"line 1", "relation 2", "relation_list.txt names only 2 relations"});
  write(folder, "entity_list.txt", "org_id remap_id\na 0\nb 1\nc 2\nd 3\ne 4\n");
  spoiled("kg_final.txt", "0 0 4\n1 0 5\n", {"line 2", "entity 5", "entity_list.txt names only 5 entities"});
  std::filesystem::remove(folder.file("kg_final.txt"));
  check_refused(folder, {"kg_final.txt", "does not exist"});
  check_refused(TempFolder(), {"train.txt", "does not exist"});
}

TEST_CASE("bad lines are skipped and counted where the option says so", "[cli]") {
  const TempFolder folder;
  write_data(folder);
  write(folder, "train.txt", "0 0 1\n\n1 1 2\n2 3 y\n2 3\n1 0\n");
  const Ended ended = train(folder.path().string(), {"model.skip_bad_lines=true"});
  INFO(ended.command << "\n" << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, Catch::Contains("skipped 3 lines") && Catch::Contains("line 2") && Catch::Contains("18 edges"));
  // A user with all items, one without items to train on, and ids that are too large.
  write_data(folder);
  write(folder, "train.txt", "3 0 1 2 3\n0 0 1\n1 1 2\n2 3\n2000000000 1\n");
  write(folder, "test.txt", "0 2\n1 3\n2\n9 1\n");
  write(folder, "kg_final.txt", "0 0 4\n1 0 4\n2 1 5\n3 1 5\n0 0 2147483646\n");
  const Ended without = train(folder.path().string(), {"model.skip_bad_lines=true"});
  INFO(without.command << "\n" << without.err);
  CHECK(without.code == 0);
  CHECK_THAT(without.err, Catch::Contains("skipped 2 lines") && Catch::Contains("test.txt' has user 9") &&
                              Catch::Contains("has entity 2147483646") && Catch::Contains("18 edges"));
}

TEST_CASE("embeddings of BPR-MF in an npz file become a start of KGAT", "[cli]") {
  if (std::system("command -v python3 >/dev/null") != 0) return skip("there is no python3 to convert the file with");
  const TempFolder folder;
  write_data(folder);
  // Arrays as NumPy writes them: row u is u + 1, u + 1.5; row i is -i, -i - 0.5.
  write(folder, "make.py", R"(
import struct, sys, zipfile
def npy(rows):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 2), }" % len(rows)
    head += ' ' * (-(len(head) + 11) % 64) + '\n'
    values = b''.join(struct.pack('<2f', *row) for row in rows)
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode() + values
with zipfile.ZipFile(sys.argv[1], 'w') as out:
    out.writestr('user_embed.npy', npy([(u + 1, u + 1.5) for u in range(3)]))
    out.writestr('item_embed.npy', npy([(-i, -i - 0.5) for i in range(4)]))
)");
  const std::string npz = folder.file("mf.npz"), start = folder.file("start.safetensors"), out = folder.file("out");
  const std::string script = std::string(DDHOST_SOURCE_DIR) + "/docs/models/mf_to_safetensors.py";
  REQUIRE(std::system(("python3 " + folder.file("make.py") + " " + npz).c_str()) == 0);
  REQUIRE(std::system(("python3 " + script + " " + npz + " " + folder.path().string() + " " + start).c_str()) == 0);
  const Ended ended =
      train(folder.path().string(), {"train.steps=0", "model.embed_dim=2", "--save-final", out,
                                     "train.init_from=[{\"file\": \"" + start + "\", \"allow_missing\": true}]"});
  INFO(ended.command << "\n" << ended.err);
  REQUIRE(ended.code == 0);
  const GoldenTensor table = read_safetensors(out).at("entity_user_embed.weight");
  REQUIRE(table.shape == std::vector<int64_t>{9, 2});
  const std::vector<float> values = table.f32();
  CHECK(std::vector<float>(values.begin(), values.begin() + 8) ==
        std::vector<float>{0, -0.5F, -1, -1.5F, -2, -2.5F, -3, -3.5F});
  CHECK(std::vector<float>(values.begin() + 12, values.end()) == std::vector<float>{1, 1.5F, 2, 2.5F, 3, 3.5F});
  for (size_t i = 8; i < 12; ++i) CHECK((values[i] != 0 && std::abs(values[i]) < 0.75F));  // two other entities
}

TEST_CASE("data without test items says so where an evaluation is refused", "[cli]") {
  const TempFolder folder;
  write_data(folder);
  write(folder, "test.txt", "0\n1\n2\n");
  const std::vector<std::string> evaluates = {"train.eval_every=1", "run.quiet=true"};
  const auto check_told = [&](std::vector<std::string> more, const std::string& reason) {
    more.insert(more.end(), evaluates.begin(), evaluates.end());
    const Ended ended = train(folder.path().string(), more);
    INFO(ended.command << "\n" << ended.err);
    CHECK(ended.code > 0);
    CHECK_THAT(ended.err, Catch::Contains("nothing to evaluate: " + reason) && Catch::Contains("train.eval_every=0"));
  };
  check_told({}, "no user has an item in test.txt");
  write(folder, "train.txt", "0 0\n1 1\n2 3\n");
  check_told({"model.validation=0.5", "data.micro_batch=1"}, "model.validation=0.5 holds out no item");
}
