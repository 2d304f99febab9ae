// SPDX-License-Identifier: Apache-2.0
//
// plan/gpus.hpp: how many NVIDIA GPUs a run may use. It opens no library, so a run on the CPU does not wait for a driver.
#pragma once

namespace ddhost {

// Counts the nodes nvidia0, nvidia1, ... in /dev, or in the folder of DDHOST_GPU_NODES, which tests set. The result is the
// number that CUDA_VISIBLE_DEVICES shows of them.
int gpus_here();

// How many of `present` GPUs the value of CUDA_VISIBLE_DEVICES shows: its entries up to the first that does not exist.
// None, if one of them is there twice. NULL: the variable is not set.
int visible_gpus(int present, const char* list);

}  // namespace ddhost
