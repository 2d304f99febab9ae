// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/json.hpp"
#include "base/text.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr uint64_t kAlignment = 8;  // of the data section, as the format asks

constexpr uint64_t kMostHeaderBytes = 100'000'000;  // as the reference implementation

// The key of ddh_model_desc.meaning_of_ids in `__metadata__`.
constexpr const char* kMeaningOfIds = "ddhost.meaning_of_ids";

// Every dtype of the format.
struct DtypeBits {
  const char* name;
  uint64_t bits;
};
constexpr std::array<DtypeBits, 20> kBits = {
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8},
     {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16}, {"BF16", 16}, {"I32", 32},
     {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64}, {"U64", 64}}};

struct DtypeName {
  int32_t dtype;
  const char* name;
};
constexpr DtypeName kDtypes[] = {{DDH_F32, "F32"}, {DDH_BF16, "BF16"}, {DDH_F16, "F16"}, {DDH_F64, "F64"},
                                 {DDH_I32, "I32"}, {DDH_I64, "I64"},   {DDH_U8, "U8"},   {DDH_U16, "U16"}};

uint64_t numel_of(const std::vector<int64_t>& shape) {
  uint64_t numel = 1;
  for (const int64_t n : shape) numel *= static_cast<uint64_t>(n);
  return numel;
}

}  // namespace

int32_t safetensors_dtype(const std::string& name) {
  for (const DtypeName& d : kDtypes) {
    if (name == d.name) return d.dtype;
  }
  return 0;
}

const char* safetensors_name(int32_t dtype) {
  for (const DtypeName& d : kDtypes) {
    if (dtype == d.dtype) return d.name;
  }
  ddh::fail(DDH_UNIMPLEMENTED, "dtype ", dtype, " can't be stored in safetensors");
}

namespace {

// Reads the header of one file.
class HeaderReader {
 public:
  HeaderReader(std::string_view bytes, const std::string& what) : bytes_(bytes), what_(what) {}

  std::map<std::string, ddh::FileTensor> read() {
    const std::string_view text = header_text();
    data_ = bytes_.substr(sizeof(uint64_t) + text.size());
    nlohmann::json header;
    try {
      header = read_sorted_json(std::string(text));
    } catch (const JsonError& e) {
      refuse(ddh::str("has a damaged header: ", e.what()));
    }
    if (!header.is_object()) refuse("has a header that is no JSON object");
    std::map<std::string, ddh::FileTensor> out;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__")
        read_metadata(entry);
      else
        out.emplace(name, read_tensor(name, entry));
    }
    check_places();
    return out;
  }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Place {
    uint64_t begin, end;
    std::string name;
    bool operator<(const Place& other) const { return std::tie(begin, end) < std::tie(other.begin, other.end); }
  };

  [[noreturn]] void refuse(const std::string& why) const {
    ddh::fail(DDH_DATA_LOSS, what_, " ", why, "; get the file again");
  }
  [[noreturn]] void refuse(const std::string& tensor, const std::string& why) const {
    refuse("is damaged: its tensor '" + plain_text(tensor, kShownValue) + "' " + why);
  }

  std::string_view header_text() const {
    uint64_t header_bytes = 0;
    if (bytes_.size() < sizeof header_bytes)
      refuse(ddh::str("is not a safetensors file: it has ", bytes_.size(), " bytes"));
    std::memcpy(&header_bytes, bytes_.data(), sizeof header_bytes);
    if (header_bytes > bytes_.size() - sizeof header_bytes)
      refuse(ddh::str("is not a safetensors file, or is cut short: its header would have ", header_bytes, " bytes"));
    if (header_bytes > kMostHeaderBytes)
      refuse(ddh::str("has a header of ", header_bytes, " bytes, which the format limits to ", kMostHeaderBytes));
    return bytes_.substr(sizeof header_bytes, header_bytes);
  }

  void read_metadata(const nlohmann::json& entry) {
    if (!entry.is_object()) refuse("has a __metadata__ that is no JSON object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) refuse("has the __metadata__ '" + plain_text(key, kShownValue) + "', which is no string");
      metadata_[key] = value.get<std::string>();
    }
  }

  // A list of integers that are not negative.
  std::vector<uint64_t> integers(const std::string& name, const nlohmann::json& entry, const char* field) const {
    const auto at = entry.find(field);
    if (at == entry.end() || !at->is_array()) refuse(name, ddh::str("has no list ", field));
    std::vector<uint64_t> out;
    for (const nlohmann::json& number : *at) {
      const bool fits = number.is_number_unsigned() && number.get<uint64_t>() <= INT64_MAX;
      if (!fits)
        refuse(name, ddh::str("has ", plain_text(number.dump(), kShownValue), " in ", field,
                              ", which is no integer from 0 on"));
      out.push_back(number.get<uint64_t>());
    }
    return out;
  }

