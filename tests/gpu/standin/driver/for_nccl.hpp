// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/driver/for_nccl.hpp: what the stand-in for NCCL uses of the stand-in for the driver, besides libcuda's
// functions.
#pragma once

#include <cuda.h>

#include <cstdint>

extern "C" {
// The GPU of this thread's context; -1: none.
int ddhost_standin_device_now();
// Called by work on a stream: the memory that work on a GPU finds at [address, address + bytes); nullptr: it is in no
// block.
void* ddhost_standin_reach(int device, uint64_t address, uint64_t bytes);
// Runs the work that an event stands for, as a GPU does by itself: this is no wait of the host.
void ddhost_standin_complete(CUevent event);
// Prints a sentence, and every later call of the driver fails.
void ddhost_standin_fault(const char* sentence);
}
