// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/chunk_reader.hpp: reads tensors of a checkpoint. Every chunk is compared with its checksum before any of its
// bytes is returned.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/direct_file.hpp"
#include "checkpoint/manifest.hpp"

namespace ddhost {

class ChunkReader {
 public:
  // `usable`: values from which no run can go on (usable_values.hpp) are an error, as damage is.
  enum class Values { any, usable };
  // `manifest` outlives the object.
  ChunkReader(const std::filesystem::path& folder, const Manifest& manifest, Values values = Values::any);

  // Bytes [begin, begin + bytes) of a tensor of the manifest. Throws, naming file and tensor, if a chunk is damaged.
  void read(const Manifest::Tensor& tensor, uint64_t begin, uint64_t bytes, char* to);
  // The same in parts of at most kPartBytes: calls body(at, data, n) for bytes [at, at + n) of the tensor.
  template <class Body>
  void for_each_part(const Manifest::Tensor& tensor, uint64_t begin, uint64_t bytes, Body&& body) {
    for (uint64_t at = begin, end = begin + bytes; at < end;) {
      const Loaded loaded = loaded_at(tensor, at, end);
      const uint64_t n = std::min(loaded.bytes, end - at);
      body(at, loaded.data, n);
      at += n;
    }
  }
  // Calls body(begin, data, bytes) for each chunk of a tensor.
  template <class Body>
  void for_each_chunk(const Manifest::Tensor& tensor, Body&& body) {
    for_each_part(tensor, 0, tensor.stored.bytes, [&](uint64_t begin, const char* data, uint64_t bytes) {
      for (uint64_t done = 0; done < bytes; done += kChunkBytes)
        body(begin + done, data + done, std::min(kChunkBytes, bytes - done));
    });
  }
  // Bytes that were read from files so far.
  [[nodiscard]] uint64_t bytes_read() const { return bytes_read_; }

 private:
  static constexpr uint64_t kPartChunks = 8, kPartBytes = kPartChunks * kChunkBytes;  // of one read
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  struct Loaded {
    const char* data;
    uint64_t bytes;  // from there on
  };
  Loaded loaded_at(const Manifest::Tensor& tensor, uint64_t at, uint64_t end);
  void check_chunk(const Manifest::Tensor& tensor, uint64_t chunk, const char* data) const;
  void load(const Manifest::Tensor& tensor, uint64_t first, uint64_t end);

  const std::filesystem::path folder_;
  const Manifest& manifest_;
  const Values values_;
  std::vector<DirectFile> files_;
  const std::unique_ptr<char, Free> buffer_;
  // Neighbouring pieces often need the same chunk.
  const Manifest::Tensor* tensor_ = nullptr;
  uint64_t begin_ = 0, end_ = 0;  // bytes of the tensor
  const char* bytes_ = nullptr;   // in the buffer
  uint64_t bytes_read_ = 0;
};

}  // namespace ddhost
