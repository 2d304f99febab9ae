// SPDX-License-Identifier: Apache-2.0
//
// The number of threads of a rank changes no bit, and neither does the distribution of a step's micro-batches over
// ranks. The models use LibTorch, dropout and running statistics.
#include <cstdlib>
#include <fstream>

#include "equivalence/variants.hpp"
#include "fixtures/harness/built.hpp"

using namespace ddhost::test;

namespace {

// Sets environment variables of the runs during its lifetime. The program does not change variables that are set.
class Threads {
 public:
  explicit Threads(int n) {
    for (const char* name : kNames) setenv(name, std::to_string(n).c_str(), 1);
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() {
    for (const char* name : kNames) unsetenv(name);
  }

 private:
  static constexpr const char* kNames[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"};
};

void check_threads(int threads, const Options& options, int steps, const std::string& model) {
  const auto with = [&](int n) {
    const Threads set(n);
    return run({kReference, 1, options, steps, model});
  };
  const Result one = with(1), other = with(threads);
  INFO(one.command << " with 1 and " << threads << " threads\n" << one.grad_norm << "\n" << other.grad_norm);
  CHECK(same_bits(one, other));
}

// A text for a GPT, removed with the object.
class Text {
 public:
  Text() {
    std::ofstream out(folder_.file("text.txt"));
    for (uint64_t i = 0; i < 6000; ++i) out << static_cast<char>('a' + (i * i / 7 + i / 3) % 26);
  }
  [[nodiscard]] std::string option() const { return "data.path=" + folder_.file("text.txt"); }

 private:
  const TempFolder folder_;
};

// A step of 12 micro-batches under other strategies, in other worlds and with other numbers of threads.
void check_spreads(const Options& options, int steps, const std::string& model) {
  struct Spread {
    Variant way;
    int world, threads;
  };
  const auto with = [&](const Spread& s) {
    const Threads set(s.threads);
    return run(
        {s.way, s.world, joined(options, {"train.grad_accum_steps=" + std::to_string(12 / s.world)}), steps, model});
  };
  const Result one = with({kReference, 1, 1});
  for (const Spread& spread :
       {Spread{{"zero2", "shm", {}}, 2, 2}, Spread{{"zero3", "loop", {"comm.windows=copy"}}, 3, 1},
        Spread{{"fsdp", "shm", {"comm.windows=copy"}}, 4, 2}, Spread{{"zero1", "shm", {}}, 12, 1}}) {
    const Result other = with(spread);
    INFO(one.command << " with 1 thread, " << other.command << " with " << spread.threads << "\n"
                     << one.grad_norm << "\n"
                     << other.grad_norm);
    CHECK(same_bits(one, other));
  }
}

void check_gpt(int threads, const std::string& compute) {
  const Text text;
  const Options shared = {text.option(), "precision.compute=" + compute, "run.sample_tokens=0"};
  // Odd sizes, where vectors end in the middle; logits of several chunks; biases, dropout and the other activation.
  check_threads(threads,
                joined(shared, {"model.size=custom", "model.n_layer=2", "model.n_head=3", "model.n_embd=33",
                                "model.context=19", "model.vocab=5003", "data.micro_batch=5", "model.bias=on",
                                "model.dropout=0.1", "model.activation=gelu_tanh"}),
                4, "gpt");
  check_threads(threads, joined(shared, {"model.size=0.8M", "data.micro_batch=12"}), 3, "gpt");
}

void check_network(int threads, const std::string& compute) {
  check_threads(threads, {"precision.compute=" + compute, "data.micro_batch=48"}, 5, test_plugin("tiny_cnn"));
}

}  // namespace

// 3 threads: an uneven division. In the runs of check_spreads ranks have 2.
TEST_CASE("the number of threads changes no bit of a GPT", "[equivalence][torch]") {
  check_gpt(3, GENERATE("fp32", "bf16", "fp16"));
}

TEST_CASE("the number of threads changes no bit of a convolutional network on autograd", "[equivalence][torch]") {
  check_network(3, GENERATE("fp32", "bf16"));
}

TEST_CASE("two threads change no bit of a GPT and of a convolutional network", "[.worlds]") {
  const std::string compute = GENERATE("fp32", "bf16", "fp16");
  check_gpt(2, compute);
  if (compute != "fp16") check_network(2, compute);
}

TEST_CASE("neither world, accumulation nor threads change a bit of a GPT with dropout", "[equivalence][torch]") {
  const Text text;
  check_spreads({text.option(), "run.sample_tokens=0", "model.size=custom", "model.n_layer=2", "model.n_head=2",
                 "model.n_embd=32", "model.context=16", "model.dropout=0.1", "data.micro_batch=2",
                 "train.clip_norm=0.1", "precision.compute=" + std::string(GENERATE("fp32", "bf16"))},
                3, "gpt");
}

// same_bits_vision does this with the networks that are shipped.
TEST_CASE("neither world, accumulation nor threads change a bit of a network with batch norms", "[.worlds]") {
  const std::string model = test_plugin("tiny_cnn");
  check_spreads({"data.micro_batch=4", "train.clip_norm=0.5"}, 4, model);
}
