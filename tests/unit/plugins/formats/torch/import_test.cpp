// SPDX-License-Identifier: Apache-2.0
//
// The reader of other programs' checkpoints, on files that their own packages wrote (tests/data/make_imports.py), on bytes
// that are damaged, and on pickles that would run something.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "checkpoint/safetensors.hpp"
#include "ddh/sdk/files/plain_name.hpp"
#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"
#include "foreign_checkpoint.hpp"
#include "pickle_tree.hpp"
#include "zip_entries.hpp"

using namespace torch_format;
using ddhost::SafetensorsFile;
using ddhost::test::sentence_of;
namespace fs = std::filesystem;

namespace {

const fs::path kImports = fs::path(DDHOST_SOURCE_DIR) / "tests" / "data" / "imports";

std::string text_of(const ddh::FileTensor& tensor) { return {static_cast<const char*>(tensor.data), tensor.bytes}; }

// Every tensor is there, with the bits that the package itself gave.
void check_equals(const ForeignCheckpoint& found, const fs::path& expected_file, bool has_slots) {
  const SafetensorsFile expected(expected_file.string());
  size_t weights = 0, slots = 0;
  for (const auto& [name, tensor] : expected.tensors()) {
    const bool is_slot = name.starts_with("exp_avg");
    if (is_slot && !has_slots) continue;
    INFO(name);
    const auto& from = is_slot ? found.slots : found.weights;
    REQUIRE(from.contains(name));
    CHECK(from.at(name).shape == tensor.shape);
    const bool is_narrow = from.at(name).dtype == DDH_BF16;  // a frozen parameter that DeepSpeed keeps in bf16 alone
    if (!is_narrow) CHECK((text_of(from.at(name)) == text_of(tensor)));
    ++(is_slot ? slots : weights);
  }
  CHECK(weights == 8);
  CHECK(found.weights.size() == weights);
  CHECK(found.slots.size() == slots);
  if (has_slots) CHECK(found.step == 3);
}

// A GPT-2 of transformers, whose head is its embedding.
void check_gpt2(const ForeignCheckpoint& found, const fs::path& expected_file) {
  const SafetensorsFile expected(expected_file.string());
  size_t weights = 0;
  for (const auto& [name, tensor] : expected.tensors()) {
    INFO(name);
    const bool is_slot = name.starts_with("exp_avg");
    const auto& from = is_slot ? found.slots : found.weights;
    REQUIRE(from.contains(name));
    CHECK(from.at(name).shape == tensor.shape);
    CHECK((text_of(from.at(name)) == text_of(tensor)));
    weights += is_slot ? 0 : 1;
  }
  CHECK(weights == 16);
  CHECK(found.slots.size() == 2 * weights);
  CHECK(found.step == 3);
}

std::string whole_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A copy of a file in a folder of the test.
class DamagedFile {
 public:
  explicit DamagedFile(const std::string& name)
      : path_(fs::temp_directory_path() / (std::to_string(getpid()) + "-" + name)) {}
  DamagedFile(const DamagedFile&) = delete;
  DamagedFile& operator=(const DamagedFile&) = delete;
  ~DamagedFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const fs::path& write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }

 private:
  fs::path path_;
};

// Protocol 2, a program, and STOP.
std::string pickle(const std::string& program) { return std::string("\x80\x02", 2) + program + "."; }
std::string text(const std::string& value) {
  const auto bytes = static_cast<uint32_t>(value.size());
  std::string out = "X....";
  std::memcpy(out.data() + 1, &bytes, sizeof bytes);
  return out + value;
}
std::string refusal(const std::string& program) {
  return sentence_of([&] { const PickleTree tree(pickle(program), "'evil.pt'"); });
}

}  // namespace

