// SPDX-License-Identifier: Apache-2.0
//
// launch/cluster/proof.hpp: the secret of a run, and how both ends of a connection prove that they know it without sending
// it: HMAC-SHA-256 over random numbers of both ends.
//
//   listener    Hello: a random number
//   connector   Claim: what it is, a random number, and its proof
//   listener    Welcome: its proof
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace ddhost {

using Random32 = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;

// A run's secret.
class Token {
 public:
  static Token make();
  // From hex(). Error: not 64 hexadecimal digits.
  static Token from_hex(const std::string& text);
  [[nodiscard]] std::string hex() const;
  [[nodiscard]] const Random32& bytes() const { return bytes_; }

 private:
  Random32 bytes_{};
};

Random32 random_bytes();

constexpr std::array<char, 8> kWireVersion = {'d', 'd', 'h', 'o', 's', 't', '1', '\n'};

struct Hello {
  std::array<char, 8> version = kWireVersion;
  Random32 nonce{};
};
enum class GuestKind : uint32_t { kStore = 1, kAgent = 2 };
struct Claim {
  std::array<char, 8> version = kWireVersion;
  GuestKind kind = GuestKind::kStore;
  uint32_t task = 0;
  Random32 nonce{};
  Proof proof{};
};
struct Welcome {
  Proof proof{};
};

Proof proof_of_claim(const Token& token, const Hello& hello, const Claim& claim);
Proof proof_of_welcome(const Token& token, const Hello& hello, const Claim& claim);
// In a time that does not depend on the content.
bool are_equal(const Proof& a, const Proof& b);

}  // namespace ddhost
