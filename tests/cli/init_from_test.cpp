// SPDX-License-Identifier: Apache-2.0
//
// train.init_from: initial values from one file, from several files and from a folder with an index; files that are
// refused.
#include <catch2/catch.hpp>
#include <functional>

#include "fixtures/harness/listed.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

using Tensors = std::map<std::string, GoldenTensor>;

// The initial values of a model.
Tensors first_values(const std::vector<std::string>& options) {
  const TempFolder folder;
  const std::string file = folder.file("first.safetensors");
  ran(toy_run({"train.steps=0", "--save-final", file}, options));
  return read_safetensors(file).tensors;
}

// The initial values of another seed: none of them can be drawn by chance.
Tensors other_values(const std::vector<std::string>& options = {}) {
  return first_values(joined({"run.seed=7", "model.deviation=0.7"}, options));
}

std::string init(const nlohmann::json& entries) { return "train.init_from=" + entries.dump(); }

bool same(const GoldenTensor& a, const GoldenTensor& b) { return a.shape == b.shape && a.bytes == b.bytes; }

Tensors renamed(const Tensors& tensors, const std::string& from, const std::string& to) {
  Tensors out;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(from)) out[to + name.substr(from.size())] = tensor;
  return out;
}

void check_each(const Tensors& found, const Tensors& from, const std::function<bool(const std::string&)>& which) {
  for (const auto& [name, tensor] : found) {
    INFO(name);
    if (which(name)) CHECK(same(tensor, from.at(name)));
  }
}

}  // namespace

TEST_CASE("a file fills the part of a model that its prefix names, and the rest is drawn from the seed", "[cli]") {
  const TempFolder folder;
  const Tensors other = other_values(), drawn = first_values({});
  const std::string file = folder.file("tower.safetensors");
  const auto is_tower = [](const std::string& name) { return name.starts_with("layers.1."); };
  write_safetensors(file, renamed(other, "layers.1.", ""));
  for (const std::string& strategy : listed_strategies()) {
    const Tensors found = first_values({init({{{"file", file}, {"prefix", "layers.1."}}}), "--strategy", strategy});
    check_each(found, other, is_tower);
    check_each(found, drawn, [&](const std::string& name) { return !is_tower(name); });
  }
}

TEST_CASE("names of a file that begin with `from` fill those of the model that begin with `prefix`", "[cli]") {
  const TempFolder folder;
  const Tensors other = other_values(), drawn = first_values({});
  const std::string file = folder.file("tower.safetensors");
  Tensors tower = renamed(other, "layers.1.", "features.");
  write_safetensors(file, tower);
  const nlohmann::json entries =
      nlohmann::json::array({{{"file", file}, {"prefix", "layers.2."}, {"from", "features."}}});
  const Tensors found = first_values({init(entries)});
  for (const auto& [name, tensor] : found) {
    INFO(name);
    const bool is_tower = name.starts_with("layers.2.");
    CHECK(same(tensor, is_tower ? other.at("layers.1." + name.substr(9)) : drawn.at(name)));
  }
  tower.emplace("head.weight", tower.begin()->second);
  write_safetensors(file, tower);
  check_refused(toy_run({init(entries)}), {"'head.weight'", "allow_surplus"});
}

TEST_CASE("several files fill one model, the later one where both have a value", "[cli]") {
  const TempFolder folder;
  const Tensors a = other_values(), b = first_values({"run.seed=9", "model.deviation=0.2"});
  const std::string base = folder.file("base.safetensors"), layer = folder.file("layer.safetensors");
  write_safetensors(layer, renamed(b, "layers.2.", ""));
  write_safetensors(base, a);
  const auto is_layer = [](const std::string& name) { return name.starts_with("layers.2."); };
  const nlohmann::json layer_entry = {{"file", layer}, {"prefix", "layers.2."}};
  const Tensors found = first_values({init({{{"file", base}}, layer_entry})});
  check_each(found, b, is_layer);
  check_each(found, a, [&](const std::string& name) { return !is_layer(name); });
  // A name that one file lacks and the other has is not missing, in either order.
  Tensors without = a;
  std::erase_if(without, [&](const auto& item) { return is_layer(item.first); });
  write_safetensors(base, without);
  for (const nlohmann::json& entries :
       {nlohmann::json{{{"file", base}}, layer_entry}, nlohmann::json{layer_entry, {{"file", base}}}})
    check_each(first_values({init(entries)}), b, is_layer);
}

