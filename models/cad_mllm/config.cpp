// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <array>
#include <string_view>

#include "../ops/model_products.hpp"
#include "../ops/sizes.hpp"
#include "ddh/sdk/options.hpp"
#include "text.hpp"

namespace cad {
namespace {

struct Size {
  std::string_view name;
  LlmShape llm;
  int64_t lora_rank;
  double lora_alpha;
  ImageShape image;
  PointShape point;
  int64_t projector_hidden, max_tokens;
};

constexpr ImageShape kSmallImage = {28, 14, 32, 2, 2, 28};
constexpr PointShape kSmallPoint = {40, 4, 32, 2, 2, 8};
constexpr ImageShape kDinoLarge = {224, 14, 1024, 24, 16, 518, 1e-6, 1, "imagenet"};  // as its published weights expect
constexpr PointShape kMichelangelo = {2048, 8, 768, 8, 12, 256};

// tiny: of the reference tensors. 0.6b, 8b: Qwen3's own shapes with the encoders of the source repository.
constexpr std::array<Size, 3> kSizes = {
    {{"tiny", {260, 64, 2, 4, 2, 16, 96}, 4, 8, kSmallImage, kSmallPoint, 48, 160},
     {"0.6b", {151936, 1024, 28, 16, 8, 128, 3072}, 32, 64, kDinoLarge, kMichelangelo, 2048, 512},
     {"8b", {151936, 4096, 36, 32, 8, 128, 12288}, 32, 64, kDinoLarge, kMichelangelo, 2048, 512}}};

const Size& size_of(const ddh::Host& host) { return ops::size_of(host, kSizes); }

using ops::given_or;

void require_multiple(const char* what, int64_t value, const char* of, int64_t divisor) {
  if (value % divisor != 0)
    ddh::fail(DDH_INVALID_ARGUMENT, what, "=", value, " is not a multiple of ", of, "=", divisor, "; change one");
}

constexpr ddh::Option kOptions[] = {
    {"size", "string", R"("tiny")", R"("enum": ["tiny", "0.6b", "8b"])",
     "shapes of all parts; the options that follow override single ones"},
    {"vocab", "integer", "0", R"("minimum": 0, "maximum": 16777216)",
     "rows of the token embedding, at least 258 (bytes, padding, end mark); 0: from size"},
    {"width", "integer", "0", R"("minimum": 0, "maximum": 131072)", "width of the language model; 0: from size"},
    {"layers", "integer", "0", R"("minimum": 0, "maximum": 1024)", "layers of the language model; 0: from size"},
    {"heads", "integer", "0", R"("minimum": 0, "maximum": 1024)", "its query heads; 0: from size"},
    {"kv_heads", "integer", "0", R"("minimum": 0, "maximum": 1024)", "its key and value heads; 0: from size"},
    {"head_dim", "integer", "0", R"("minimum": 0, "maximum": 1024)", "width of a head; 0: from size"},
    {"mlp_width", "integer", "0", R"("minimum": 0, "maximum": 1048576)", "width of its MLP; 0: from size"},
    {"lora_rank", "integer", "0", R"("minimum": 0, "maximum": 4096)", "rank of the adapters; 0: from size"},
    {"lora_alpha", "number", "0", ddh::kAtLeast0, "scale of the adapters, over the rank; 0: from size"},
    {"lora_dropout", "number", "0.0", R"("minimum": 0, "maximum": 0.9)", "dropout before the adapters"},
    {"projector_hidden", "integer", "0", R"("minimum": 0, "maximum": 1048576)",
     "width between the two layers of a projector; 0: from size"},
    {"projector_dropout", "number", "0.0", R"("minimum": 0, "maximum": 0.9)", "dropout in the projectors"},
    {"projector_lr_scale", "number", "5.0", ddh::kAbove0, "factor on the learning rate of the projectors"},
    {"image_size", "integer", "0", R"("minimum": 0, "maximum": 4096, "x-unit": "pixels", "x-affects": "memory")",
     "side of the images; 0: from size"},
    {"table_size", "integer", "0", R"("minimum": 0, "maximum": 4096, "x-unit": "pixels")",
     "side of the images that the image encoder's table of positions is for; the table is stretched to image_size; "
     "0: from size"},
    {"normalize", "string", R"("auto")", R"("enum": ["auto", "half", "imagenet"])",
     "mean and deviation of pixels; half: in -1 to 1; imagenet: as published weights of DINOv2 expect; auto: half for "
     "the size tiny, else imagenet"},
    {"views", "integer", "1", R"("minimum": 1, "maximum": 64, "x-affects": "memory")",
     "images of a sample, whose tokens follow one another"},
    {"points", "integer", "0", R"("minimum": 0, "maximum": 1048576, "x-affects": "memory")",
     "points of a cloud; 0: from size"},
    {"max_tokens", "integer", "0", R"("minimum": 0, "maximum": 1048576, "x-unit": "tokens", "x-affects": "memory")",
     "most tokens of a prompt, its target and the end mark together; a longer sample is refused; 0: from size"},
    {"mask_prompt", "boolean", "true", "", "tokens of the prompt are no targets"},
    {"text_dropout", "number", "0.0", R"("minimum": 0, "maximum": 1)",
     "share of the training samples with an image or points that lose their caption"},
    {"eval_inputs", "string", R"("stage")", R"("enum": ["stage", "text", "image", "points", "image_points"])",
     "inputs in an evaluation; stage: all of the stage; text: the caption; the others: what they name, without the "
     "caption"},
    {"bad_data", "string", R"("refuse")", R"("enum": ["refuse", "skip"])",
     "lines of a folder that are no sample, or whose files are torn; skip: all files are read once at the start, bad "
     "lines are passed over, and their number is logged"},
    {"sample_image", "string", R"("")", R"("x-path": true)",
     "a PNG or JPEG file to generate for, instead of a sample of the evaluation"},
    {"sample_points", "string", R"("")", R"("x-path": true)",
     "a file with a point cloud to generate for, alone or with sample_image"},
    {"init", "string", R"("published")", R"("enum": ["published", "fan_in"])",
     "frozen weights that no file gives; fan_in: standard deviation 1 / sqrt(fan-in), for towers that stay random"},
    {"names", "string", R"("plain")", R"("enum": ["plain", "peft"])",
     "names of the language model's weights in files; peft: as PEFT names them around a transformers model"},
    ops::kMatmulOption,
    ddh::kOperatorsOption,
};

}  // namespace

const char* const kSchema = ddh::kSchemaOf<kOptions>;

Config::Config(const ddh::Host& host)
    : llm(size_of(host).llm),
      lora{given_or(host, "model.lora_rank", size_of(host).lora_rank),
           host.f64("model.lora_alpha") > 0 ? host.f64("model.lora_alpha") : size_of(host).lora_alpha,
           host.f64("model.lora_dropout")},
      image(size_of(host).image),
      point(size_of(host).point),
      projector{given_or(host, "model.projector_hidden", size_of(host).projector_hidden),
                host.f64("model.projector_dropout"), host.f64("model.projector_lr_scale")},
      max_tokens(given_or(host, "model.max_tokens", size_of(host).max_tokens)),
      masks_prompt(host.flag("model.mask_prompt")),
      names(host.text("model.names") == "peft" ? Names::kPeft : Names::kPlain),
      start(host.text("model.init") == "fan_in" ? Start::kFanIn : Start::kPublished),
      seed(static_cast<uint64_t>(host.i64("run.seed"))),
      compute(ops::compute_type(host, "cad_mllm")) {
  llm.vocab = given_or(host, "model.vocab", llm.vocab);
  llm.width = given_or(host, "model.width", llm.width);
  llm.layers = given_or(host, "model.layers", llm.layers);
  llm.heads = given_or(host, "model.heads", llm.heads);
  llm.kv_heads = given_or(host, "model.kv_heads", llm.kv_heads);
  llm.head_dim = given_or(host, "model.head_dim", llm.head_dim);
  llm.mlp_width = given_or(host, "model.mlp_width", llm.mlp_width);
  image.side = given_or(host, "model.image_size", image.side);
  image.table_side = given_or(host, "model.table_size", image.table_side);
  image.views = host.i64("model.views");
  for (const std::string_view name : {"half", "imagenet"}) {
    if (host.text("model.normalize") == name) image.normalize = name;
  }
  point.points = given_or(host, "model.points", point.points);
  if (llm.vocab < kVocab)
    ddh::fail(DDH_INVALID_ARGUMENT, "model.vocab=", llm.vocab, " has no room for the ", kVocab,
              " tokens (256 bytes, padding, end mark); give at least ", kVocab);
  require_multiple("model.heads", llm.heads, "model.kv_heads", llm.kv_heads);
  if (llm.head_dim % 2 != 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "model.head_dim=", llm.head_dim, " is odd; give an even number");
  require_multiple("model.image_size", image.side, "the patch", image.patch);
  require_multiple("model.table_size", image.table_side, "the patch", image.patch);
}

}  // namespace cad
