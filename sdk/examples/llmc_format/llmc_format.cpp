// SPDX-License-Identifier: Apache-2.0
//
// llmc: the model files of llm.c (train_gpt2.py, write_model): gpt2_124M.bin and gpt2_124M_bf16.bin.
//
//   256 int32     20240326, version (3: fp32, 5: bf16), context T, vocabulary V, layers L, heads, width C, padded V
//   parameters    wte (padded V, C), wpe (T, C), then each parameter of a layer for all L layers, then ln_f
//
// The rows of wte beyond V are padding, so they are left out. All weights are [out, in].
#include <array>
#include <cstring>

#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/format.hpp"

namespace {

constexpr int32_t kMagic = 20240326;

struct Header {
  std::array<int32_t, 256> words{};
  [[nodiscard]] int64_t context() const { return words[2]; }
  [[nodiscard]] int64_t vocabulary() const { return words[3]; }
  [[nodiscard]] int64_t layers() const { return words[4]; }
  [[nodiscard]] int64_t width() const { return words[6]; }
  [[nodiscard]] int64_t padded_vocabulary() const { return words[7]; }
  [[nodiscard]] int32_t dtype() const { return words[1] == 3 ? DDH_F32 : words[1] == 5 ? DDH_BF16 : 0; }
};

class Llmc final : public ddh::Format {
 public:
  using Format::Format;

  bool matches(const std::string& path) override {
    if (!path.ends_with(".bin")) return false;
    const ddh::MappedInput file(path);
    return file.bytes().size() >= sizeof(Header) && header_of(file.bytes()).words[0] == kMagic;
  }

  ddh::FormatContents open(const std::string& path) override {
    path_ = path;
    file_.emplace(path, ddh::InputWords{"file of llm.c", "get the file again"});
    const Header header = header_of(file_->bytes());
    if (header.dtype() == 0)
      ddh::fail(DDH_UNIMPLEMENTED, "'", path, "' is of version ", header.words[1],
                " of llm.c's files, but 3 (fp32) and 5 (bf16) are read; write it again with a newer train_gpt2.py");
    for (const int64_t size : {header.context(), header.vocabulary(), header.layers(), header.width()})
      if (size < 1 || header.padded_vocabulary() < header.vocabulary())
        ddh::fail(DDH_DATA_LOSS, "'", path, "' is damaged: its header has an impossible size; get the file again");
    ddh::FormatContents out;
    out.what = "a model of llm.c";
    add_all(out, header);
    if (end_ != file_->bytes().size())
      ddh::fail(DDH_DATA_LOSS, "'", path, "' has ", file_->bytes().size(), " bytes, but its header means ", end_,
                "; get the file again");
    return out;
  }

  void read(uint32_t index, uint64_t offset, uint64_t bytes, void* dst) override {
    std::memcpy(dst, file_->bytes().data() + begins_.at(index) + offset, bytes);
  }

 private:
  // In the order of the file.
  void add_all(ddh::FormatContents& out, const Header& header) {
    const int64_t C = header.width();
    end_ = sizeof(Header);
    add(out, header, "transformer.wte.weight", {header.vocabulary(), C});
    end_ += static_cast<uint64_t>((header.padded_vocabulary() - header.vocabulary()) * C) * width(header);
    add(out, header, "transformer.wpe.weight", {header.context(), C});
    using Shape = std::vector<int64_t>;
    const std::array<std::pair<const char*, Shape>, 12> of_layer = {{{"ln_1.weight", {C}},
                                                                     {"ln_1.bias", {C}},
                                                                     {"attn.c_attn.weight", {3 * C, C}},
                                                                     {"attn.c_attn.bias", {3 * C}},
                                                                     {"attn.c_proj.weight", {C, C}},
                                                                     {"attn.c_proj.bias", {C}},
                                                                     {"ln_2.weight", {C}},
                                                                     {"ln_2.bias", {C}},
                                                                     {"mlp.c_fc.weight", {4 * C, C}},
                                                                     {"mlp.c_fc.bias", {4 * C}},
                                                                     {"mlp.c_proj.weight", {C, 4 * C}},
                                                                     {"mlp.c_proj.bias", {C}}}};
    for (const auto& [name, shape] : of_layer)
      for (int64_t l = 0; l < header.layers(); ++l) add(out, header, ddh::str("transformer.h.", l, ".", name), shape);
    add(out, header, "transformer.ln_f.weight", {C});
    add(out, header, "transformer.ln_f.bias", {C});
  }
  void add(ddh::FormatContents& out, const Header& header, const std::string& name, const std::vector<int64_t>& shape) {
    begins_.push_back(end_);
    uint64_t bytes = width(header);
    for (const int64_t n : shape) bytes *= static_cast<uint64_t>(n);
    end_ += bytes;
    if (end_ > file_->bytes().size())
      ddh::fail(DDH_DATA_LOSS, "'", name, "' is beyond the end of '", path_, "', which is cut short; get it again");
    out.tensors.push_back({name, "", header.dtype(), shape});
  }
  static Header header_of(std::string_view bytes) {
    Header header;
    std::memcpy(header.words.data(), bytes.data(), std::min(bytes.size(), sizeof header.words));
    return header;
  }
  static uint64_t width(const Header& header) { return ddh_dtype_bytes(header.dtype()); }

  std::string path_;
  std::optional<ddh::MappedInput> file_;
  std::vector<uint64_t> begins_;  // of each tensor in the file
  uint64_t end_ = 0;              // of what has been added
};

}  // namespace

DDH_CXX_PLUGIN(Llmc, format, "llmc", "1.0.0", "model files of llm.c", nullptr, nullptr, 0);
