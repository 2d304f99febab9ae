// SPDX-License-Identifier: Apache-2.0
//
// Milliseconds of forward and backward of the GPT sizes, one rank, one thread: no strategy, no optimizer.
//   model_bench [size=gpt2] [context=64] [micro_batch=1] [matmul=auto] [compute=fp32] [steps=12]
// The first two steps are warm-up.
#include <chrono>
#include <cstdio>

#include "arguments.hpp"
#include "fixtures/harness/model_driver.hpp"
#include "fixtures/harness/small_text.hpp"
#include "machine.hpp"
#include "ops/products.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_gpt(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

namespace {

using Clock = std::chrono::steady_clock;
using ddhost::bench::median;
using ddhost::bench::whole_number;

constexpr const char* kUsage = "[size=gpt2] [context=64] [micro_batch=1] [matmul=auto] [compute=fp32] [steps=12]";

struct Request {
  std::string size, matmul, compute;
  int64_t context, micro_batch, steps;
};

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void require_one_of(const char* what, const std::string& given, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), given) != known.end()) return;
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  ddh::fail(DDH_INVALID_ARGUMENT, what, "='", given, "' is unknown; give one of ", list);
}

Request request_of(int argc, char** argv) {
  std::map<std::string, std::string> args = {{"size", "gpt2"},   {"context", "64"},   {"micro_batch", "1"},
                                             {"matmul", "auto"}, {"compute", "fp32"}, {"steps", "12"}};
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t at = arg.find('=');
    if (at == std::string::npos || !args.contains(arg.substr(0, at)))
      ddh::fail(DDH_INVALID_ARGUMENT, "'", arg, "' is no argument of it; give ", kUsage);
    args[arg.substr(0, at)] = arg.substr(at + 1);
  }
  std::vector<std::string> matmul = ops::product_names();
  matmul.insert(matmul.begin(), {"auto", "measure"});
  require_one_of("matmul", args["matmul"], matmul);
  require_one_of("compute", args["compute"], {"fp32", "bf16"});
  require_one_of("size", args["size"], {"0.8M", "10.8M", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"});
  return {args["size"],
          args["matmul"],
          args["compute"],
          whole_number("context", args["context"], 1, 4096),
          whole_number("micro_batch", args["micro_batch"], 1, 1024),
          whole_number("steps", args["steps"], 3, 100'000)};
}

std::string characters() {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += static_cast<char>('0' + i * 7919 % 65);
  return text;
}

void initialize(ddhost::test::ModelDriver& model) {
  uint32_t state = 1;
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    const bool gain = model.desc().params[i]->init_kind == DDH_INIT_CONSTANT;
    for (float& x : model.value(i)) {
      state = state * 1664525 + 1013904223;
      x = gain ? 1.0F : (static_cast<float>(state >> 8) * 0x1p-24F - 0.5F) * 0.07F;
    }
  }
}

void run(const Request& request) {
  const ddhost::test::SmallText text("ddhost_model_bench", characters());
  // 65 characters, as in the usual character data; GPT-2 gets its own vocabulary.
  const bool has_characters = !request.size.starts_with("gpt2");
  ddhost::test::ModelDriver model(ddh_entry_gpt, {{"model.size", request.size},
                                                  {"model.context", std::to_string(request.context)},
                                                  {"model.vocab", has_characters ? "65" : "50304"},
                                                  {"model.matmul", request.matmul},
                                                  {"precision.compute", request.compute},
                                                  {"data.path", text.path()},
                                                  {"data.micro_batch", std::to_string(request.micro_batch)}});
  model.poison_grads = false;
  initialize(model);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < request.micro_batch; ++i) samples.push_back(i * 331 % 15'000);
  std::vector<double> forward, backward;
  double loss = 0;
  for (int64_t step = 0; step < request.steps; ++step) {
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
    if (step < 2) continue;
    forward.push_back(forward_ms);
    backward.push_back(backward_ms);
  }
  std::printf("%-8s tokens %lld  forward %.2f ms  backward %.2f ms  sum %.2f ms  (loss %.9g, peak act %.1f MB)\n",
              request.size.c_str(), static_cast<long long>(request.context * request.micro_batch), median(forward),
              median(backward), median(forward) + median(backward), loss,
              static_cast<double>(model.host().peak_bytes(DDH_TAG_ACT)) / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  return ddhost::bench::run_program("model_bench", kUsage, argc, argv, [&] {
    run(request_of(argc, argv));
    return 0;
  });
}
