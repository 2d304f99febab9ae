// SPDX-License-Identifier: Apache-2.0
//
// A pickle, as the imports of torch's files read it.
#include "fuzz/fuzz.hpp"
#include "pickle_tree.hpp"

using namespace ddhost;
using namespace torch_format;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::may_refuse([&] { static_cast<void>(PickleTree(fuzz::text_of(data, bytes), "fuzz.pkl").root().find("model")); });
  return 0;
}
