// SPDX-License-Identifier: Apache-2.0
#include "model_products.hpp"

#include <algorithm>

#include "matrix.hpp"
#include "products_torch.hpp"

namespace ops {
namespace {

constexpr int64_t kMeasuredRows = 128;  // at most, of the product that is measured for all layers

}  // namespace

at::ScalarType compute_type(const ddh::Host& host, const char* model) {
  const std::string name = host.text("precision.compute");
  if (name == "fp32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  ddh::fail(DDH_UNIMPLEMENTED, model, " computes in fp32, bf16 or fp16, not in precision.compute=", name,
            "; set one of them");
}

ModelProducts::ModelProducts(const ddh::Host& host, const ddh::TorchDevice& device, const char* model,
                             at::ScalarType compute)
    : host_(host), device_(device), model_(model), compute_(compute) {
  const std::string wish = host_.text("model.matmul");
  if (device_.by_operators()) {
    if (wish != "auto")
      ddh::fail(DDH_FAILED_PRECONDITION, "model.matmul=", wish, " is for processors, but ", model_, " computes on ",
                device_.text(), " by LibTorch's operators; leave it out");
    products_ = make_torch_products(dtype_of(compute_), device_.where());
  } else {
    choose(wish);
  }
}

void ModelProducts::settle(LinearShape shape) {
  shape.rows = std::min(shape.rows, kMeasuredRows);
  const std::string wish = host_.text("model.matmul");
  const bool measures = wish == "measure";
  int32_t rank = 0;
  ddh::call(host_.comm->group_info, host_.h, nullptr, &rank, nullptr, nullptr);
  if (device_.by_operators()) {
    if (rank == 0) host_.log(DDH_LOG_INFO, "LibTorch's operators on ", device_.text(), "; no TF32");
    return;
  }
  std::string mine = wish, reason;
  if (measures || wish == "auto") {
    mine = chosen_products(shape, dtype_of(compute_), this_processor());
    reason = ddh::str(": model.matmul=", wish, ", by the table for ", this_processor().text(), ", ",
                      host_.text("precision.compute"), " and layers of ", shape.in, " x ", shape.out,
                      measures ? "" : "; model.matmul=measure prints times");
    if (dtype_of(compute_) == DDH_BF16 && !this_processor().bf16 && mine != "aten")
      reason +=
          "; it uses no bf16 instructions, so each product converts its operands to fp32, and a step takes as long as "
          "in "
          "fp32 or some percent longer";
    if (measures && rank == 0) log_measurement(shape);
    const char* agreed = nullptr;
    ddh::call(host_.config->agree, host_.h, "model.matmul", mine.c_str(), &agreed);
    mine = agreed;
    choose(mine);
  }
  if (rank == 0) host_.log(DDH_LOG_INFO, "matrix products by ", mine, reason);
}

void ModelProducts::choose(const std::string& name) {
  const bool later = name == "auto" || name == "measure";  // in settle
  products_ = make_products(later ? "aten" : name, dtype_of(compute_));
  if (products_ == nullptr) {
    ddh::fail(DDH_FAILED_PRECONDITION, "model.matmul=", name, ": ", model_,
              " was built without oneDNN; install libdnnl-dev and build again, or set model.matmul=aten");
  }
}

void ModelProducts::log_measurement(const LinearShape& shape) const {
  const std::vector<Measured> measured = measure_products(shape, dtype_of(compute_));
  std::string times;
  const Measured* quickest = measured.data();
  for (const Measured& library : measured) {
    times += ddh::str(times.empty() ? "" : ", ", library.name, " ", library.milliseconds, " ms");
    if (library.milliseconds < quickest->milliseconds) quickest = &library;
  }
  host_.log(DDH_LOG_INFO, "measured forward and gradients of ", shape.rows, " rows, ", shape.in, " x ", shape.out, ": ",
            times, "; the quickest is ", quickest->name);
}

}  // namespace ops
