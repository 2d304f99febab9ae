// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <filesystem>

namespace cad {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kDummySamples = 100;

}  // namespace

CadData open_data(const ddh::Host& host, const Config& config) {
  const std::string path = host.text("data.path");
  const int64_t wanted = host.i64("data.dummy_samples"), n = wanted > 0 ? wanted : kDummySamples;
  std::error_code ignored;
  if (path.empty()) {
    CadData data = make_up_data(config, n);
    host.log(DDH_LOG_INFO, "no data.path given: ", n, " made-up samples of five shapes, and ", data.eval->size(),
             " for evaluation");
    return data;
  }
  if (wanted > 0 && !fs::exists(path, ignored)) {
    write_data(make_up_data(config, n), config, path);
    host.log(DDH_LOG_INFO, "wrote ", n, " made-up samples into ", path);
  }
  if (!fs::is_directory(path, ignored))
    ddh::fail(DDH_NOT_FOUND, "data.path '", path,
              "' is no folder; give one with train.jsonl (docs/models/cad_mllm.md),",
              " or let data.dummy_samples=N write one there");
  return read_data(host, config, path);
}

}  // namespace cad
