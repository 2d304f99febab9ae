// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/step_limit.cpp: the least time that this machine needs for a step of a transformer: its matrix products, with the
// fastest library for each layer, and the optimizer's pass at the best rate of the memory. All ranks are busy at once, as in
// training; a rank is a thread. Each layer has its own weight, gradient, input and output, as in the model, so small caches do
// not help.
// Usage: step_limit [--ranks 2] [--rows 64] [--dtype fp32|bf16] [--rounds 5] IN:OUTxCOUNT... ; --rows: tokens of a rank.
// Prints a JSON object: milliseconds of the products and of each layer with its library, and nanoseconds for an element that
// the optimizer updates (it reads 16 bytes and writes 12).
#include <ATen/Parallel.h>

#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "arguments.hpp"
#include "ddh/sdk/plugin.hpp"
#include "machine.hpp"
#include "memory_rates.hpp"
#include "ops/choice.hpp"
#include "pages.hpp"

namespace {

using ddhost::bench::median;
using ddhost::bench::Pages;
using ddhost::bench::whole_number;

struct Layer {
  int64_t in, out;
  int count;
};

struct Request {
  int ranks = 2, rounds = 5;
  int64_t rows = 64;
  int32_t dtype = DDH_F32;
  std::vector<Layer> layers;
};

constexpr const char* kUsage = "[--ranks 2] [--rows 64] [--dtype fp32|bf16] [--rounds 5] IN:OUTxCOUNT...";

// "768:3072x12"
Layer layer_of(const std::string& text) {
  const size_t colon = text.find(':'), times = text.find('x');
  if (colon == std::string::npos || times == std::string::npos || times < colon)
    ddh::fail(DDH_INVALID_ARGUMENT, "'", text, "' is no layer; give IN:OUTxCOUNT, such as 768:3072x12");
  const auto number = [&](size_t from, size_t to) {
    return whole_number("in the layer " + text + ",", text.substr(from, to - from), 1, 10'000'000);
  };
  return {number(0, colon), number(colon + 1, times), static_cast<int>(number(times + 1, text.size()))};
}

Request request_of(int argc, char** argv) {
  Request out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (!word.starts_with("--")) {
      out.layers.push_back(layer_of(word));
      continue;
    }
    ++i;
    if (word == "--ranks")
      out.ranks = static_cast<int>(whole_number(word, value, 1, 1024));
    else if (word == "--rounds")
      out.rounds = static_cast<int>(whole_number(word, value, 1, 1000));
    else if (word == "--rows")
      out.rows = whole_number(word, value, 1, 10'000'000);
    else if (word == "--dtype" && (value == "fp32" || value == "bf16"))
      out.dtype = value == "bf16" ? DDH_BF16 : DDH_F32;
    else
      ddh::fail(DDH_INVALID_ARGUMENT, "'", word, " ", value, "' is no flag with its value; give ", kUsage);
  }
  if (out.layers.empty()) ddh::fail(DDH_INVALID_ARGUMENT, "there is no layer; give IN:OUTxCOUNT, such as 768:3072x12");
  return out;
}

// Written once: pages that are only read would share one of the system, which stays in the caches.
Pages zeros(uint64_t bytes) {
  Pages out = ddhost::bench::pages(bytes);
  std::memset(out.get(), 0, bytes);
  return out;
}

// The operands of one layer of a rank.
struct Operands {
  Pages x, w, y, dx, dw;
  Operands(const Layer& layer, const Request& request)
      : x(zeros(bytes(request.rows * layer.in, request))),
        w(zeros(bytes(layer.in * layer.out, request))),
        y(zeros(bytes(request.rows * layer.out, request))),
        dx(zeros(bytes(request.rows * layer.in, request))),
        dw(zeros(static_cast<uint64_t>(layer.in * layer.out) * sizeof(float))) {}
  static uint64_t bytes(int64_t numel, const Request& request) {
    return static_cast<uint64_t>(numel) * ddh_dtype_bytes(request.dtype);
  }
};