TEST_CASE("files of torch.save give the tensors that torch gives") {
  for (const char* file : {"state_dict.pt", "views.pt", "nanogpt_ckpt.pt"}) {
    INFO(file);
    check_equals(read_foreign(kImports / "torch" / file), kImports / "torch" / "expected.safetensors", false);
  }
  const ForeignCheckpoint narrow = read_foreign(kImports / "torch" / "state_dict_bf16.pt");
  CHECK(narrow.weights.at("embedding").dtype == DDH_BF16);
  CHECK(narrow.weights.at("embedding").bytes == 31 * 5 * 2);
}

TEST_CASE("a folder of transformers gives the tensors of all files that its index names") {
  check_equals(read_foreign(kImports / "hf_bin"), kImports / "torch" / "expected.safetensors", false);
  const ddhost::test::TempFolder folder;
  fs::copy(kImports / "hf_bin", folder.path(), fs::copy_options::recursive);
  const fs::path index = folder.path() / "pytorch_model.bin.index.json";
  const auto with_index = [&](const std::string& text) {
    std::ofstream(index, std::ios::binary) << text;
    return sentence_of([&] { read_foreign(folder.path()); });
  };
  CHECK_THAT(with_index(R"({"weight_map": {"nowhere": "pytorch_model-00001-of-00002.bin"}})"),
             Catch::Contains("lacks 'nowhere'"));
  CHECK_THAT(with_index(R"({"weight_map": {"bias": "../bias.bin"}})"), Catch::Contains("not a file beside it"));
  CHECK_THAT(with_index("{"), Catch::Contains("no object weight_map"));
  fs::remove(index);
  fs::copy_file(kImports / "torch" / "state_dict.pt", folder.path() / "pytorch_model.bin");
  check_equals(read_foreign(folder.path()), kImports / "torch" / "expected.safetensors", false);
}

TEST_CASE("a folder of torch.distributed.checkpoint gives whole tensors from the shards of all ranks") {
  check_equals(read_foreign(kImports / "dcp"), kImports / "dcp" / "expected.safetensors", true);
}

TEST_CASE("a folder of torch.distributed.checkpoint may hold a flat optimizer's state dict, or one dict around both") {
  for (const char* folder : {"dcp_flat", "dcp_app"}) {
    INFO(folder);
    check_equals(read_foreign(kImports / folder), kImports / folder / "expected.safetensors", true);
  }
}

TEST_CASE("names lose what wrappers put into them, in any order and place") {
  check_equals(read_foreign(kImports / "torch" / "wrapped.pt"), kImports / "torch" / "expected.safetensors", false);
  for (const char* name :
       {"h.0.w", "module.h.0.w", "module._orig_mod.h.0.w", "_orig_mod.module.h.0.w", "module.module.h.0.w",
        "_fsdp_wrapped_module.h.0._fsdp_wrapped_module.w", "h._orig_mod.0._checkpoint_wrapped_module.w",
        "_fsdp_wrapped_module.module.h.0._fsdp_wrapped_module._checkpoint_wrapped_module.w"})
    CHECK(ddh::plain_name(name) == "h.0.w");
  // Only the outermost module is called so by a wrapper, and a word is no wrapper as the name of a parameter.
  for (const char* name : {"h.module.w", "modules.w", "h._orig_mod", "module", ".w", "h..w", ""})
    CHECK(ddh::plain_name(name) == name);
}

TEST_CASE("two tensors that differ can't have one name without their wrappers") {
  const float one = 1, two = 2;
  std::map<std::string, ddh::FileTensor> tensors;
  add_plain(tensors, "w", {DDH_F32, {1}, &one, sizeof one});
  add_plain(tensors, "module.w", {DDH_F32, {1}, &one, sizeof one});
  CHECK(tensors.size() == 1);
  CHECK_THAT(sentence_of([&] {
               add_plain(tensors, "_orig_mod.w", {DDH_F32, {1}, &two, sizeof two});
             }),
             Catch::Contains("two tensors 'w'") && Catch::Contains("'_orig_mod.w'"));
}

