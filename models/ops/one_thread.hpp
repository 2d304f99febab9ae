// SPDX-License-Identifier: Apache-2.0
//
// ops/one_thread.hpp: restricts the matrix libraries to the calling thread. They read the number of threads when they
// plan a product, also in a parallel region, and choose kernels and divisions by it.
#pragma once

#include <omp.h>

extern "C" {
// MKL's, if LibTorch has MKL.
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int n);
}

namespace ops {

// During its lifetime MKL uses one thread; LibTorch's own loops use all.
class OneMklThread {
 public:
  OneMklThread() : before_(MKL_Set_Num_Threads_Local != nullptr ? MKL_Set_Num_Threads_Local(1) : 0) {}
  OneMklThread(const OneMklThread&) = delete;
  OneMklThread& operator=(const OneMklThread&) = delete;
  ~OneMklThread() {
    if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(before_);
  }

 private:
  const int before_;  // 0: MKL's default
};

// Every library does.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  const OneMklThread mkl_;
  const int before_;
};

}  // namespace ops
