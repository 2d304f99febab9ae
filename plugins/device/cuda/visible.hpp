// SPDX-License-Identifier: Apache-2.0
//
// visible.hpp: how many GPUs a process may use. It opens no library, so a run does not wait for a driver.
#pragma once

namespace cuda {

// The nodes nvidia0, nvidia1, ... in /dev, or in the folder of DDHOST_GPU_NODES, which tests set.
int gpu_nodes();

// How many of `present` GPUs the value of CUDA_VISIBLE_DEVICES shows: its entries up to the first that does not exist.
// None, if one of them is there twice. NULL: the variable is not set.
int visible_gpus(int present, const char* list);

}  // namespace cuda