TEST_CASE("folders of DeepSpeed give fp32 weights and moments from the partitions of all ranks") {
  for (const char* folder : {"zero1", "zero2", "zero3", "round_robin", "universal"}) {
    INFO(folder);
    check_equals(read_foreign(kImports / folder), kImports / folder / "expected.safetensors", true);
  }
  // The folder of a step needs no `latest`.
  check_equals(read_foreign(kImports / "zero3" / "global_step3"), kImports / "zero3" / "expected.safetensors", true);
}

// The files of further ranks were taken for those of the run: the weights were of none.
TEST_CASE("a folder of DeepSpeed with the files of more or fewer ranks than its run had is refused") {
  for (const char* from : {"zero1", "zero2", "zero3"}) {
    INFO(from);
    const ddhost::test::TempFolder folder;
    fs::copy(kImports / from / "global_step3", folder.path(), fs::copy_options::recursive);
    const auto file_of = [&](int rank) {
      return folder.path() / ddh::str("bf16_zero_pp_rank_", rank, "_mp_rank_00_optim_states.pt");
    };
    for (const int rank : {2, 3}) fs::copy_file(file_of(rank - 2), file_of(rank));
    CHECK_THAT(sentence_of([&] { read_foreign(folder.path()); }),
               Catch::Contains("(*_optim_states.pt) of 4 ranks") && Catch::Contains("rank 0 counts 2: ") &&
                   Catch::Contains("those from rank 2 on") && Catch::Contains("move them elsewhere"));
    for (const int rank : {1, 2, 3}) fs::remove(file_of(rank));
    CHECK_THAT(
        sentence_of([&] { read_foreign(folder.path()); }),
        Catch::Contains("of 1 rank, but the file of rank 0 counts 2") && Catch::Contains("get the folder again"));
  }
}

TEST_CASE("partitions of DeepSpeed that hold more than the parameters are refused") {
  for (const char* from : {"zero1", "zero3"}) {
    INFO(from);
    const ddhost::test::TempFolder folder;
    fs::copy(kImports / from / "global_step3", folder.path(), fs::copy_options::recursive);
    int changed = 0;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      std::string bytes = whole_file(entry.path());
      const size_t list = bytes.find("param_shapes");
      if (list == std::string::npos) continue;
      const size_t at = bytes.find("K\x1fK\x05\x86", list);  // the shape (31, 5)
      REQUIRE(at != std::string::npos);
      bytes[at + 3] = '\4';
      std::ofstream(entry.path(), std::ios::binary) << bytes;
      ++changed;
    }
    REQUIRE(changed > 0);
    CHECK_THAT(sentence_of([&] { read_foreign(folder.path()); }),
               Catch::Contains("the partitions of fp32") && Catch::Contains("elements more than the parameters"));
  }
}

TEST_CASE("a parameter of DeepSpeed that is another one too has its fp32 weights under both names") {
  for (const char* folder : {"gpt2_zero1", "gpt2_zero2", "gpt2_zero3"}) {
    INFO(folder);
    const ForeignCheckpoint found = read_foreign(kImports / folder);
    check_gpt2(found, kImports / folder / "expected.safetensors");
    REQUIRE(found.weights.contains("lm_head.weight"));
    CHECK(found.weights.size() == 17);
    CHECK(ddh::same_values(found.weights.at("lm_head.weight"), found.weights.at("transformer.wte.weight")));
  }
}

TEST_CASE("a shared parameter of a version of DeepSpeed without that list has its fp32 weights too") {
  const ddhost::test::TempFolder folder;
  fs::copy(kImports / "gpt2_zero2/global_step3", folder.path(), fs::copy_options::recursive);
  const fs::path file = folder.path() / "mp_rank_00_model_states.pt";
  std::string bytes = whole_file(file);
  const size_t at = bytes.find("shared_params");
  REQUIRE(at != std::string::npos);
  bytes[at] = 'x';  // another key, which is not read
  std::ofstream(file, std::ios::binary) << bytes;
  const ForeignCheckpoint found = read_foreign(folder.path());
  CHECK(ddh::same_values(found.weights.at("lm_head.weight"), found.weights.at("transformer.wte.weight")));
}

