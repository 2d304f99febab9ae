// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/chunk_reader.hpp: reads tensors of a checkpoint. Every chunk is compared with its checksum before any of its
// bytes is returned.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "engine/weights/direct_file.hpp"
#include "engine/weights/manifest.hpp"

namespace ddhost {

class ChunkReader {
 public:
  // `manifest` outlives the object.
  ChunkReader(const std::filesystem::path& folder, const Manifest& manifest);

  // Bytes [begin, begin + bytes) of a tensor of the manifest. Throws, naming file and tensor, if a chunk is damaged.
  void read(const Manifest::Tensor& tensor, uint64_t begin, uint64_t bytes, char* to);
  // The same in parts: calls body(at, data, n) for bytes [at, at + n) of the tensor. No part crosses the end of a chunk.
  template <class Body>
  void for_each_part(const Manifest::Tensor& tensor, uint64_t begin, uint64_t bytes, Body&& body) {
    for (uint64_t at = begin, end = begin + bytes; at < end;) {
      const uint64_t chunk = at / kChunkBytes, inside = at % kChunkBytes;
      const uint64_t n = std::min(tensor.stored.chunk_bytes(chunk) - inside, end - at);
      body(at, chunk_of(tensor, chunk, (end - 1) / kChunkBytes) + inside, n);
      at += n;
    }
  }
  // Calls body(begin, data, bytes) for each chunk of a tensor.
  template <class Body>
  void for_each_chunk(const Manifest::Tensor& tensor, Body&& body) {
    for_each_part(tensor, 0, tensor.stored.bytes, body);
  }
  // Bytes that were read from files so far.
  [[nodiscard]] uint64_t bytes_read() const { return bytes_read_; }

 private:
  static constexpr uint64_t kWindowChunks = 8;  // of one read
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  const char* chunk_of(const Manifest::Tensor& tensor, uint64_t chunk, uint64_t last_needed);
  void load(const Manifest::Tensor& tensor, uint64_t first, uint64_t end);

  const std::filesystem::path folder_;
  const Manifest& manifest_;
  std::vector<DirectFile> files_;
  const std::unique_ptr<char, Free> buffer_;
  // Neighbouring pieces often need the same chunk.
  const Manifest::Tensor* loaded_ = nullptr;
  uint64_t first_chunk_ = 0, end_chunk_ = 0;
  const char* chunks_ = nullptr;  // in the buffer
  uint64_t bytes_read_ = 0;
};

}  // namespace ddhost
