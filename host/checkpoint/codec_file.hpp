// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/codec_file.hpp: the state of a run's codec in the folder of a checkpoint. Each file is a safetensors file of fp32
// arrays whose checksums are in its metadata.
//
//   codec.safetensors          arrays that are equal on all ranks
//   codec-rank-3.safetensors   arrays of rank 3
//
// The manifest lists the codec among the run's plugins; its world size says how many files there are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace ddhost {

struct CodecArray {
  std::string name;  // "error/h.0.attn.weight"
  float* data;
  uint64_t numel;
};

inline constexpr const char* kSharedCodecFile = "codec.safetensors";
std::string codec_file_of_rank(int rank);

// The codec that the run of the checkpoint used, "" for none.
std::string codec_of(const Manifest& manifest);

// Writes and syncs a file.
void write_codec_file(const std::filesystem::path& path, const std::vector<CodecArray>& arrays);

// Fills the arrays. Throws DDH_DATA_LOSS if the file is damaged or missing, and DDH_FAILED_PRECONDITION if it has other arrays.
void read_codec_file(const std::filesystem::path& path, const std::vector<CodecArray>& arrays);

// Throws, naming the file, if a file of the codec is missing or damaged.
void verify_codec_files(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace ddhost
