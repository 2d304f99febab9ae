// SPDX-License-Identifier: Apache-2.0
//
// tests/support/misbehave.hpp: what any call of a plugin can do wrong, for plugins that do it on purpose (bad_*.cpp). Their
// options say what (fault), in which call (at), on which rank, and in which step.
#pragma once

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "ddh/sdk/plugin.hpp"

namespace ddhost::test {

// Uses up the thread's stack.
inline int overflow_stack(volatile char* from) {
  volatile char block[4096];
  block[0] = *from;
  return overflow_stack(block) + block[0];
}

// Does what `fault` names, or nothing.
inline ddh_rc misbehave(const std::string& fault, ddh_err* err) {
  if (fault == "exit") std::exit(0);
  if (fault == "quick_exit") ::_exit(0);
  if (fault == "segv") ::raise(SIGSEGV);
  if (fault == "abort") std::abort();
  if (fault == "overflow") {
    volatile char start = 1;
    return overflow_stack(&start);
  }
  if (fault == "stop") ::raise(SIGSTOP);
  while (fault == "hang") ::pause();
  std::atomic<int> turns{0};
  while (fault == "loop") ++turns;
  if (fault == "silent") return DDH_INTERNAL;
  if (fault == "unknown_code") return 77;
  if (fault == "unending") {  // no NUL, no length
    std::memset(err->msg, 'x', err->msg_cap);
    return err->code = DDH_INTERNAL;
  }
  if (fault == "long") {
    std::memcpy(err->msg, "short", 6);
    err->msg_len = UINT32_MAX;
    return err->code = DDH_INTERNAL;
  }
  if (fault == "binary") {
    std::memcpy(err->msg, "a\xFF\xC3(\x01z", 7);
    err->msg_len = 6;
    return err->code = DDH_INTERNAL;
  }
  return DDH_OK;
}

// The options of a plugin's section, as the schema below has them.
struct Fault {
  explicit Fault(const ddh::Host& host, const std::string& section)
      : what(host.text((section + ".fault").c_str())),
        at(host.text((section + ".at").c_str())),
        rank(host.i64((section + ".rank").c_str())),
        step(host.i64((section + ".step").c_str())) {}
  // In `call`, where the plugin knows its rank and the step.
  [[nodiscard]] bool hits(const char* call, int64_t my_rank, int64_t my_step) const {
    return at == call && (rank < 0 || rank == my_rank) && (step <= 0 || step == my_step);
  }
  std::string what, at;
  int64_t rank, step;
};

#define DDH_FAULT_SCHEMA                                                                                     \
  R"("fault": {"type": "string", "default": "none", "description": "what goes wrong"},)"                     \
  R"("at": {"type": "string", "default": "", "description": "in this call"},)"                               \
  R"("rank": {"type": "integer", "default": -1, "minimum": -1, "description": "on this rank; -1: on all"},)" \
  R"("step": {"type": "integer", "default": 0, "minimum": 0, "description": "in this step; 0: always"})"

}  // namespace ddhost::test
