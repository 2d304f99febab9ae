// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/prepare.hpp: prepares LibTorch in this process. The constructor of every model on LibTorch calls it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/lgamma.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/round.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>
#include <c10/core/InferenceMode.h>

#include "ddh/sdk/torch/activations.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// LibTorch computes functions of vectors with MKL, which chooses the kernel of a function at its first call. If two
// threads make that call at once, MKL 2024.2 may compute the part of one with a kernel of low accuracy, so that the first
// step of a run has other bits (pytorch/pytorch#188792). Here one thread calls each function before others can.
inline void choose_vector_kernels() {
  using Function = at::Tensor (*)(const at::Tensor&);
  constexpr Function kFunctions[] = {&at::acos,   &at::asin, &at::atan,   &at::ceil,  &at::cos,   &at::cosh,
                                     &at::erf,    &at::erfc, &at::erfinv, &at::exp,   &at::expm1, &at::floor,
                                     &at::lgamma, &at::log,  &at::log10,  &at::log1p, &at::log2,  &at::round,
                                     &at::sin,    &at::sinh, &at::sqrt,   &at::tan,   &at::tanh,  &at::trunc};
  const c10::InferenceMode no_autograd;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::full({64}, 0.5, type);
    for (const Function function : kFunctions) static_cast<void>(function(x));
  }
}

// Further calls in a process have no effect. Threads that call it at the same time return when it is done.
inline void prepare_torch() {
  static const bool is_prepared = [] {
    ActivationAllocator::install();
    choose_vector_kernels();
    return true;
  }();
  static_cast<void>(is_prepared);
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
