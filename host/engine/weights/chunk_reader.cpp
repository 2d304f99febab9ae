// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/chunk_reader.hpp"

#include <algorithm>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

ChunkReader::ChunkReader(const std::filesystem::path& folder, const Manifest& manifest)
    : folder_(folder), manifest_(manifest), chunk_(kChunkBytes) {
  for (const Manifest::File& file : manifest.files) files_.emplace_back(folder / file.name, RangeFile::Mode::read);
}

void ChunkReader::read(const Manifest::Tensor& tensor, uint64_t begin, uint64_t bytes, char* to) {
  for (uint64_t at = begin; at < begin + bytes;) {
    const uint64_t chunk = at / kChunkBytes, inside = at % kChunkBytes;
    const uint64_t n = std::min(tensor.stored.chunk_bytes(chunk) - inside, begin + bytes - at);
    load(tensor, chunk);
    std::copy_n(chunk_.data() + inside, n, to + (at - begin));
    at += n;
  }
}

void ChunkReader::load(const Manifest::Tensor& tensor, uint64_t chunk) {
  if (loaded_ == &tensor && loaded_chunk_ == chunk) return;
  const StoredTensor& t = tensor.stored;
  const uint64_t begin = chunk * kChunkBytes, bytes = t.chunk_bytes(chunk);
  loaded_ = nullptr;
  files_[t.file].read_at(t.offset + begin, chunk_.data(), bytes);
  bytes_read_ += bytes;
  if (sum_of(chunk_.data(), bytes) != tensor.sums[chunk])
    ddh::fail(DDH_DATA_LOSS, "tensor '", t.name, "' in '", (folder_ / manifest_.files[t.file].name).string(),
              "' is damaged in its bytes ", begin, " to ", begin + bytes);
  loaded_ = &tensor;
  loaded_chunk_ = chunk;
}

}  // namespace ddhost
