// SPDX-License-Identifier: Apache-2.0
//
// bad_loading: a library that misbehaves while it is loaded; BAD_LOADING in the environment says how.
#include "support/misbehave.hpp"

namespace {

struct AtLoad {
  AtLoad() {
    const char* const how = std::getenv("BAD_LOADING");
    if (how != nullptr) ddhost::test::misbehave(how, nullptr);
  }
};
const AtLoad at_load;

class Nothing final : public ddh::Instance {
 public:
  using Instance::Instance;
  [[nodiscard]] const void* interface(std::string_view) const override { return nullptr; }
};

}  // namespace

DDH_CXX_PLUGIN(Nothing, strategy, "bad_loading", "0.1.0", "mistakes on purpose, for tests", nullptr, nullptr,
               DDH_CAP_IN_PROCESS);