TEST_CASE("a checkpoint of DeepSpeed whose fp32 weights are not those of the model's file is refused") {
  // Made by DeepSpeed's ds_to_universal, which exchanges parameters here; the folder that it reads is right.
  CHECK_THAT(sentence_of([] { read_foreign(kImports / "universal_round_robin"); }),
             Catch::Contains("parameter 'bias'") && Catch::Contains("ds_to_universal") &&
                 Catch::Contains("round_robin_gradients"));
  for (const char* from : {"zero2/global_step3", "universal"}) {
    INFO(from);
    const ddhost::test::TempFolder folder;
    fs::copy(kImports / from, folder.path(), fs::copy_options::recursive);
    const fs::path file = folder.path() / "mp_rank_00_model_states.pt";
    const std::string bias = text_of(read_foreign(file).weights.at("bias"));
    std::string bytes = whole_file(file);
    const size_t at = bytes.find(bias);
    REQUIRE(at != std::string::npos);
    bytes[at + 6] = static_cast<char>(~bytes[at + 6]);  // of element 3, in bf16
    std::ofstream(file, std::ios::binary) << bytes;
    // No cause is named.
    CHECK_THAT(sentence_of([&] { read_foreign(folder.path()); }),
               Catch::Contains("parameter 'bias'") && Catch::Contains("first at element 3, ") &&
                   Catch::Contains("not clear which are right") && !Catch::Contains("round_robin"));
    CHECK(read_foreign(file).weights.size() == 8);  // the cure that is named
  }
}

TEST_CASE("a file of torch before 1.6 is refused with the cure") {
  CHECK_THAT(sentence_of([] { read_foreign(kImports / "torch" / "legacy.pt"); }),
             Catch::Contains("legacy.pt") && Catch::Contains("before 1.6") && Catch::Contains("save it again"));
}

TEST_CASE("a pickle that would run something is refused by the name of what it calls") {
  const std::string call = text("echo run") + "\x85R";
  CHECK_THAT(refusal("cposix\nsystem\n" + call),
             Catch::Contains("'posix.system'") && Catch::Contains("nothing is run"));
  CHECK_THAT(refusal("cbuiltins\neval\n" + call), Catch::Contains("'builtins.eval'"));
  CHECK_THAT(refusal("cos\nsystem\n" + call), Catch::Contains("'evil.pt'") && Catch::Contains("'os.system'"));
  CHECK_THAT(refusal("csubprocess\nPopen\n" + call), Catch::Contains("'subprocess.Popen'"));
  // By the instruction of newer protocols.
  CHECK_THAT(refusal(text("os") + text("system") + "\x93" + call), Catch::Contains("'os.system'"));
  // getattr of what is no enumeration would lead to any function.
  CHECK_THAT(refusal("cbuiltins\ngetattr\nctorch\nSize\n" + text("__class__") + "\x86R"),
             Catch::Contains("getattr of torch.Size"));
  CHECK_THAT(refusal("cbuiltins\ngetattr\n" + text("x") + text("__class__") + "\x86R"), Catch::Contains("getattr"));
  CHECK_THAT(refusal("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch\nSize\nctorch\nTensor\n)Nt" + std::string("R")),
             Catch::Contains("'torch.Size'"));
  // Instructions that call by other ways: INST, OBJ, EXT1, PERSID.
  for (const char* program : {"(iposix\nsystem\n", "(cposix\nsystem\no", "\x82\x01", "Pid\n"})
    CHECK_THAT(refusal(program), Catch::Contains("refused"));
}

