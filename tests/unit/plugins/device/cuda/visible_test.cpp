// SPDX-License-Identifier: Apache-2.0
//
// The number of visible GPUs.
#include "visible.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/setting.hpp"

using namespace cuda;
using namespace ddhost::test;

TEST_CASE("CUDA_VISIBLE_DEVICES limits the number of GPUs to its entries that exist", "[cuda]") {
  CHECK(visible_gpus(4, nullptr) == 4);
  CHECK(visible_gpus(4, "") == 0);
  CHECK(visible_gpus(4, "2") == 1);
  CHECK(visible_gpus(4, "3,1,0") == 3);
  CHECK(visible_gpus(4, "1,4,2") == 1);  // entries after one that does not exist do not count
  CHECK(visible_gpus(4, "-1") == 0);
  CHECK(visible_gpus(4, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6") == 1);
  CHECK(visible_gpus(1, "GPU-8932f937,GPU-0c5d1a2b") == 1);
  CHECK(visible_gpus(0, "0") == 0);
}

TEST_CASE("CUDA_VISIBLE_DEVICES shows no GPU if it names one twice before an entry that does not exist", "[cuda]") {
  CHECK(visible_gpus(4, "3,3") == 0);
  CHECK(visible_gpus(4, "0,1,03,3") == 0);
  CHECK(visible_gpus(2, "0,1,0") == 0);
  CHECK(visible_gpus(4, "GPU-8932f937,GPU-8932f937") == 0);
  CHECK(visible_gpus(4, "0,4,0") == 1);
}

TEST_CASE("the device nodes of NVIDIA's driver are counted", "[cuda]") {
  const TempFolder nodes;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia", "null"})
    std::ofstream(nodes.file(name)) << "";
  const Setting folder("DDHOST_GPU_NODES", nodes.path().string());
  CHECK(gpu_nodes() == 3);
  const Setting none("DDHOST_GPU_NODES", nodes.file("none"));
  CHECK(gpu_nodes() == 0);
}
