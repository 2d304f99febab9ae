// SPDX-License-Identifier: Apache-2.0
//
// gloo: ranks of several machines that exchange messages by Gloo over TCP, as LibTorch carries it. Of Gloo only send and
// receive are used, because its own sums have no fixed order.
#include <dirent.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <set>

#define USE_C10D_GLOO
#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "../messages/transport.hpp"
#include "ddh/sdk/options.hpp"
#include "engine_thread.hpp"
#include "kv_store.hpp"
#include "source_filter.hpp"

namespace gloo_links {
namespace {

using c10d::ProcessGroupGloo;
using messages::Channel;

// A rank may compute for hours before it sends. The launcher detects ranks that hang.
constexpr std::chrono::hours kNoLimit{24 * 365};
constexpr const char* kLoopback = "127.0.0.1";

// The sockets of this process that listen, or those that do not.
std::set<int> sockets_that(bool listen) {
  std::set<int> sockets;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return sockets;
  while (const dirent* entry = readdir(folder.get())) {
    const int fd = std::atoi(entry->d_name);
    int listens = 0;
    socklen_t length = sizeof listens;
    const bool is_socket = *entry->d_name != '.' && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0;
    if (is_socket && (listens != 0) == listen) sockets.insert(fd);
  }
  return sockets;
}

std::vector<int> new_sockets_that(bool listen, const std::set<int>& before) {
  const std::set<int> after = sockets_that(listen);
  std::vector<int> added;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(added));
  return added;
}

// Of all hosts of the run.
std::vector<std::string> addresses_of(const ddh_comm_init& args) {
  if (args.addresses == nullptr) return {kLoopback};
  return {args.addresses, args.addresses + args.n_nodes};
}

class GlooMessage final : public messages::Message {
 public:
  GlooMessage(int32_t peer, at::Tensor data) : peer_(peer), data_{std::move(data)} {}
  [[nodiscard]] std::vector<at::Tensor>& data() { return data_; }
  void set_work(c10::intrusive_ptr<c10d::Work> work) { work_ = std::move(work); }
  void wait() override {
    try {
      work_->wait();
    } catch (const std::exception& error) {
      throw messages::LinkLost(peer_, first_line(error.what()));
    }
  }

 private:
  // LibTorch adds a backtrace.
  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  const int32_t peer_;
  std::vector<at::Tensor> data_;
  c10::intrusive_ptr<c10d::Work> work_;
};

class GlooLinks final : public messages::Links {
 public:
  GlooLinks(const ddh::Host& host, const ddh_comm_init& args, const ddh::GroupPlace& place, bool only_own_hosts)
      : sent_(static_cast<size_t>(place.size())), received_(static_cast<size_t>(place.size())) {
    const std::chrono::milliseconds timeout(args.timeout_ms);
    const std::set<int> listeners = sockets_that(true), connections = sockets_that(false), threads = threads_now();
    auto options = ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(
        ProcessGroupGloo::createDeviceForHostname(args.address == nullptr ? kLoopback : args.address));
    let_new_threads_give_way(threads);
    if (only_own_hosts)  // before the others learn its address
      for (const int listener : new_sockets_that(true, listeners)) allow_only(listener, addresses_of(args));
    options->threads = 1;  // for Gloo's own collectives, which are not used
    gloo_ = c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<KvStore>(host, place.key, timeout), place.rank,
                                                  place.size(), options);
    gloo_->setTimeout(kNoLimit);
    sockets_ = new_sockets_that(false, connections);
  }

  std::unique_ptr<messages::Message> send(Channel channel, int32_t peer, const std::byte* data,
                                          uint64_t bytes) override {
    auto message = std::make_unique<GlooMessage>(peer, tensor(const_cast<std::byte*>(data), bytes));
    const int tag = tag_of(channel, count(sent_, channel, peer), bytes);
    start(*message, peer, [&] { return gloo_->send(message->data(), peer, tag); });
    return message;
  }
  std::unique_ptr<messages::Message> receive(Channel channel, int32_t peer, std::byte* data, uint64_t bytes) override {
    auto message = std::make_unique<GlooMessage>(peer, tensor(data, bytes));
    const int tag = tag_of(channel, count(received_, channel, peer), bytes);
    start(*message, peer, [&] { return gloo_->recv(message->data(), peer, tag); });
    return message;
  }
  // Gloo has no call for this that another thread may make. It ends the process if its listener is shut down.
  void end() noexcept override {
    for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
  }

 private:
  static at::Tensor tensor(std::byte* data, uint64_t bytes) {
    return at::from_blob(data, {static_cast<int64_t>(bytes)}, at::kByte);
  }
  template <class Start>
  static void start(GlooMessage& message, int32_t peer, const Start& begin) {
    try {
      message.set_work(begin());
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw messages::LinkLost(peer, text.substr(0, text.find('\n')));
    }
  }
  using Counts = std::array<uint32_t, 2>;  // messages of a pair on each channel
  static uint32_t count(std::vector<Counts>& counts, Channel channel, int32_t peer) {
    return counts[static_cast<size_t>(peer)][static_cast<size_t>(channel)]++;
  }
  // Messages of a pair have numbers, so that several may be on their way. Gloo ends the process where a message meets a receive
  // of fewer bytes. So the tag of data holds a hash of the size, and those of different sizes rarely meet.
  static int tag_of(Channel channel, uint32_t number, uint64_t bytes) {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 / the golden ratio
    const uint64_t size = channel == Channel::kData ? bytes * kGolden >> 42 : 0;
    return static_cast<int>(static_cast<uint32_t>(channel) << 30 | (number & 0xFF) << 22 | static_cast<uint32_t>(size));
  }

  c10::intrusive_ptr<ProcessGroupGloo> gloo_;
  std::vector<Counts> sent_, received_;  // to and from each rank
  std::vector<int> sockets_;             // connections of Gloo, which closes them
};

class Gloo final : public messages::Transport {
 public:
  using Transport::Transport;

 private:
  std::unique_ptr<messages::Links> connect(const ddh_comm_init& args, const ddh::GroupPlace& place) override {
    try {
      return std::make_unique<GlooLinks>(host, args, place, options.flag("only_own_hosts"));
    } catch (const ddh::Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      ddh::fail(DDH_UNAVAILABLE, "gloo can't connect rank ", args.rank, " with the others of group '", place.name,
                "': ", text.substr(0, text.find('\n')));
    }
  }
};

constexpr ddh::Option kOptions[] = {
    {"only_own_hosts", "boolean", "true", "",
     "let only the addresses of the run's hosts connect; false where a host has several addresses"}};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_KV_IFACE, nullptr};
// Memory is counted where the host gives the service.
constexpr const char* kWants[] = {DDH_CONFIG_IFACE, DDH_LOG_IFACE, DDH_METRICS_IFACE, DDH_ALLOC_IFACE, nullptr};

}  // namespace
}  // namespace gloo_links

DDH_CXX_PLUGIN(gloo_links::Gloo, comm, "gloo", "0.1.0",
               "ranks are processes of one or more hosts, linked by TCP (Gloo)", ddh::kSchemaOf<gloo_links::kOptions>,
               gloo_links::kNeeds,
               /*caps=*/0, .wants = gloo_links::kWants);
