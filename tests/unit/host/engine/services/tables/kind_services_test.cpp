// SPDX-License-Identifier: Apache-2.0
//
// Which services a plugin gets: those of its kind that its descriptor lists. A request for another one is logged once.
#include "engine/services/tables/kind_services.hpp"

#include <spdlog/sinks/ostream_sink.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "fixtures/harness/host_services.hpp"

using namespace ddhost;
using Catch::Contains;

namespace {

constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};
constexpr const char* kWants[] = {DDH_COMM_IFACE, DDH_CODECS_IFACE, DDH_ALLOC_IFACE, nullptr};

// A plugin of the kind, with these lists.
class Asking {
 public:
  explicit Asking(int32_t kind, const char* word) {
    desc_.struct_size = sizeof desc_;
    desc_.kind = kind;
    desc_.needs = kNeeds;
    desc_.wants = kWants;
    base_.services.log =
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_));
    seat_ = std::make_unique<PluginSeat>(base_.services, std::string(word) + ":mine", "", &desc_);
  }
  [[nodiscard]] const void* ask(const char* id) const { return seat_->host().get_interface(seat_->host().h, id); }
  [[nodiscard]] std::string log() const { return log_.str(); }

 private:
  test::HostServices base_{"strategy:test"};
  ddh_desc desc_{};
  std::ostringstream log_;
  std::unique_ptr<PluginSeat> seat_;
};

}  // namespace

TEST_CASE("a plugin gets what its descriptor lists, and nothing else", "[unit]") {
  const Asking strategy(DDH_KIND_STRATEGY, "strategy");
  CHECK(strategy.ask(DDH_CONFIG_IFACE) == host_interface(DDH_CONFIG_IFACE));
  CHECK(strategy.ask(DDH_COMM_IFACE) == host_interface(DDH_COMM_IFACE));
  CHECK(strategy.ask("ddh.telepathy/1") == nullptr);
  CHECK(strategy.ask(DDH_CODECS_IFACE) == nullptr);  // the run has no codec
  CHECK(strategy.log().empty());
  CHECK(strategy.ask(DDH_WINDOW_IFACE) == nullptr);
  CHECK(strategy.ask(DDH_WINDOW_IFACE) == nullptr);
  const std::string log = strategy.log();
  CHECK_THAT(log,
             Contains("strategy 'mine' asks for the service 'ddh.window/1'") && Contains("neither in `needs` nor"));
  CHECK(std::count(log.begin(), log.end(), '\n') == 1);
}

TEST_CASE("a monitor and an optimizer get no collectives, even if they list them", "[unit]") {
  for (const auto& [kind, word] :
       {std::pair(DDH_KIND_MONITOR, "monitor"), std::pair(DDH_KIND_OPTIMIZER, "optimizer")}) {
    const Asking plugin(kind, word);
    CHECK(plugin.ask(DDH_COMM_IFACE) == nullptr);
    CHECK_THAT(plugin.log(), Contains("plugins of its kind have no such service"));
  }
  const Asking codec(DDH_KIND_CODEC, "codec");
  CHECK(codec.ask(DDH_ALLOC_IFACE) != nullptr);
  CHECK(codec.ask(DDH_COMM_IFACE) == nullptr);
}

TEST_CASE("a monitor can't wait for other ranks in ddh.config", "[unit]") {
  test::HostServices base("monitor:mine");
  const char* chosen = nullptr;
  ddh::ErrorBuffer err;
  const auto& config = base.table<ddh_config_api>(DDH_CONFIG_IFACE);
  CHECK(config.agree(base.h(), "monitor.mine.x", "1", &chosen, err.get()) == DDH_PERMISSION_DENIED);
  CHECK_THAT(err.text(), Contains("rank 0 alone"));
}
