// SPDX-License-Identifier: Apache-2.0
//
// ops/model_products.hpp: the compute dtype of a model, and the library of its matrix products as the option model.matmul
// chooses it.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>

#include "choice.hpp"
#include "ddh/sdk/options.hpp"
#include "ddh/sdk/plugin.hpp"
#include "ddh/sdk/torch/device.hpp"
#include "products.hpp"

namespace ops {

// The dtype of precision.compute. `model`: its name for the error if the dtype is not supported.
at::ScalarType compute_type(const ddh::Host& host, const char* model);

inline constexpr ddh::Option kMatmulOption = {
    .name = "matmul",
    .type = "string",
    .default_value = R"("auto")",
    .rules = R"("enum": ["auto", "measure", "onednn", "onednn_gemm", "aten"], "x-affects": "numerics")",
    .description =
        "library of matrix products; auto: by processor and size; measure: as auto, and prints the time of each",
};

class DDH_HIDDEN ModelProducts {
 public:
  ModelProducts(const ddh::Host& host, const ddh::TorchDevice& device, const char* model, at::ScalarType compute);

  // Called in the model's prepare. `shape`: the widest layer, which decides for all. Rank 0 chooses for all ranks, because
  // their processors may differ. At most 128 rows are measured.
  void settle(LinearShape shape);
  Products& operator*() { return *products_; }

 private:
  void choose(const std::string& name);
  void log_measurement(const LinearShape& shape) const;

  const ddh::Host& host_;
  const ddh::TorchDevice& device_;
  const std::string model_;
  const at::ScalarType compute_;
  std::unique_ptr<Products> products_;
};

}  // namespace ops