TEST_CASE("a folder of several files with an index is one file of weights", "[cli]") {
  const TempFolder folder;
  const Tensors other = other_values();
  Tensors shards[2];
  nlohmann::json map;
  size_t i = 0;
  for (const auto& [name, tensor] : other) {
    const size_t shard = i++ % 2;
    shards[shard][name] = tensor;
    map[name] = "model-0000" + std::to_string(shard + 1) + "-of-00002.safetensors";
  }
  for (size_t s = 0; s < 2; ++s)
    write_safetensors(folder.file("model-0000" + std::to_string(s + 1) + "-of-00002.safetensors"), shards[s]);
  const std::string index = folder.file("model.safetensors.index.json");
  const auto write_index = [&](const nlohmann::json& weight_map) {
    std::ofstream(index) << nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}};
  };
  write_index(map);
  const auto all = [](const std::string&) { return true; };
  check_each(first_values({"train.init_from=" + folder.path().string()}), other, all);
  check_each(first_values({"train.init_from=" + index}), other, all);

  nlohmann::json wrong = map;
  wrong["embedding"] = "model-00003-of-00002.safetensors";
  write_index(wrong);
  check_refused(toy_run({"train.init_from=" + index}), {"model-00003-of-00002.safetensors"});
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
  wrong["embedding"] = map["embedding"] == first ? second : first;
  write_index(wrong);
  check_refused(toy_run({"train.init_from=" + index}), {"'embedding'", "does not hold it"});
  wrong["embedding"] = "../elsewhere.safetensors";
  write_index(wrong);
  check_refused(toy_run({"train.init_from=" + index}), {"'embedding'", "not a plain file name"});
  std::ofstream(index) << "{}";
  check_refused(toy_run({"train.init_from=" + index}), {"weight_map"});
  std::filesystem::remove(index);
  check_refused(toy_run({"train.init_from=" + folder.path().string()}), {"0 indices", "2 safetensors files"});
  std::filesystem::remove(folder.file("model-00002-of-00002.safetensors"));
  check_refused(toy_run({"train.init_from=" + folder.path().string()}), {"has no tensor for"});  // its only file
}

TEST_CASE("missing names of a file are refused and listed, or drawn from the seed if its entry allows that", "[cli]") {
  const TempFolder folder;
  Tensors some = other_values();
  const Tensors drawn = first_values({}), other = some;
  for (const char* name : {"layers.0.w1", "layers.0.b1", "bias"}) some.erase(name);
  const std::string file = folder.file("some.safetensors");
  write_safetensors(file, some);
  check_refused(toy_run({"train.init_from=" + file}),
                {"some.safetensors", "3 of the model's names", "'layers.0.w1'", "'layers.0.b1'", "'bias'"});
  const auto entry = [&](const nlohmann::json& allowed) {
    return init({{{"file", file}, {"allow_missing", allowed}}});
  };
  check_refused(toy_run({entry({"layers.0.*"})}), {"1 of the model's names: 'bias';"});
  check_refused(toy_run({entry(false)}), {"3 of the model's names"});
  for (const nlohmann::json& allowed : {nlohmann::json(true), nlohmann::json{"layers.0.*", "bias"}}) {
    const Tensors found = first_values({entry(allowed)});
    check_each(found, drawn, [&](const std::string& name) { return !some.contains(name); });
    check_each(found, other, [&](const std::string& name) { return some.contains(name); });
  }
  const ToyRun told = ran(toy_run({entry(true), "train.steps=0", "run.quiet=false"}));
  CHECK_THAT(told.err, Catch::Contains("leaves 3 of") && Catch::Contains("'layers.0.w1'"));
}

TEST_CASE("surplus names of a file are refused and listed, or ignored if its entry allows that", "[cli]") {
  const TempFolder folder;
  Tensors more = other_values();
  const Tensors other = more;
  for (int i = 0; i < 10; ++i) more["mask." + std::to_string(i)] = {"BOOL", {2}, {0, 1}};
  const std::string file = folder.file("more.safetensors");
  write_safetensors(file, more);
  check_refused(toy_run({"train.init_from=" + file}), {"10 tensors that the model lacks", "'mask.7' and 2 more"});
  const std::string allowed = init({{{"file", file}, {"allow_surplus", {"mask.?"}}}});
  check_each(first_values({allowed}), other, [](const std::string&) { return true; });
  CHECK_THAT(ran(toy_run({allowed, "train.steps=0", "run.quiet=false"})).err, Catch::Contains("ignores 10 tensors"));
  // A second name of a tied parameter is not surplus.
  more = other;
  more["head.weight"] = more.at("embedding");
  write_safetensors(file, more);
  check_each(first_values({"train.init_from=" + file}), other, [](const std::string&) { return true; });
  more["head.weight"] = first_values({}).at("embedding");
  write_safetensors(file, more);
  check_refused(toy_run({"train.init_from=" + file}),
                {"other values in 'head.weight' than in 'embedding'", "allow_surplus"});
  check_each(first_values({init({{{"file", file}, {"allow_surplus", {"head.weight"}}}})}), other,
             [](const std::string&) { return true; });
}

