// SPDX-License-Identifier: Apache-2.0
//
// launch/cluster/rendezvous.hpp: how the agents of a run find the first one: a file that only its owner may read, in a folder
// that all hosts share, or the variables DDHOST_RENDEZVOUS (host:port) and DDHOST_TOKEN_FILE.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "launch/cluster/address.hpp"
#include "launch/cluster/proof.hpp"

namespace ddhost {

struct Meeting {
  Endpoint at;
  Token token;
};

// Of the variables; nullopt: they are not set. Error: one without the other, or a file that others may read.
std::optional<Meeting> meeting_of_variables();

// launch.rendezvous, or where that is "", a file in ~/.ddhost that is named after `job`.
std::filesystem::path rendezvous_path(const std::string& option, const std::string& job);

// Announces a meeting while it lives.
class RendezvousFile {
 public:
  // Error: a run that is alive has the file, or it can't be written.
  RendezvousFile(std::filesystem::path path, const Meeting& meeting);
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;
  ~RendezvousFile();

 private:
  const std::filesystem::path path_;
  const int owner_;  // the process: a child does not remove the file
};

// What the file says; nullopt: there is none yet. Error: it belongs to another user, or others may read it.
std::optional<Meeting> read_rendezvous(const std::filesystem::path& path);

}  // namespace ddhost