  ddh::FileTensor read_tensor(const std::string& name, const nlohmann::json& entry) {
    if (!entry.is_object()) refuse(name, "is no JSON object");
    const auto dtype = entry.find("dtype");
    if (dtype == entry.end() || !dtype->is_string()) refuse(name, "has no dtype");
    const auto type = dtype->get<std::string>();
    const auto width = std::find_if(kBits.begin(), kBits.end(), [&](const DtypeBits& d) { return type == d.name; });
    if (width == kBits.end()) refuse(name, "has the dtype '" + plain_text(type, kShownValue) + "', which is unknown");
    ddh::FileTensor t{safetensors_dtype(type), {}, nullptr, 0};
    uint64_t bits = width->bits;
    for (const uint64_t n : integers(name, entry, "shape")) {
      t.shape.push_back(static_cast<int64_t>(n));
      if (__builtin_mul_overflow(bits, n, &bits)) refuse(name, "has a shape of more than 2^64 bits");
    }
    const std::vector<uint64_t> offsets = integers(name, entry, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) refuse(name, "has no begin and end in data_offsets");
    const auto [begin, end] = std::pair(offsets[0], offsets[1]);
    if (end > data_.size())
      refuse(name, ddh::str("ends at byte ", end, " of ", data_.size(), ", so the file is cut short"));
    if (bits % 8 != 0 || bits / 8 != end - begin)
      refuse(name, ddh::str("has ", end - begin, " bytes, but its shape and dtype take ", bits / 8));
    t.data = data_.data() + begin;
    t.bytes = end - begin;
    places_.push_back({begin, end, name});
    return t;
  }

  // Each tensor begins where the one before it ends, and the last one ends with the file.
  void check_places() {
    std::sort(places_.begin(), places_.end());
    uint64_t at = 0;
    for (const Place& place : places_) {
      if (place.begin < at) refuse(place.name, "overlaps another one");
      if (place.begin > at)
        refuse(place.name, ddh::str("has ", place.begin - at, " bytes before it that no tensor has"));
      at = place.end;
    }
    if (at < data_.size()) refuse(ddh::str("has ", data_.size() - at, " bytes after its last tensor"));
  }

  const std::string_view bytes_;
  const std::string& what_;
  std::string_view data_;
  std::vector<Place> places_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace

std::map<std::string, ddh::FileTensor> parse_safetensors(std::string_view bytes, const std::string& what,
                                                         std::map<std::string, std::string>* metadata) {
  HeaderReader reader(bytes, what);
  std::map<std::string, ddh::FileTensor> tensors = reader.read();
  if (metadata != nullptr) *metadata = reader.metadata();
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::string& path) {
  const auto file =
      std::make_shared<ddh::MappedInput>(path, ddh::InputWords{"weights file", "give an existing safetensors file"});
  mapping_ = file;
  std::map<std::string, std::string> metadata;
  tensors_ = parse_safetensors(file->bytes(), "'" + path + "'", &metadata);
  meaning_of_ids_ = metadata[kMeaningOfIds];
}

const SafetensorsFile::Tensor* SafetensorsFile::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

SafetensorsLayout::SafetensorsLayout(const std::vector<Item>& items,
                                     const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json;
  if (!metadata.empty()) json["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const Item& item : items) {
    const uint64_t bytes = numel_of(item.shape) * ddh_dtype_bytes(item.dtype);
    json[item.name] = {
        {"dtype", safetensors_name(item.dtype)}, {"shape", item.shape}, {"data_offsets", {at, at + bytes}}};
    file_offsets.push_back(at);
    at += bytes;
  }
  std::string text = json.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t header_bytes = text.size();
  header.assign(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  header += text;
  for (uint64_t& offset : file_offsets) offset += header.size();
  file_bytes = header.size() + at;
}

std::string meaning_of_ids(const ddh_model_desc& model) {
  return model.meaning_of_ids == nullptr ? "" : model.meaning_of_ids;
}

std::map<std::string, std::string> weights_metadata(const std::string& meaning) {
  std::map<std::string, std::string> out = {{"format", "pt"}};
  if (!meaning.empty()) out[kMeaningOfIds] = meaning;
  return out;
}

std::string warning_of_other_ids(const std::string& file, const std::string& stored, const ddh_model_desc& model) {
  const std::string mine = meaning_of_ids(model);
  if (stored.empty() || mine.empty() || stored == mine) return "";
  return ddh::str(
      "'", file, "' was trained on data whose ids stand for ", plain_text(stored, kShownValue),
      ", but the ids of this run's data stand for ", plain_text(mine, kShownValue),
      ", so its outputs are wrong until it is trained on these data; give data with the same ids, as those ",
      "of its training");
}

}  // namespace ddhost
