// SPDX-License-Identifier: Apache-2.0
//
// Files of the GPT's data: uint16 tokens in a .bin, or a text. The first byte chooses the kind.
#include "../../models/gpt/data.hpp"

#include <filesystem>
#include <fstream>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/fake_host.hpp"
#include "fuzz/fuzz.hpp"

using namespace ddhost;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const test::TempFolder kFolder;
  if (bytes == 0) return 0;
  const std::string path = kFolder.file(data[0] % 2 == 0 ? "data.bin" : "data.txt");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data + 1), static_cast<std::streamsize>(bytes - 1));
  fuzz::may_refuse([&] {
    test::FakeHost fake({{"data.path", path},
                         {"data.val_path", std::string()},
                         {"data.val_fraction", 0.25},
                         {"model.tokenizer", std::string()}});
    const ddh::Host host(fake.get());
    const gpt::Tokens tokens(host, 4);
    uint64_t sum = 0;
    for (const gpt::TokenSpan& part : {tokens.train(), tokens.val()})
      for (uint64_t i = 0; i < part.numel; ++i) sum += part.ids[i];
    if (tokens.vocab() <= 0 && sum > 0) std::abort();
  });
  return 0;
}
