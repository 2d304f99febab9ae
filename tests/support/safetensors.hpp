// SPDX-License-Identifier: Apache-2.0
//
// tests/support/safetensors.hpp: a small reader and writer of safetensors files for tests, apart from the host's own so that
// one checks the other. Everything is read into memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddhost::test {

struct GoldenTensor {
  std::string dtype;  // "F32", "I64", "I32"
  std::vector<int64_t> shape;
  std::vector<char> bytes;

  [[nodiscard]] uint64_t numel() const {
    uint64_t n = 1;
    for (const int64_t d : shape) n *= static_cast<uint64_t>(d);
    return n;
  }
  [[nodiscard]] std::vector<float> f32() const { return as<float>("F32"); }
  [[nodiscard]] std::vector<int64_t> i64() const { return as<int64_t>("I64"); }

 private:
  template <class T>
  [[nodiscard]] std::vector<T> as(const char* wanted) const {
    if (dtype != wanted || bytes.size() != numel() * sizeof(T)) throw std::runtime_error("tensor is no " + dtype);
    std::vector<T> out(numel());
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
};

struct GoldenFile {
  std::map<std::string, GoldenTensor> tensors;
  std::map<std::string, nlohmann::json> metadata;  // the JSON inside each string, or the string

  [[nodiscard]] const GoldenTensor& at(const std::string& name) const {
    const auto it = tensors.find(name);
    if (it == tensors.end()) throw std::runtime_error("no tensor '" + name + "' in the file");
    return it->second;
  }
};

inline GoldenFile read_safetensors(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  uint64_t header_bytes = 0;
  in.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  if (!in || header_bytes > (uint64_t{1} << 30)) throw std::runtime_error("'" + path + "' is no safetensors file");
  std::string header(header_bytes, '\0');
  in.read(header.data(), static_cast<std::streamsize>(header_bytes));
  GoldenFile file;
  const nlohmann::json items = nlohmann::json::parse(header);
  for (const auto& [name, item] : items.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : item.items()) {
        const auto text = value.get<std::string>();
        auto parsed = nlohmann::json::parse(text, nullptr, false);
        file.metadata[key] = parsed.is_discarded() ? nlohmann::json(text) : std::move(parsed);
      }
      continue;
    }
    GoldenTensor& tensor = file.tensors[name];
    tensor.dtype = item.at("dtype").get<std::string>();
    tensor.shape = item.at("shape").get<std::vector<int64_t>>();
    const auto begin = item.at("data_offsets").at(0).get<uint64_t>();
    const auto end = item.at("data_offsets").at(1).get<uint64_t>();
    tensor.bytes.resize(end - begin);
    in.seekg(static_cast<std::streamoff>(sizeof header_bytes + header_bytes + begin));
    in.read(tensor.bytes.data(), static_cast<std::streamsize>(tensor.bytes.size()));
    if (!in) throw std::runtime_error("'" + path + "' ends inside tensor '" + name + "'");
  }
  return file;
}

inline void write_safetensors(const std::string& path, const std::map<std::string, GoldenTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t header_bytes = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const auto& [name, tensor] : tensors)
    out.write(tensor.bytes.data(), static_cast<std::streamsize>(tensor.bytes.size()));
  if (!out) throw std::runtime_error("cannot write '" + path + "'");
}

}  // namespace ddhost::test