TEST_CASE("a head of another size is drawn from the seed if its entry allows it to be missing and surplus", "[cli]") {
  const TempFolder folder;
  const Tensors other = other_values({"model.vocab=40"}), drawn = first_values({});
  const std::string file = folder.file("larger.safetensors");
  write_safetensors(file, other);
  const auto entry = [&](const nlohmann::json& missing, const nlohmann::json& surplus) {
    return init({{{"file", file}, {"allow_missing", missing}, {"allow_surplus", surplus}}});
  };
  const nlohmann::json head = {"embedding", "bias"};
  check_refused(toy_run({"train.init_from=" + file}), {"embedding", "[40, 5]", "[31, 5]", "allow_missing"});
  check_refused(toy_run({entry(head, false)}), {"embedding", "[40, 5]"});
  check_refused(toy_run({entry({"embedding"}, {"embedding"})}), {"bias", "[40]"});
  const Tensors found = first_values({entry(head, head)});
  const auto is_head = [](const std::string& name) { return name == "embedding" || name == "bias"; };
  check_each(found, drawn, is_head);
  check_each(found, other, [&](const std::string& name) { return !is_head(name); });
}

TEST_CASE("a safetensors file whose names hold words of wrappers is read", "[cli]") {
  const TempFolder folder;
  const Tensors other = other_values();
  const std::string file = folder.file("wrapped.safetensors");
  const auto all = [](const std::string&) { return true; };
  for (const char* wrapper : {"module.", "_orig_mod.", "module._orig_mod.", "_fsdp_wrapped_module."}) {
    INFO(wrapper);
    Tensors wrapped;
    for (const auto& [name, tensor] : other) {
      const bool is_layer = name.starts_with("layers.0.");
      wrapped[wrapper + (is_layer ? "layers.0._checkpoint_wrapped_module." + name.substr(9) : name)] = tensor;
    }
    write_safetensors(file, wrapped);
    check_each(first_values({"train.init_from=" + file}), other, all);
  }
  // The same name twice, with other values.
  Tensors twice = renamed(other, "", "module.");
  twice["embedding"] = first_values({}).at("embedding");
  write_safetensors(file, twice);
  check_refused(toy_run({"train.init_from=" + file}), {"two tensors 'embedding'", "'module.embedding'"});
  // "from" still names the words of the file.
  write_safetensors(file, renamed(other, "", "module."));
  check_each(first_values({init(nlohmann::json::array({{{"file", file}, {"from", "module."}}}))}), other, all);
}

TEST_CASE("a file of a module that holds the model is refused with the entry that takes it", "[cli]") {
  const TempFolder folder;
  const Tensors other = other_values();
  const std::string file = folder.file("wrapped.safetensors");
  write_safetensors(file, renamed(other, "", "net."));
  const std::string entry = "[{\"file\": \"" + file + "\", \"from\": \"net.\"}]";
  check_refused(toy_run({"train.init_from=" + file}), {"behind 'net.'", "train.init_from=" + entry});
  check_each(first_values({"train.init_from=" + entry}), other, [](const std::string&) { return true; });
  Tensors two = renamed(other, "", "net.");
  two.erase(two.begin());  // not the whole model
  write_safetensors(folder.file("part.safetensors"), two);
  check_refused(toy_run({"train.init_from=" + folder.file("part.safetensors")}), {"tensors that the model lacks"});
}

TEST_CASE("a beginning that no name has is named", "[cli]") {
  const TempFolder folder;
  const std::string file = folder.file("all.safetensors");
  write_safetensors(file, other_values());
  const auto entry = [&](const char* key) {
    return init(
        nlohmann::json::array({{{"file", file}, {key, "nosuch."}, {"allow_missing", true}, {"allow_surplus", true}}}));
  };
  check_refused(toy_run({entry("from")}), {"no tensor of '" + file + "'", "begins with 'nosuch.'"});
  check_refused(toy_run({entry("prefix")}), {"no name of the model begins with 'nosuch.'"});
}

TEST_CASE("an invalid entry gets one sentence", "[cli]") {
  check_refused(toy_run({init({{{"prefix", "x"}}})}), {"names no file"});
  check_refused(toy_run({init({{{"file", "x"}, {"prefx", "y"}}})}), {"'prefx'", "file, prefix, from, allow_missing"});
  check_refused(toy_run({init({{{"file", 3}}})}), {"file = 3", "not a string"});
  check_refused(toy_run({init({{{"file", "x"}, {"allow_missing", 3}}})}), {"allow_missing = 3", "head.*"});
  check_refused(toy_run({init({"x.safetensors"})}), {"train.init_from", "array of object"});
  check_refused(toy_run({"train.init_from=3"}), {"train.init_from", "string or array"});
}

TEST_CASE("paths in a config file are relative to it", "[cli]") {
  const TempFolder folder;
  const Tensors other = other_values();
  write_safetensors(folder.file("w.safetensors"), other);
  std::ofstream(folder.file("config.json")) << R"({"train": {"init_from": [{"file": "w.safetensors"}]}})";
  check_each(first_values({"--config", folder.file("config.json")}), other, [](const std::string&) { return true; });
}
