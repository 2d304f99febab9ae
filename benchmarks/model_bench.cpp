// SPDX-License-Identifier: Apache-2.0
//
// Milliseconds of forward and backward of the GPT sizes, one rank, one thread: no strategy, no optimizer.
//   model_bench [size=gpt2] [context=64] [micro_batch=1] [matmul=auto] [compute=fp32] [steps=12]
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "fixtures/harness/model_driver.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_gpt(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

using Clock = std::chrono::steady_clock;

static double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

static double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

int main(int argc, char** argv) {
  std::map<std::string, std::string> args = {{"size", "gpt2"},   {"context", "64"},   {"micro_batch", "1"},
                                             {"matmul", "auto"}, {"compute", "fp32"}, {"steps", "12"}};
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t at = arg.find('=');
    if (at == std::string::npos || args.count(arg.substr(0, at)) == 0) {
      std::fprintf(stderr, "unknown argument '%s'; give size=, context=, micro_batch=, matmul=, compute=, steps=\n",
                   argv[i]);
      return 2;
    }
    args[arg.substr(0, at)] = arg.substr(at + 1);
  }
  // 65 characters, as in the usual character data; GPT-2 gets its own vocabulary.
  const bool characters = args["size"].find("gpt2") == std::string::npos;
  const std::filesystem::path text = std::filesystem::temp_directory_path() / "ddhost_model_bench.txt";
  std::ofstream out(text);
  for (int i = 0; i < 20000; ++i) out << static_cast<char>('0' + i * 7919 % 65);
  out.close();
  ddhost::test::ModelDriver model(ddh_entry_gpt, {{"model.size", args["size"]},
                                                  {"model.context", args["context"]},
                                                  {"model.vocab", characters ? "65" : "50304"},
                                                  {"model.matmul", args["matmul"]},
                                                  {"precision.compute", args["compute"]},
                                                  {"data.path", text.string()},
                                                  {"data.micro_batch", args["micro_batch"]}});
  model.poison_grads = false;
  uint32_t state = 1;
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    const bool gain = model.desc().params[i]->init_kind == DDH_INIT_CONSTANT;
    for (float& x : model.value(i)) {
      state = state * 1664525 + 1013904223;
      x = gain ? 1.0F : (static_cast<float>(state >> 8) * 0x1p-24F - 0.5F) * 0.07F;
    }
  }
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < std::stoll(args["micro_batch"]); ++i) samples.push_back(i * 331);
  std::vector<double> forward, backward;
  double loss = 0;
  for (int step = 0; step < std::stoi(args["steps"]); ++step) {
    auto batch = model.create_batch(samples);
    const auto begin = Clock::now();
    model.forward(batch.batch);
    const double forward_ms = ms_since(begin);
    const auto middle = Clock::now();
    model.backward(batch.batch, 1 / batch.info.loss_count);
    const double backward_ms = ms_since(middle);
    loss = model.metric().first / batch.info.loss_count;
    model.discard();
    model.destroy_batch(batch);
    if (step >= 2) {
      forward.push_back(forward_ms);
      backward.push_back(backward_ms);
    }
  }
  std::printf("%-8s tokens %lld  forward %.2f ms  backward %.2f ms  sum %.2f ms  (loss %.9g, peak act %.1f MB)\n",
              args["size"].c_str(),
              static_cast<long long>(std::stoll(args["context"]) * std::stoll(args["micro_batch"])), median(forward),
              median(backward), median(forward) + median(backward), loss,
              static_cast<double>(model.host().peak_bytes(DDH_TAG_ACT)) / 1e6);
  std::filesystem::remove(text);
  return 0;
}
