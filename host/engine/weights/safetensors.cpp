// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr uint64_t kAlignment = 8;  // of the data section, as the format asks

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

SafetensorsFile::SafetensorsFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    ddh::fail(DDH_NOT_FOUND, "cannot open '", path, "': ", std::strerror(errno), "; give an existing safetensors file");
  struct stat info {};
  const bool known = fstat(fd, &info) == 0;
  bytes_ = known ? static_cast<uint64_t>(info.st_size) : 0;
  if (bytes_ >= sizeof(uint64_t)) base_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (base_ == nullptr || base_ == MAP_FAILED) {
    base_ = nullptr;
    ddh::fail(DDH_DATA_LOSS, "'", path, "' is not a safetensors file: it has ", bytes_, " bytes");
  }
  try {
    parse_header(path);
  } catch (const nlohmann::json::exception& e) {
    munmap(base_, bytes_);
    ddh::fail(DDH_DATA_LOSS, "'", path, "' has a damaged safetensors header: ", e.what());
  } catch (...) {
    munmap(base_, bytes_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { munmap(base_, bytes_); }

void SafetensorsFile::parse_header(const std::string& path) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, base_, sizeof header_bytes);
  if (header_bytes > bytes_ - sizeof header_bytes) {
    ddh::fail(DDH_DATA_LOSS, "'", path, "' is not a safetensors file, or is cut short: its header would have ",
              header_bytes, " bytes");
  }
  const char* const text = static_cast<const char*>(base_) + sizeof header_bytes;
  const char* const data = text + header_bytes;
  const uint64_t data_bytes = bytes_ - sizeof header_bytes - header_bytes;
  const nlohmann::json header = nlohmann::json::parse(text, text + header_bytes);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    Tensor t{safetensors_dtype(entry.at("dtype")), entry.at("shape"), nullptr, 0};
    const uint64_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
    const uint64_t want = numel_of(t.shape) * ddh_dtype_bytes(t.dtype);
    if (begin > end || end > data_bytes || (t.dtype != 0 && end - begin != want)) {
      ddh::fail(DDH_DATA_LOSS, "tensor '", name, "' of '", path,
                "' does not fit in the file; it is damaged or cut short");
    }
    t.data = data + begin;
    t.bytes = end - begin;
    tensors_.emplace(name, std::move(t));
  }
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

}  // namespace ddhost
