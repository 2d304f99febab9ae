// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/chunk_reader.hpp: reads tensors of a checkpoint. Every chunk is compared with its checksum before any of its
// bytes is returned.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/weights/durable.hpp"
#include "engine/weights/manifest.hpp"

namespace ddhost {

class ChunkReader {
 public:
  // `manifest` outlives the object.
  ChunkReader(const std::filesystem::path& folder, const Manifest& manifest);

  // Bytes [begin, begin + bytes) of a tensor of the manifest. Throws, naming file and tensor, if a chunk is damaged.
  void read(const Manifest::Tensor& tensor, uint64_t begin, uint64_t bytes, char* to);
  // Calls body(begin, data, bytes) for each chunk of a tensor.
  template <class Body>
  void for_each_chunk(const Manifest::Tensor& tensor, Body&& body) {
    for (uint64_t c = 0; c < tensor.stored.chunks(); ++c) {
      load(tensor, c);
      body(c * kChunkBytes, static_cast<const char*>(chunk_.data()), tensor.stored.chunk_bytes(c));
    }
  }
  // Bytes that were read from files so far.
  [[nodiscard]] uint64_t bytes_read() const { return bytes_read_; }

 private:
  void load(const Manifest::Tensor& tensor, uint64_t chunk);

  const std::filesystem::path folder_;
  const Manifest& manifest_;
  std::vector<RangeFile> files_;
  std::vector<char> chunk_;
  const Manifest::Tensor* loaded_ = nullptr;  // neighbouring pieces often need the same chunk
  uint64_t loaded_chunk_ = 0;
  uint64_t bytes_read_ = 0;
};

}  // namespace ddhost
