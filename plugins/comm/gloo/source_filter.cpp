// SPDX-License-Identifier: Apache-2.0
#include "source_filter.hpp"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include "ddh/sdk/plugin.hpp"

namespace gloo_links {
namespace {

using Words = std::vector<uint32_t>;  // of an address, in the order of the network, as numbers

// Where the source address begins in the network header.
constexpr uint32_t kSourceV4 = 12, kSourceV6 = 8;

Words words_of(const std::string& address) {
  std::array<uint32_t, 4> raw{};
  const int family = address.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (::inet_pton(family, address.c_str(), raw.data()) != 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "'", address, "' is no IP address, so gloo can't tell who may connect");
  Words words(raw.begin(), raw.begin() + (family == AF_INET ? 1 : 4));
  for (uint32_t& word : words) word = ntohl(word);
  return words;
}

sock_filter statement(uint16_t code, uint32_t k) { return {code, 0, 0, k}; }

// Goes on with the next statement if the loaded word is `k`, and else skips `skipped` of them.
sock_filter unless_equal_skip(uint32_t k, uint8_t skipped) { return {BPF_JMP | BPF_JEQ | BPF_K, 0, skipped, k}; }

// Takes the packet if its source is this address.
void add_address(std::vector<sock_filter>& program, const Words& words) {
  const uint32_t at = words.size() == 1 ? kSourceV4 : kSourceV6;
  for (uint32_t i = 0; i < words.size(); ++i) {
    const auto left = static_cast<uint8_t>(2 * (words.size() - i) - 1);  // statements up to the next address
    program.push_back(statement(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(SKF_NET_OFF) + at + 4 * i));
    program.push_back(unless_equal_skip(words[i], left));
  }
  program.push_back(statement(BPF_RET | BPF_K, UINT32_MAX));
}

}  // namespace

void allow_only(int listening_socket, const std::vector<std::string>& addresses) {
  std::vector<sock_filter> program;
  for (const std::string& address : std::set<std::string>(addresses.begin(), addresses.end()))
    add_address(program, words_of(address));
  program.push_back(statement(BPF_RET | BPF_K, 0));
  if (program.size() > BPF_MAXINSNS)
    ddh::fail(DDH_UNIMPLEMENTED, "a filter for ", addresses.size(), " hosts is too long for the kernel; set ",
              "comm.only_own_hosts=false where strangers can't reach the network");
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::setsockopt(listening_socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "the kernel refuses a filter for gloo's listener: ", std::strerror(errno),
              "; set comm.only_own_hosts=false where strangers can't reach the network");
}

}  // namespace gloo_links
