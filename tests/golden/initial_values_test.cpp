// SPDX-License-Identifier: Apache-2.0
//
// The distribution of the initial values of every parameter, as the host draws them, against the formulas of the libraries
// whose names the models have: torchvision, torch's own layers, timm, transformers, nanoGPT, the port of KGAT, Michelangelo.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "../../models/cnn/networks.hpp"
#include "engine/state/initialize.hpp"
#include "golden/cad_fixture.hpp"
#include "golden/gpt_fixture.hpp"
#include "golden/vit_fixture.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_kgat(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

using namespace ddhost::test;

namespace {

struct Law {
  enum class Kind { kConstant, kNormal, kUniform } kind;
  double value;  // the constant, or the standard deviation
};
Law constant(double value) { return {Law::Kind::kConstant, value}; }
Law normal(double deviation) { return {Law::Kind::kNormal, deviation}; }
Law within(double bound) { return {Law::Kind::kUniform, bound / std::sqrt(3.0)}; }

using Shape = std::vector<int64_t>;

int64_t numel_of(const Shape& shape) {
  int64_t numel = 1;
  for (const int64_t n : shape) numel *= n;
  return numel;
}

// torch.nn.init's _calculate_fan_in_and_fan_out of a weight (out, in / groups, kernel ...). It does not know the groups.
double fan_in(const Shape& shape) { return static_cast<double>(numel_of(shape) / shape[0]); }
double fan_out(const Shape& shape) { return static_cast<double>(numel_of(shape) / shape[1]); }

// kaiming_normal_(mode="fan_out"), kaiming_uniform_(a=sqrt(5)) and xavier_uniform_.
Law kaiming_out(const Shape& shape) { return normal(std::sqrt(2 / fan_out(shape))); }
Law torch_default(double fan_in) { return within(1 / std::sqrt(fan_in)); }
Law xavier(const Shape& shape) { return within(std::sqrt(6 / (fan_in(shape) + fan_out(shape)))); }

bool is_norm(const Shape& shape, const std::string& name) { return shape.size() == 1 && name.ends_with("weight"); }

void check_values(const std::vector<float>& x, const Law& law) {
  if (law.kind == Law::Kind::kConstant) {
    CHECK(std::all_of(x.begin(), x.end(), [&](float v) { return v == static_cast<float>(law.value); }));
    return;
  }
  const auto n = static_cast<double>(x.size());
  double sum = 0, squares = 0, outside = 0;
  for (const float v : x) {
    sum += v, squares += static_cast<double>(v) * v;
    outside += std::abs(v) > 1.75 * law.value ? 1 : 0;  // a uniform distribution ends at 1.73 deviations
  }
  CHECK(std::abs(sum / n) < 5 * law.value / std::sqrt(n));
  CHECK(std::sqrt(squares / n) == Approx(law.value).epsilon(5 / std::sqrt(2 * n)));
  if (n >= 1000)
    CHECK(outside / n == Approx(law.kind == Law::Kind::kUniform ? 0 : 0.08).margin(5 * std::sqrt(0.08 / n)));
}

// Draws a parameter as the host does, of large ones the first elements.
void check_param(const ddh_param_desc& param, const Law& law) {
  const ddh_param_desc* params[] = {&param};
  ddh_model_desc model{};
  model.struct_size = sizeof model;
  model.n_params = 1;
  model.params = params;
  std::vector<float> x(std::min<uint64_t>(param.numel, 20'000));
  ddhost::ParamInit(model, 1337, {}).init_range(0, 0, x.size(), x.data());
  CAPTURE(param.name);
  check_values(x, law);
}

// `law_of(name, shape)`.
template <class LawOf>
void check_network(const cnn::NetOptions& options, LawOf&& law_of) {
  CAPTURE(options.network);
  const cnn::Net net = cnn::make_net(options);
  for (const auto& unit : net.units()) {
    for (const cnn::ParamSpec& p : unit->params()) {
      ddh_param_desc param{};
      param.struct_size = sizeof param;
      param.dtype = DDH_F32;
      param.name = p.name.c_str();
      param.shape = p.shape.data();
      param.numel = static_cast<uint64_t>(numel_of(p.shape));
      param.n_dims = static_cast<uint32_t>(p.shape.size());
      param.init_kind = p.init.kind, param.init_a = p.init.a, param.init_b = p.init.b;
      param.init_low = p.init.low, param.init_high = p.init.high;
      check_param(param, law_of(p.name, p.shape));
    }
  }
}

template <class LawOf>
void check_model(const ModelDriver& model, LawOf&& law_of) {
  for (size_t i = 0; i < model.desc().n_params; ++i)
    check_param(*model.desc().params[i], law_of(model.name(i), model.shape(i)));
}

cnn::NetOptions options_of(const std::string& network) {
  cnn::NetOptions o;
  o.network = network;
  o.image = {3, 64, 64};
  o.classes = 100;
  if (network.ends_with("lstm") || network == "conv3d") o.image.frames = 3;
  return o;
}

bool is_trunk(const std::string& name) {
  return name.starts_with("features.") || name.starts_with("mobilenet.") || name.starts_with("efficientnet.");
}

bool holds(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

}  // namespace

// The deviation of depthwise convolutions was 4 to 31 times torchvision's, whose fan-out is not divided by the groups.
TEST_CASE("networks of torchvision begin with its distributions, depthwise convolutions too") {
  const std::string network = GENERATE("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0",
                                       "vgg11", "vgg16_bn", "vgg19");
  int depthwise = 0;
  check_network(options_of(network), [&](const std::string& name, const Shape& shape) {
    if (shape.size() == 4) {
      depthwise += shape[1] == 1 ? 1 : 0;
      return kaiming_out(shape);
    }
    if (shape.size() == 1) return constant(is_norm(shape, name) ? 1 : 0);
    return network == "efficientnet_b0" ? within(1 / std::sqrt(static_cast<double>(shape[0]))) : normal(0.01);
  });
  const std::map<std::string, int> expected = {
      {"mobilenet_v2", 17}, {"mobilenet_v3_small", 11}, {"mobilenet_v3_large", 15}, {"efficientnet_b0", 16}};
  CHECK(depthwise == (expected.contains(network) ? expected.at(network) : 0));
}

TEST_CASE(
    "other convolutional networks begin with the distributions of torch's layers, their trunks with torchvision's") {
  const std::string network =
      GENERATE("basic", "resnet9", "cnn_lstm", "conv3d", "pretrained_cnn_lstm", "ensemble", "two_stream");
  double last_fan = 0;
  check_network(options_of(network), [&](const std::string& name, const Shape& shape) {
    const bool is_trunk_or_norm = is_trunk(name) || holds(name, ".bn.");
    if (shape.size() == 1 && is_trunk_or_norm) return constant(is_norm(shape, name) ? 1 : 0);
    if (shape.size() == 4 && (is_trunk(name) || network == "resnet9")) return kaiming_out(shape);
    if (name.starts_with("lstm"))
      return torch_default(static_cast<double>(shape[0]) / 4);  // by the width of its states
    if (shape.size() > 1) last_fan = fan_in(shape);
    return torch_default(last_fan);  // of a bias that of the weight before
  });
}

TEST_CASE("Vision Transformers begin with the distributions of torchvision, timm and transformers") {
  const std::string names = GENERATE("tv", "timm", "hf");
  const ModelDriver model(ddh_entry_vit, tiny_vit(names, "aten"));
  double patch_fan = 0;
  check_model(model, [&](const std::string& name, const Shape& shape) {
    const bool tv = names == "tv";
    if (shape.size() == 4) {
      patch_fan = fan_in(shape);
      return tv ? normal(std::sqrt(1 / patch_fan)) : names == "timm" ? torch_default(patch_fan) : normal(0.02);
    }
    if (name == "patch_embed.proj.bias") return torch_default(patch_fan);
    if (name == "class_token" || name == "heads.head.weight") return constant(0);
    if (name == "cls_token") return normal(1e-6);
    if (shape.size() == 3) return normal(0.02);
    if (is_norm(shape, name)) return constant(1);
    if (tv && holds(name, ".mlp.")) return shape.size() == 1 ? normal(1e-6) : xavier(shape);
    if (shape.size() == 1) return constant(0);
    if (!tv) return normal(0.02);
    return holds(name, "out_proj") ? torch_default(fan_in(shape)) : xavier(shape);
  });
}

TEST_CASE("a GPT begins with the distributions of nanoGPT and transformers") {
  const SmallText text("initial-values");
  const ModelDriver model(ddh_entry_gpt, tiny_gpt2(text, "gelu_tanh", "aten"));
  constexpr double kLayers = 2;
  check_model(model, [&](const std::string& name, const Shape& shape) {
    if (shape.size() == 1) return constant(is_norm(shape, name) ? 1 : 0);
    return normal(holds(name, "c_proj") ? 0.02 / std::sqrt(2 * kLayers) : 0.02);
  });
}

TEST_CASE("KGAT begins with the distributions of its port to PyTorch") {
  const std::string aggregator = GENERATE("bi-interaction", "gcn", "graphsage");
  const ModelDriver model(ddh_entry_kgat, {{"model.dataset", "made_up"}, {"model.aggregator", aggregator}});
  double last_fan = 0;
  check_model(model, [&](const std::string&, const Shape& shape) {
    if (shape.size() == 1) return torch_default(last_fan);
    last_fan = fan_in(shape);
    return xavier(shape);
  });
}

// The first layer of Michelangelo's encoder keeps torch's initial values, which are larger than the others'.
TEST_CASE("CAD-MLLM begins with the distributions of Qwen3, PEFT, DINOv2 and Michelangelo") {
  const ModelDriver model(ddh_entry_cad_mllm, {{"model.size", "tiny"}});
  double point_width = 0, input_fan = 0;
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    if (model.name(i) == "point_encoder.encoder.input_proj.weight")
      point_width = static_cast<double>(model.shape(i)[0]), input_fan = fan_in(model.shape(i));
  }
  REQUIRE(point_width > 0);
  check_model(model, [&](const std::string& name, const Shape& shape) {
    if (holds(name, "input_proj")) return torch_default(input_fan);
    if (holds(name, "layer_scale") || is_norm(shape, name)) return constant(1);
    if (shape.size() == 1 || holds(name, "lora_B")) return constant(0);
    if (holds(name, "lora_A")) return torch_default(fan_in(shape));
    if (holds(name, "_projector")) return xavier(shape);
    if (holds(name, "point_encoder") && !name.ends_with("query")) return normal(0.25 / std::sqrt(point_width));
    return normal(0.02);
  });
}
