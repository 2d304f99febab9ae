// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>

#include "ddh/sdk/files/find_data.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/kernels/counter_rng.hpp"

namespace gpt {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kTokenFileVocab = 50304;  // GPT-2's 50257, padded to a multiple of 64

constexpr const char* kMadeUp = "the made-up text";  // in place of a path, which would be absolute

// The file of a run without data.path, or kMadeUp.
std::string default_text(const ddh::Host& host) {
  const std::string found = ddh::find_data(host, "shakespeare/input.txt", ddh::DataKind::kFile,
                                           {"../tests/data/shakespeare/input.txt", "data/shakespeare.txt"});
  if (!found.empty()) return found;
  host.log(DDH_LOG_INFO, "no data.path given and no text found: training on a made-up text");
  return kMadeUp;
}

// Sentences of a few words: what is said of a thing depends on the thing, so there is something to learn.
std::string made_up_text() {
  constexpr std::array<std::string_view, 8> kThings = {"the sun",  "a river", "the night", "a stone",
                                                       "the rain", "a bird",  "the sea",   "a tree"};
  constexpr std::array<std::string_view, 8> kDoes = {"shines", "flows", "falls", "rests",
                                                     "sings",  "grows", "waits", "turns"};
  constexpr std::array<std::string_view, 4> kWhere = {"over the hill", "in the valley", "near the road", "far away"};
  constexpr size_t kBytes = 200'000;
  const ddh::CounterRng rng(0, "gpt.made_up");
  std::string text;
  for (uint64_t i = 0; text.size() < kBytes; ++i) {
    const uint64_t bits = rng.bits(i);
    const size_t thing = bits % kThings.size(), does = (thing + (bits >> 8) % 2) % kDoes.size();
    text += ddh::str(kThings.at(thing), ' ', kDoes.at(does), ' ', kWhere.at((bits >> 16) % kWhere.size()), ".\n");
  }
  return text;
}

constexpr ddh::InputWords kDataFile{"data file", "give a text or a .bin of tokens as data.path and data.val_path"};

bool is_token_file(const std::string& path) { return fs::path(path).extension() == ".bin"; }

void require_length(const TokenSpan& span, const char* part, const std::string& path, int64_t context,
                    const char* more_cure = "") {
  if (span.numel >= static_cast<uint64_t>(context) + 2) return;
  ddh::fail(DDH_INVALID_ARGUMENT, "'", path, "' is too short: its ", part, " part has ", span.numel,
            " tokens, but model.context=", context, " needs at least ", context + 2,
            "; give a longer file or a smaller model.context", more_cure);
}

std::unique_ptr<Bpe> tokenizer(const ddh::Host& host) {
  const std::string folder = host.text("model.tokenizer");
  return folder.empty() ? nullptr : std::make_unique<Bpe>(folder);
}

// The last place at or before `at` where a character of UTF-8 begins.
uint64_t begin_of_character(std::string_view text, uint64_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

uint64_t train_numel(uint64_t numel, double val_fraction) {
  return static_cast<uint64_t>((1 - val_fraction) * static_cast<double>(numel));
}

}  // namespace

// A read-only file mapping of uint16 tokens.
struct Tokens::Mapping {
  explicit Mapping(const std::string& path) : file(path, kDataFile) {
    const uint64_t bytes = file.bytes().size();
    if (bytes == 0 || bytes % sizeof(uint16_t) != 0)
      ddh::fail(DDH_DATA_LOSS, "token file '", path, "' has ", bytes,
                " bytes; it must hold uint16 tokens, 2 bytes each");
  }
  [[nodiscard]] TokenSpan span() const {
    return {reinterpret_cast<const uint16_t*>(file.bytes().data()), file.bytes().size() / sizeof(uint16_t), ""};
  }
  const ddh::MappedInput file;
};

Tokens::Tokens(const ddh::Host& host, int64_t context) : bpe_(tokenizer(host)) {
  std::string path = host.text("data.path");
  const std::string val_path = host.text("data.val_path");
  if (path.empty()) path = default_text(host);
  const double val_fraction = val_path.empty() ? host.f64("data.val_fraction") : 0;
  const bool is_tokens = is_token_file(path);
  if (!val_path.empty() && is_token_file(val_path) != is_tokens)
    ddh::fail(DDH_INVALID_ARGUMENT, "data.path '", path, "' is ", is_tokens ? "a file of tokens" : "a text",
              ", but data.val_path '", val_path, "' is ", is_tokens ? "a text" : "a file of tokens (.bin)",
              "; give two files of the same kind");
  if (is_tokens) {
    map_tokens(path, val_path, val_fraction);
  } else {
    read_text(path, val_path, val_fraction);
  }
  require_length(train_, "training", path, context);
  if (val_path.empty() && val_.numel > 0)
    require_length(val_, "validation", path, context, ", or set data.val_fraction=0 to train without an evaluation");
  if (!val_path.empty()) require_length(val_, "validation", val_path, context);
}

Tokens::~Tokens() = default;

// As nanoGPT's prepare.py: the text is divided before it is encoded.
void Tokens::read_text(const std::string& path, const std::string& val_path, double val_fraction) {
  const std::string text = path == kMadeUp ? made_up_text() : ddh::read_input(path, kDataFile);
  if (text.empty()) ddh::fail(DDH_INVALID_ARGUMENT, "data file '", path, "' is empty; give a text");
  const std::string val_text = val_path.empty() ? "" : ddh::read_input(val_path, kDataFile);
  if (bpe_ == nullptr) number_characters(text, val_text);
  vocab_ = bpe_ != nullptr ? bpe_->size() : static_cast<int64_t>(characters_.size());
  const uint64_t cut =
      val_path.empty() ? begin_of_character(text, train_numel(text.size(), val_fraction)) : text.size();
  text_ids_ = ids_of(std::string_view(text).substr(0, cut), path);
  val_text_ids_ = val_path.empty() ? ids_of(std::string_view(text).substr(cut), path) : ids_of(val_text, val_path);
  train_ = {text_ids_.data(), text_ids_.size(), path};
  val_ = {val_text_ids_.data(), val_text_ids_.size(), val_path.empty() ? path : val_path};
}

void Tokens::number_characters(const std::string& text, const std::string& val_text) {
  std::array<bool, 256> occurs{};
  for (const std::string* from : {&text, &val_text})
    for (const char c : *from) occurs[static_cast<unsigned char>(c)] = true;
  for (size_t c = 0; c < occurs.size(); ++c)
    if (occurs[c]) characters_ += static_cast<char>(c);
}

std::vector<uint16_t> Tokens::ids_of(std::string_view text, const std::string& path) const {
  if (bpe_ != nullptr) return bpe_->encode(text, "'" + path + "'");
  std::array<uint16_t, 256> id{};
  for (size_t i = 0; i < characters_.size(); ++i)
    id[static_cast<unsigned char>(characters_[i])] = static_cast<uint16_t>(i);
  std::vector<uint16_t> ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(), [&](char c) { return id[static_cast<unsigned char>(c)]; });
  return ids;
}