TEST_CASE("values of a pickle are read as Python reads them") {
  const std::string with_zero = [] {
    std::string fixed = "\x8a\x02..";
    fixed[2] = '\0';
    fixed[3] = '\x80';
    return "}(" + text("e") + fixed + "u";
  }();
  const PickleTree negative(pickle(with_zero), "'x'");
  CHECK(negative.root().at("e").as_integer() == -32768);
  const PickleTree tree(
      pickle("}(" + text("a") + "K\x07" + text("b") + "J\xff\xff\xff\xff" + text("c") +
             std::string("G\x3f\xf8\0\0\0\0\0\0", 9) + text("d") + "](\x88\x89Ne" + text("a") + "K\x08u"),
      "'x'");
  CHECK(tree.root().at("a").as_integer() == 8);  // the last one counts
  CHECK(tree.root().at("b").as_integer() == -1);
  CHECK(tree.root().at("c").real == 1.5);
  CHECK(tree.root().at("d").items.size() == 3);
  CHECK(tree.root().find("f") == nullptr);
}

TEST_CASE("a file that is cut at any byte, or has any byte changed, is refused or read, and never crashes") {
  int refused = 0;
  for (const char* name : {"torch/views.pt", "dcp/.metadata"}) {
    const std::string bytes = whole_file(kImports / name);
    REQUIRE(bytes.size() > 1000);
    const DamagedFile file("damaged.pt");
    const bool is_zip = std::string(name).ends_with(".pt");
    const auto try_bytes = [&](const std::string& damaged) {
      const std::string sentence = is_zip ? sentence_of([&] { read_foreign(file.write(damaged)); })
                                          : sentence_of([&] { const PickleTree tree(damaged, "'x'"); });
      refused += sentence.empty() ? 0 : 1;
    };
    for (size_t n = 1; n < bytes.size(); n += 7) try_bytes(bytes.substr(0, n));
    CHECK(refused > static_cast<int>(bytes.size() / 7) - 2);
    for (size_t i = 0; i < bytes.size(); i += 3) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(~changed[i]);
      try_bytes(changed);
    }
    refused = 0;
  }
}

TEST_CASE("a compressed archive is refused, and so is one that is none") {
  CHECK_THAT(sentence_of([] { zip_entries("PK", "'x.pt'"); }), Catch::Contains("'x.pt' is no zip archive"));
  std::string bytes = whole_file(kImports / "torch" / "state_dict.pt");
  const size_t central = bytes.find("PK\1\2");
  REQUIRE(central != std::string::npos);
  bytes[central + 10] = 8;  // deflate
  CHECK_THAT(sentence_of([&] { zip_entries(bytes, "'x.pt'"); }), Catch::Contains("is compressed"));
}

TEST_CASE("a folder of PyTorch's distributed checkpoints whose chunks overlap or are missing is refused") {
  const ddhost::test::TempFolder temp;
  const fs::path folder = temp.path() / "dcp";
  const auto sentence = [&] { return sentence_of([&] { read_foreign(folder); }); };
  fs::copy(kImports / "dcp", folder);
  REQUIRE(sentence().empty());
  fs::remove(folder / "__1_0.distcp");
  CHECK_THAT(sentence(), Catch::Contains("__1_0.distcp"));
  fs::copy(kImports / "dcp" / "__1_0.distcp", folder);

  // Each number of one byte in the list of chunks gets the values of others: offsets, sizes and shapes.
  const std::string metadata = whole_file(folder / ".metadata");
  int overlaps = 0, holes = 0;
  for (size_t i = 0; i + 1 < metadata.size(); ++i) {
    if (metadata[i] != 'K') continue;  // an integer of one byte
    for (const char value : {'\0', '\1', '\2', '\4'}) {
      if (metadata[i + 1] == value) continue;
      std::string changed = metadata;
      changed[i + 1] = value;
      std::ofstream(folder / ".metadata", std::ios::binary) << changed;
      const std::string said = sentence();
      overlaps += said.find("overlap") != std::string::npos ? 1 : 0;
      holes += said.find("do not fill it once") != std::string::npos ? 1 : 0;
    }
  }
  CHECK(overlaps > 0);
  CHECK(holes > 0);
}
