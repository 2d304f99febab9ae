// SPDX-License-Identifier: Apache-2.0
#include "launch/cluster/proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/text.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

Proof hmac(const Token& token, const std::string& message) {
  Proof proof{};
  unsigned int length = 0;
  const unsigned char* const done =
      ::HMAC(::EVP_sha256(), token.bytes().data(), static_cast<int>(token.bytes().size()),
             reinterpret_cast<const unsigned char*>(message.data()), message.size(), proof.data(), &length);
  if (done == nullptr || length != proof.size()) ddh::fail(DDH_INTERNAL, "HMAC-SHA-256 failed");
  return proof;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Random32 random_bytes() {
  Random32 bytes{};
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::getrandom(bytes.data() + done, bytes.size() - done, 0);
    if (n < 0 && errno != EINTR) ddh::fail(DDH_INTERNAL, "the system gives no random bytes: ", std::strerror(errno));
    if (n > 0) done += static_cast<size_t>(n);
  }
  return bytes;
}

Token Token::make() {
  Token token;
  token.bytes_ = random_bytes();
  return token;
}

Token Token::from_hex(const std::string& text) {
  Token token;
  bool is_hex = text.size() == 2 * token.bytes_.size();
  for (size_t i = 0; is_hex && i < token.bytes_.size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    is_hex = high >= 0 && low >= 0;
    token.bytes_[i] = static_cast<uint8_t>(high * 16 + low);
  }
  if (!is_hex) ddh::fail(DDH_INVALID_ARGUMENT, "the token of a run has 64 hexadecimal digits, in lower case");
  return token;
}

std::string Token::hex() const { return hex_text(bytes_); }

Proof proof_of_claim(const Token& token, const Hello& hello, const Claim& claim) {
  return hmac(token,
              "claim" + bytes_of(hello.nonce) + bytes_of(claim.nonce) + bytes_of(claim.kind) + bytes_of(claim.task));
}

Proof proof_of_welcome(const Token& token, const Hello& hello, const Claim& claim) {
  return hmac(token,
              "welcome" + bytes_of(claim.nonce) + bytes_of(hello.nonce) + bytes_of(claim.kind) + bytes_of(claim.task));
}

bool are_equal(const Proof& a, const Proof& b) { return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace ddhost
