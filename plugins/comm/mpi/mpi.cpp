// SPDX-License-Identifier: Apache-2.0
//
// mpi: ranks that exchange messages by MPI (3.1). Each rank is the child of one task of an MPI launcher, and calls MPI_Init in
// its place. Of MPI only messages are used, because its own sums have no fixed order.
#include <optional>

#include "../messages/transport.hpp"
#include "ddh/sdk/options.hpp"
#include "links.hpp"

namespace mpi_transport {
namespace {

class Mpi final : public messages::Transport {
 public:
  using Transport::Transport;

  void init(const ddh_comm_init& args) override {
    require_one_start();
    try {
      session_.emplace(args);
    } catch (const ddh::Error&) {
      throw;
    } catch (const std::exception& error) {
      ddh::fail(DDH_UNAVAILABLE, "MPI can't start in rank ", args.rank, " (", error.what(),
                "); see what it printed above, or use --comm gloo");
    }
    Transport::init(args);
  }
  void finalize() override {
    Transport::finalize();
    session_->end();
  }

 private:
  // The rank that starts again would be the same process for the MPI launcher, which waits for the first to come back.
  void require_one_start() {
    const int64_t restarts = host.i64("launch.max_restarts");
    if (restarts != 0)
      ddh::fail(
          DDH_FAILED_PRECONDITION, "launch.max_restarts=", restarts,
          " is not possible with MPI, which starts once in a task; leave launch.max_restarts out and start the run "
          "again with --resume auto, or use --comm gloo");
  }
  // Messages of all groups go through MPI_COMM_WORLD, each with its group's number. A communicator would need a call of all
  // members that waits inside MPI, where no wait can be ended.
  std::unique_ptr<messages::Links> connect(const ddh_comm_init& args, const ddh::GroupPlace& place) override {
    int tag = 0;
    uint64_t bytes = sizeof tag;
    if (place.rank == 0) {
      tag = session_->next_tag();
      ddh::call(host.kv->set, host.h, place.key.c_str(), &tag, bytes);
    } else {
      ddh::call(host.kv->get, host.h, place.key.c_str(), &tag, &bytes, args.timeout_ms);
    }
    return std::make_unique<MpiLinks>(
        *session_, MpiLinks::Settings{tag, static_cast<uint64_t>(options.i64("message_bytes")), place.ranks,
                                      [this](int32_t rank) { return has_given_up(rank); }});
  }

  std::optional<Session> session_;
};

constexpr ddh::Option kOptions[] = {
    {"message_bytes", "integer", "1073741824", R"("minimum": 1024, "maximum": 1073741824)",
     "bytes of one message of data; more data go in several messages, because MPI counts bytes in 31 bits"}};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_KV_IFACE, nullptr};
// Memory is counted where the host gives the service.
constexpr const char* kWants[] = {DDH_CONFIG_IFACE, DDH_LOG_IFACE, DDH_METRICS_IFACE, DDH_ALLOC_IFACE, nullptr};

}  // namespace
}  // namespace mpi_transport

DDH_CXX_PLUGIN(mpi_transport::Mpi, comm, "mpi", "0.1.0", "ranks are tasks of an MPI launcher, one each, linked by MPI",
               ddh::kSchemaOf<mpi_transport::kOptions>, mpi_transport::kNeeds,
               /*caps=*/0, .wants = mpi_transport::kWants);
