// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "nccl/communicator.hpp"

namespace standin {
namespace {

class Server {
 public:
  void add(ncclComm* comm) {
    const std::lock_guard lock(mutex_);
    comms_.push_back(comm);
    if (thread_.joinable()) return;
    CUcontext context = nullptr;
    cuCtxGetCurrent(&context);
    stop_ = false;
    thread_ = std::thread([this, context] { run(context); });
  }
  void remove(ncclComm* comm) {
    std::thread ended;
    {
      const std::lock_guard lock(mutex_);
      std::erase(comms_, comm);
      if (!comms_.empty()) return;
      stop_ = true;
      ended.swap(thread_);
    }
    if (ended.joinable()) ended.join();
  }

 private:
  void run(CUcontext context) {
    cuCtxSetCurrent(context);
    while (!stop_) {
      {
        const std::lock_guard lock(mutex_);
        for (ncclComm* comm : comms_) comm->serve_peers();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::mutex mutex_;
  std::vector<ncclComm*> comms_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
};

Server& server() {
  // Never destroyed: its thread may still run when the process ends.
  static Server& server = *std::unique_ptr<Server>(new Server).release();
  return server;
}

}  // namespace

void serve(ncclComm* comm) { server().add(comm); }
void serve_no_more(ncclComm* comm) { server().remove(comm); }

}  // namespace standin
