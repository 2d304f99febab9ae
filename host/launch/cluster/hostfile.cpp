// SPDX-License-Identifier: Apache-2.0
#include "launch/cluster/hostfile.hpp"

#include <ifaddrs.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/cluster/address.hpp"

namespace ddhost {
namespace {

constexpr size_t kMostHosts = 1024;  // a run has at most 1024 ranks, and each host has one

bool is_plain(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), is_allowed);
}

// [user@]host: ssh must take it for nothing else.
bool is_host(const std::string& name) {
  const size_t at = name.find('@');
  return at == std::string::npos ? is_plain(name) : is_plain(name.substr(0, at)) && is_plain(name.substr(at + 1));
}

int number_or(const std::string& text, int otherwise) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

std::string without_user(const std::string& name) { return name.substr(name.find('@') + 1); }

std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::string part;
  for (std::istringstream in(text); std::getline(in, part, separator);) out.push_back(part);
  return out;
}

// {host: slots}, where no slots means all of them.
std::map<std::string, std::set<int>> parse_choice(const std::string& text, const char* key,
                                                  const std::vector<Host>& hosts) {
  std::map<std::string, std::set<int>> out;
  for (const std::string& entry : parts(text, '@')) {
    const size_t colon = entry.find(':');
    const std::string name = entry.substr(0, colon);
    const auto host =
        std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return without_user(h.name) == name; });
    if (host == hosts.end())
      ddh::fail(DDH_NOT_FOUND, key, " names the host '", plain_text(name, 100), "', which the hostfile does not have");
    std::set<int>& slots = out[name];
    if (colon == std::string::npos) continue;
    for (const std::string& slot : parts(entry.substr(colon + 1), ',')) {
      const int number = number_or(slot, -1);
      if (number < 0 || number >= host->slots)
        ddh::fail(DDH_OUT_OF_RANGE, key, " names slot '", plain_text(slot, 100), "' of host '", name,
                  "', which has slots 0 to ", host->slots - 1);
      slots.insert(number);
    }
  }
  return out;
}

void apply_filters(std::vector<Host>& hosts, const HostChoice& choice) {
  if (!choice.include.empty() && !choice.exclude.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "--include and --exclude are both given; give one of them");
  if (!choice.include.empty()) {
    const auto chosen = parse_choice(choice.include, "--include", hosts);
    std::erase_if(hosts, [&](const Host& host) { return !chosen.contains(without_user(host.name)); });
    for (Host& host : hosts)
      if (const auto& slots = chosen.at(without_user(host.name)); !slots.empty())
        host.slots = static_cast<int>(slots.size());
  }
  if (!choice.exclude.empty()) {
    const auto left_out = parse_choice(choice.exclude, "--exclude", hosts);
    for (Host& host : hosts) {
      const auto at = left_out.find(without_user(host.name));
      if (at != left_out.end()) host.slots = at->second.empty() ? 0 : host.slots - static_cast<int>(at->second.size());
    }
  }
  std::erase_if(hosts, [](const Host& host) { return host.slots == 0; });
}

}  // namespace

std::vector<Host> parse_hostfile(const std::string& text, const std::string& file) {
  std::vector<Host> hosts;
  std::set<std::string> names;
  int number = 0;
  std::string line;
  for (std::istringstream in(text); std::getline(in, line);) {
    ++number;
    const auto wrong = [&](const std::string& what) {
      ddh::fail(DDH_INVALID_ARGUMENT, "hostfile '", file, "', line ", number, ": ", what,
                "; a line is a host and its ranks, such as: node1 slots=4");
    };
    if (!line.empty() && line.back() == '\r') line.pop_back();
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::string name, slots, more;
    if (!(words >> name)) continue;
    if (!is_host(name)) wrong("'" + plain_text(name, 100) + "' is no name of a host");
    Host host{name, 1, false};
    if (words >> slots) {
      if (!slots.starts_with("slots=")) wrong("'" + plain_text(slots, 100) + "' is not slots=N");
      host.slots = number_or(slots.substr(6), 0);
      if (host.slots < 1 || host.slots > static_cast<int>(kMostHosts))
        wrong("'" + plain_text(slots, 100) + "' is no number of ranks from 1 to 1024");
    }
    if (words >> more) wrong("'" + plain_text(more, 100) + "' follows the slots");
    if (!names.insert(without_user(name)).second) wrong("host '" + without_user(name) + "' is there twice");
    hosts.push_back(host);
    if (hosts.size() > kMostHosts) wrong(ddh::str("there are more than ", kMostHosts, " hosts"));
  }
  if (hosts.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "hostfile '", file, "' has no host; write one per line: node1 slots=4");
  return hosts;
}

std::vector<Host> chosen_hosts(std::vector<Host> hosts, const HostChoice& choice) {
  apply_filters(hosts, choice);
  if (hosts.empty()) ddh::fail(DDH_INVALID_ARGUMENT, "--include and --exclude leave no slot; choose at least one");
  if (choice.num_nodes > static_cast<int>(hosts.size()))
    ddh::fail(DDH_INVALID_ARGUMENT, "--num-nodes ", choice.num_nodes, " is more than the ", hosts.size(),
              " hosts that can be chosen");
  if (choice.num_nodes > 0) hosts.resize(static_cast<size_t>(choice.num_nodes));
  for (Host& host : hosts) {
    if (choice.nproc_per_node > host.slots)
      ddh::fail(DDH_INVALID_ARGUMENT, "--nproc-per-node ", choice.nproc_per_node, " is more than the ", host.slots,
                " slots of host '", host.name, "'");
    if (choice.nproc_per_node > 0) host.slots = choice.nproc_per_node;
  }
  int left = choice.world_size;
  if (left == 0) return hosts;
  for (Host& host : hosts) {
    host.slots = std::min(host.slots, left);
    left -= host.slots;
  }
  if (left > 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "--nproc ", choice.world_size, " is ", left,
              " more than the hosts have slots; add hosts, ", "or slots");
  std::erase_if(hosts, [](const Host& host) { return host.slots == 0; });
  return hosts;
}

bool is_this_host(const std::string& name) {
  const std::string host = without_user(name);
  if (host == "localhost" || host == host_name()) return true;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next)
    if (is_own_address(at->ai_addr, at->ai_addrlen)) return true;
  return false;
}

}  // namespace ddhost
