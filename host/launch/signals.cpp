// SPDX-License-Identifier: Apache-2.0
#include "launch/signals.hpp"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

SignalWatch::SignalWatch() : before_{} {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    if (signal == SIGCHLD || now.sa_handler != SIG_IGN) sigaddset(&watched, signal);  // nohup stays in effect
  }
  fd_ = Fd(::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  if (fd_.get() < 0) ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't create a signal descriptor: ", std::strerror(errno));
  ::pthread_sigmask(SIG_BLOCK, &watched, &before_);
}

SignalWatch::~SignalWatch() {
  static_cast<void>(take());  // a second Ctrl-C that came late must not end the process now
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<SignalWatch::Signal> SignalWatch::take() const {
  std::vector<Signal> signals;
  signalfd_siginfo info;
  while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    signals.push_back({static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid), info.ssi_code == SI_KERNEL});
  return signals;
}

void SignalWatch::leave_to_launcher() {
  fd_.reset();
  for (const int signal : {SIGINT, SIGHUP, SIGUSR1}) ::signal(signal, SIG_IGN);
  struct sigaction hand_on {};
  hand_on.sa_handler = [](int) { ::kill(::getppid(), SIGTERM); };
  hand_on.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &hand_on, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void hand_on_termination() {
  sigset_t termination;
  sigemptyset(&termination);
  sigaddset(&termination, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &termination, nullptr);  // threads inherit it
  pthread_attr_t attributes;
  pthread_t thread{};
  constexpr size_t kStackBytes = 64 << 10;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  const auto wait = [](void*) -> void* {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    for (int signal = 0;;)
      if (::sigwait(&set, &signal) == 0) ::kill(::getppid(), SIGTERM);
  };
  // Without the thread the launcher still gets the signals that are sent to it or to its group.
  static_cast<void>(::pthread_create(&thread, &attributes, wait, nullptr));
  ::pthread_attr_destroy(&attributes);
}

}  // namespace ddhost