void Tokens::map_tokens(const std::string& path, const std::string& val_path, double val_fraction) {
  mappings_.push_back(std::make_unique<Mapping>(path));
  const TokenSpan all = mappings_.back()->span();
  const uint64_t cut = train_numel(all.numel, val_fraction);
  train_ = {all.ids, cut, path};
  val_ = {all.ids + cut, all.numel - cut, path};
  if (!val_path.empty()) {
    mappings_.push_back(std::make_unique<Mapping>(val_path));
    val_ = mappings_.back()->span();
    val_.file = val_path;
  }
  vocab_ = kTokenFileVocab;
}

std::string Tokens::meaning_of_ids() const {
  if (!mappings_.empty()) return "";
  if (bpe_ == nullptr) return ddh::str(characters_.size(), " characters: ", characters_);
  std::string text = ddh::str(bpe_->size(), " tokens: ");
  for (const std::string& token : bpe_->tokens()) (text += token) += '\0';
  return text;
}

int64_t Tokens::start() const {
  if (bpe_ != nullptr) {
    const std::vector<std::string>& tokens = bpe_->tokens();
    for (const char* const name : {"<|endoftext|>", "\n"})
      if (const auto at = std::find(tokens.begin(), tokens.end(), name); at != tokens.end()) return at - tokens.begin();
    return 0;
  }
  const size_t at = characters_.find('\n');
  return at == std::string::npos ? 0 : static_cast<int64_t>(at);
}

std::vector<int64_t> Tokens::encode(const std::string& text) const {
  std::vector<int64_t> ids;
  if (bpe_ != nullptr) {
    const std::vector<uint16_t> tokens = bpe_->encode(text, "run.sample_prompt");
    return {tokens.begin(), tokens.end()};
  }
  if (characters_.empty()) {
    std::istringstream in(text);
    for (int64_t id = 0; in >> id;) ids.push_back(id);
    return ids;
  }
  for (const char c : text) {
    const size_t at = characters_.find(c);
    if (at == std::string::npos)
      ddh::fail(DDH_INVALID_ARGUMENT, "run.sample_prompt holds '", text,
                "', which has a character that is not in data.path; ",
                "the model only knows the characters of its training text");
    ids.push_back(static_cast<int64_t>(at));
  }
  return ids;
}

std::string Tokens::decode(const std::vector<int64_t>& ids) const {
  if (bpe_ != nullptr) return bpe_->decode(ids);
  std::string text;
  for (const int64_t id : ids) {
    if (characters_.empty()) {
      text += (text.empty() ? "" : " ") + std::to_string(id);
    } else if (static_cast<size_t>(id) < characters_.size()) {
      text += characters_[static_cast<size_t>(id)];
    }
  }
  return text;
}

}  // namespace gpt