// The ranks do the same at once. The time of a round is that of the slowest.
class Ranks {
 public:
  explicit Ranks(int n) : n_(n), together_(n) {}

  // Calls `prepare` of each rank, whose result is called once for warm-up and then in each round; milliseconds, the median.
  template <class Prepare>
  double milliseconds(int rounds, const Prepare& prepare) {
    std::vector<double> slowest(static_cast<size_t>(rounds), 0);
    std::vector<std::thread> threads;
    std::exception_ptr failure;
    for (int rank = 0; rank < n_; ++rank)
      threads.emplace_back([&] {
        at::set_num_threads(1);  // as a rank on a machine whose cores are all taken by ranks
        try {
          time(prepare(), slowest);
        } catch (...) {
          together_.arrive_and_drop();
          const std::scoped_lock lock(mutex_);
          failure = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
    return median(slowest);
  }

 private:
  template <class Body>
  void time(Body body, std::vector<double>& slowest) {
    body();
    for (double& round : slowest) {
      together_.arrive_and_wait();
      const auto begin = std::chrono::steady_clock::now();
      body();
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
      const std::scoped_lock lock(mutex_);
      round = std::max(round, took.count());
    }
  }

  int n_;
  std::barrier<> together_;
  std::mutex mutex_;
};

double milliseconds_of(Ranks& ranks, const Request& request, const Layer& layer, const std::string& library) {
  return ranks.milliseconds(request.rounds, [&] {
    auto products = ops::make_products(library, request.dtype);
    std::vector<Operands> all;
    all.reserve(static_cast<size_t>(layer.count));
    for (int i = 0; i < layer.count; ++i) all.emplace_back(layer, request);
    return [products = std::shared_ptr<ops::Products>(std::move(products)),
            all = std::make_shared<std::vector<Operands>>(std::move(all)),
            shape = ops::LinearShape{request.rows, layer.in, layer.out}, dtype = request.dtype] {
      for (const Operands& o : *all) products->forward(shape, o.x.get(), o.w.get(), nullptr, {o.y.get(), dtype});
      for (const Operands& o : *all) {
        products->backward_input(shape, o.y.get(), o.w.get(), {o.dx.get(), dtype});
        products->backward_weight(shape, o.y.get(), o.x.get(), static_cast<float*>(o.dw.get()), false);
      }
    };
  });
}

void run(const Request& request) {
  Ranks ranks(request.ranks);
  nlohmann::ordered_json out, rows = nlohmann::ordered_json::array();
  double products_ms = 0;
  for (const Layer& layer : request.layers) {
    std::string fastest;
    double least = 0;
    for (const std::string& library : ops::product_names()) {
      const double ms = milliseconds_of(ranks, request, layer, library);
      if (fastest.empty() || ms < least) fastest = library, least = ms;
    }
    const std::string chosen =
        ops::chosen_products({request.rows, layer.in, layer.out}, request.dtype, ops::this_processor());
    const double gflop = 6e-9 * static_cast<double>(request.rows * layer.in * layer.out) * layer.count;
    rows.push_back({{"in", layer.in},
                    {"out", layer.out},
                    {"count", layer.count},
                    {"ms", least},
                    {"library", fastest},
                    {"chosen", chosen},
                    {"gflops_of_a_rank", gflop / least * 1e3}});
    products_ms += least;
  }
  out["processor"] = ops::this_processor().text();
  out["products_ms"] = products_ms;
  out["update_ns"] = ddhost::bench::update_ns(ddhost::bench::memory_rates_of_threads(request.ranks), request.ranks);
  out["layers"] = std::move(rows);
  std::printf("%s\n", out.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  return ddhost::bench::run_program("step_limit", kUsage, argc, argv, [&] {
    run(request_of(argc, argv));
    return 0;
  });
}
