// SPDX-License-Identifier: Apache-2.0
//
// Loading, choosing and listing plugins; errors for bad libraries.
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <sstream>

#include "cli/commands.hpp"
#include "engine/calls/instance.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"
#include "plugin/capabilities.hpp"
#include "plugin/check_module.hpp"
#include "plugin/float_state.hpp"
#include "plugin/probe.hpp"
#include "plugin/registry.hpp"

namespace fs = std::filesystem;
using namespace ddhost;
using namespace ddhost::test;

namespace {

const void* no_interfaces(const char*) { return nullptr; }

const void* any_interface(const char*) {
  static constexpr std::array<char, 256> kTable{};
  return kTable.data();
}

std::string refusal(const std::string& name) {
  return sentence_of([&] { Library::load(fake_plugin(name), no_interfaces); });
}

// An executable's folder whose plugins/ holds the named fakes.
struct Home {
  TempFolder folder;
  explicit Home(const std::vector<std::string>& names) {
    fs::create_directory(folder.path() / "plugins");
    for (const std::string& name : names) fs::copy(fake_plugin(name), folder.path() / "plugins" / (name + ".so"));
  }
  [[nodiscard]] Registry registry() const { return {no_interfaces, folder.path()}; }
};

std::string not_found(Registry registry, int32_t kind, const std::string& choice) {
  return sentence_of([&] { registry.find(kind, choice, "/"); });
}

struct Report {
  int code;
  std::string text;
};
Report inspect(const std::string& name) {
  std::ostringstream out;
  const Registry registry(no_interfaces, "/nowhere");
  const int code = inspect_plugin(registry, fake_plugin(name), out);
  return {code, out.str()};
}

}  // namespace

TEST_CASE("a good library is loaded and described", "[loader]") {
  const Library library = Library::load(fake_plugin("good"), no_interfaces);
  REQUIRE(library.module().n_desc == 1);
  CHECK(std::string(library.module().desc[0]->id) == "good");
  CHECK(library.warnings().empty());
}

TEST_CASE("every bad library is refused with its file and the reason", "[loader]") {
  const std::map<std::string, std::string> reasons = {
      {"plain", "does not export ddh_plugin_entry_0"},
      {"other_major", "version 2 of the ddhost ABI"},
      {"other_major_note", "version 2 of the ddhost ABI"},
      {"first_draft", "was built for the first draft of the ABI (version 1.0)"},
      {"other_headers", "was built with other headers of the ABI than this host (their checksum is 0000000000000007"},
      {"tail_set", "ddh_desc is of a newer version: byte 136 is set"},
      {"unknown_kind", "'unknown_kind', which is of kind 200, unknown to this host"},
      {"unknown_cap", "strategy 'unknown_cap' with capability bits 0x0000010000000000"},
      {"unknown_use", "strategy 'unknown_use', which uses the features 0x0000000200000000"},
      {"newer_minor", "needs a newer host"},
      {"needs_missing", "'ddh.telepathy/1'"},
      {"same_id_twice", "'left' twice"},
      {"illegal_id", "illegal id"},
      {"short_module", "ill-formed module: ddh_module.struct_size is 8, but at least 48 is needed"},
      {"control_character", "control characters in the version or the summary"},
      {"entry_throws", "threw an exception from its entry"},
      {"links_gone", "libtorch_gone.so: cannot open shared object file"},
  };
  for (const auto& [name, reason] : reasons) {
    INFO(name << ": " << refusal(name));
    CHECK_THAT(refusal(name), Catch::Contains(fake_plugin(name)) && Catch::Contains(reason));
  }
}

TEST_CASE("a library that calls exit when it is loaded is reported with its own exit code", "[loader]") {
  CHECK_THAT(sentence_of([] { probe(fake_plugin("constructor_exits"), no_interfaces, MissingInterfaces::kRefuse); }),
             Catch::Contains("ended the process that loaded it (exit code 0)"));
}

TEST_CASE("libraries that are inspected together answer as each does alone", "[loader]") {
  std::vector<fs::path> files;
  for (const char* name : {"good", "constructor_exits", "plain", "links_gone", "long_summary", "good"})
    files.emplace_back(fake_plugin(name));
  files.insert(files.begin() + 1, "/nowhere/gone.so");
  const std::vector<Probed> all = probe_all(files, no_interfaces, MissingInterfaces::kRefuse);
  REQUIRE(all.size() == files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    INFO(files[i]);
    CHECK(all[i].file == files[i]);
    const std::string alone = sentence_of([&] { probe(files[i], no_interfaces, MissingInterfaces::kRefuse); });
    CHECK(all[i].problem == alone);
    CHECK(all[i].facts.has_value() == alone.empty());
  }
  CHECK(all[0].get().plugins.at(0).id == "good");
  CHECK_THROWS_WITH(all[2].get(), Catch::Contains("ended the process that loaded it"));
}

TEST_CASE("long texts of a descriptor are shortened by list and inspect", "[loader]") {
  const Home home({"long_summary"});
  std::ostringstream listed;
  CHECK(list_plugins(home.registry(), listed) == 0);
  const Report inspected = inspect("long_summary");
  for (const std::string& text : {listed.str(), inspected.text}) {
    INFO(text.substr(0, 4000));
    CHECK(text.size() < 4000);
    CHECK_THAT(text, Catch::Contains("begin xxx") && Catch::Contains("bytes left out") && Catch::Contains("xxx!!!"));
  }
}

TEST_CASE("a missing LibTorch is explained with the version that the note names", "[loader]") {
  CHECK_THAT(refusal("links_gone"), Catch::Contains("built with LibTorch 2.11.0"));
}

TEST_CASE("a library's switch to flush-to-zero is undone and reported", "[loader]") {
  const FloatState before = FloatState::current();
  const Library library = Library::load(fake_plugin("flushes_to_zero"), no_interfaces);
  CHECK_FALSE(before.restore_if_changed());
  REQUIRE(library.warnings().size() == 1);
  CHECK_THAT(library.warnings()[0], Catch::Contains("-ffast-math"));
}

TEST_CASE("other headers are refused before the freeze, and give a warning after it", "[loader]") {
  using Kind = HeaderVerdict::Kind;
  CHECK(judge_headers(0, 2, 2, 7, 7).kind == Kind::kFine);
  CHECK(judge_headers(1, 4, 4, 7, 7).kind == Kind::kFine);
  for (const int minor : {0, 2, 9}) CHECK(judge_headers(0, 2, minor, 7, 8).kind == Kind::kRefuse);
  CHECK_THAT(judge_headers(0, 2, 2, 7, 8).sentence, Catch::Contains("0000000000000007") &&
                                                        Catch::Contains("0000000000000008") &&
                                                        Catch::Contains("rebuild it with this host's SDK"));
  const HeaderVerdict same_version = judge_headers(1, 4, 4, 7, 8);
  CHECK(same_version.kind == Kind::kWarn);
  CHECK_THAT(same_version.sentence, Catch::Contains("other headers of the same ABI version 1.4"));
  CHECK(judge_headers(1, 4, 3, 7, 8).kind == Kind::kFine);  // an older version has other headers
}

TEST_CASE("vendor definitions are accepted, and so is a newer descriptor without requirements", "[loader]") {
  for (const char* name : {"tail_zero", "vendor_kind", "vendor_cap", "understands_more"}) {
    INFO(name);
    CHECK(refusal(name).empty());
  }
}

TEST_CASE("a model is refused if it uses a feature that the strategy does not support", "[loader]") {
  const auto plugin_of = [](const std::string& name) {
    const Library library = Library::load(fake_plugin(name), any_interface);
    return Plugin{&library.module(), library.module().desc[0], library.file()};
  };
  const Plugin model = plugin_of("uses_updates");
  const auto meets = [&](const char* strategy) {
    return sentence_of([&] { check_features(model, plugin_of(strategy)); });
  };
  CHECK_THAT(meets("good"), Catch::Contains("model 'uses_updates' uses update programs, several optimizers, which "
                                            "strategy 'good' does not support"));
  CHECK_THAT(meets("understands_updates"), Catch::Contains("model 'uses_updates' uses several optimizers, which"));
  CHECK(sentence_of([&] { check_features(plugin_of("good"), plugin_of("good")); }).empty());
}

TEST_CASE("a feature of others must be understood by the strategy and the transport", "[loader]") {
  const auto plugin_of = [](const std::string& name) {
    const Library library = Library::load(fake_plugin(name), any_interface);
    return Plugin{&library.module(), library.module().desc[0], library.file()};
  };
  const std::string sentence = sentence_of([&] { check_feature_ids(plugin_of("uses_mesh"), plugin_of("good")); });
  CHECK_THAT(sentence, Catch::Contains("model 'uses_mesh' uses 'org.example.mesh/1', which strategy 'good' does not"));
  CHECK(sentence_of([&] { check_feature_ids(plugin_of("good"), plugin_of("good")); }).empty());
}

TEST_CASE("a create that fails or throws becomes a sentence with the plugin's name", "[loader]") {
  const ProbeHost host(no_interfaces, MissingInterfaces::kRefuse);
  const auto create = [&](const std::string& name) {
    const Library library = Library::load(fake_plugin(name), no_interfaces);
    const Plugin plugin{&library.module(), library.module().desc[0], library.file()};
    return sentence_of([&] { Instance(plugin, host.host(), "strategy"); });
  };
  CHECK(create("create_fails") == "strategy 'create_fails', create: the tide is out; wait for the moon");
  CHECK_THAT(create("create_throws"), Catch::Contains("'throws'") && Catch::Contains("ouch"));
  CHECK(create("good").empty());
}

TEST_CASE("tables of an instance are checked for their size", "[loader]") {
  const ProbeHost host(no_interfaces, MissingInterfaces::kRefuse);
  const Library library = Library::load(fake_plugin("good"), no_interfaces);
  const Instance instance({&library.module(), library.module().desc[0], library.file()}, host.host(), "strategy");
  CHECK(instance.find<char>("ddh.none/1", 8) == nullptr);
  CHECK_THAT(sentence_of([&] { static_cast<void>(instance.require<char>("ddh.none/1", 8)); }),
             Catch::Contains("lacks the interface ddh.none/1"));
  CHECK(instance.find<char>("ddh.short/1", 4) != nullptr);
  CHECK_THAT(sentence_of([&] { static_cast<void>(instance.find<char>("ddh.short/1", 8)); }),
             Catch::Contains("4 bytes"));
}

TEST_CASE("a choice is a name, a path, or a path with an id", "[loader]") {
  CHECK_FALSE(parse_choice("zero3").is_path);
  CHECK(parse_choice("zero3.so").is_path);
  CHECK(parse_choice("./zero3").is_path);
  CHECK(parse_choice("a/b.so:left").file == "a/b.so");
  CHECK(parse_choice("a/b.so:left").id == "left");
}

TEST_CASE("names are found beside the executable, by file name and by the notes of libraries", "[loader]") {
  const Home home({"good", "two", "optimizer"});
  Registry registry = home.registry();
  CHECK(registry.find(DDH_KIND_STRATEGY, "good", "/").id() == "good");
  CHECK(registry.find(DDH_KIND_STRATEGY, "right", "/").id() == "right");
  CHECK(registry.find(DDH_KIND_OPTIMIZER, "fake_optimizer", "/").file.filename() == "optimizer.so");
}

TEST_CASE("paths are tried against the given folder, then beside the executable", "[loader]") {
  const Home home({"good", "two"});
  Registry registry = home.registry();
  CHECK(registry.find(DDH_KIND_STRATEGY, "plugins/good.so", "/").id() == "good");
  CHECK(registry.find(DDH_KIND_STRATEGY, "good.so", home.folder.path() / "plugins").id() == "good");
  CHECK(registry.find(DDH_KIND_STRATEGY, "plugins/two.so:left", "/").id() == "left");
}

TEST_CASE("the error of an impossible choice lists the available plugins", "[loader]") {
  const Home home({"good", "two", "optimizer"});
  CHECK_THAT(not_found(home.registry(), DDH_KIND_STRATEGY, "goood"), Catch::Contains("did you mean 'good'?"));
  CHECK_THAT(not_found(home.registry(), DDH_KIND_MODEL, "good"), Catch::Contains("is a strategy, not a model"));
  CHECK_THAT(not_found(home.registry(), DDH_KIND_STRATEGY, "plugins/optimizer.so"),
             Catch::Contains("optimizer 'fake_optimizer'") && Catch::Contains("not a strategy"));
  CHECK_THAT(not_found(home.registry(), DDH_KIND_STRATEGY, "plugins/two.so"),
             Catch::Contains("choose one as two.so:left"));
  CHECK_THAT(not_found(home.registry(), DDH_KIND_STRATEGY, "plugins/two.so:up"),
             Catch::Contains("holds no strategy 'up'"));
  CHECK_THAT(not_found(home.registry(), DDH_KIND_STRATEGY, "no/such.so"), Catch::Contains("no/such.so"));
  CHECK_THAT(not_found(home.registry(), DDH_KIND_STRATEGY, ""), Catch::Contains("no strategy is named"));
}

TEST_CASE("DDHOST_PLUGIN_PATH is searched too", "[loader]") {
  const Home home({}), more({"good"});
  setenv("DDHOST_PLUGIN_PATH", (more.folder.path() / "plugins").c_str(), 1);
  Registry registry = home.registry();
  unsetenv("DDHOST_PLUGIN_PATH");
  CHECK(registry.find(DDH_KIND_STRATEGY, "good", "/").id() == "good");
}

TEST_CASE("a library whose note lists other plugins than it offers is refused", "[loader]") {
  const Home home({"other_id_in_note"});
  const std::string by_name = not_found(home.registry(), DDH_KIND_STRATEGY, "bad");
  for (const std::string& refused : {by_name, refusal("other_id_in_note")}) {
    CHECK_THAT(refused, Catch::Contains("other_id_in_note.so'") &&
                            Catch::Contains("lists strategy 'bad' in its note") &&
                            Catch::Contains("offers strategy 'bbd'") && Catch::Contains("DDH_PLUGIN"));
  }
  CHECK(inspect("other_id_in_note").code == 1);
}

TEST_CASE("a name that two files offer is refused with both paths, and a path chooses one", "[loader]") {
  const Home home({"good"}), more({"good", "two"});
  const fs::path first = home.folder.path() / "plugins/good.so", second = more.folder.path() / "plugins/good.so";
  setenv("DDHOST_PLUGIN_PATH", (more.folder.path() / "plugins").c_str(), 1);
  Registry registry = home.registry();
  unsetenv("DDHOST_PLUGIN_PATH");
  CHECK_THAT(not_found(registry, DDH_KIND_STRATEGY, "good"),
             Catch::Contains("'good'") && Catch::Contains(first.string() + " and " + second.string()) &&
                 Catch::Contains("give the path") && Catch::Contains("--strategy " + second.string() + ":good"));
  CHECK(registry.find(DDH_KIND_STRATEGY, first.string(), "/").file == first);
  CHECK(registry.find(DDH_KIND_STRATEGY, second.string() + ":good", "/").file == second);
  CHECK(registry.find(DDH_KIND_STRATEGY, "left", "/").id() == "left");
}

TEST_CASE("a name that the program and a file offer is refused", "[loader]") {
  const Home home({"good", "two"});
  const LinkedPlugin linked{"good", [](const ddh_host*, const ddh_module** out, ddh_err*) noexcept -> ddh_rc {
                              static const Library library = Library::load(fake_plugin("good"), no_interfaces);
                              *out = &library.module();
                              return DDH_OK;
                            }};
  Registry registry(no_interfaces, home.folder.path(), {linked});
  CHECK_THAT(not_found(registry, DDH_KIND_STRATEGY, "good"),
             Catch::Contains("this program and " + (home.folder.path() / "plugins/good.so").string()) &&
                 Catch::Contains("remove the file"));
}

TEST_CASE("list shows plugins, duplicates and what can't be used", "[loader]") {
  const Home home({"good", "two", "plain", "entry_crashes", "constructor_exits", "constructor_prints"});
  fs::copy(fake_plugin("good"), home.folder.path() / "plugins" / "z_copy.so");
  const Registry registry = home.registry();
  std::ostringstream out;
  CHECK(list_plugins(registry, out) == 0);
  CHECK_THAT(out.str(), Catch::Contains("strategy   left") && Catch::Contains("strategy   right"));
  CHECK_THAT(out.str(), Catch::Contains("[duplicate in") && Catch::Contains("z_copy.so") &&
                            Catch::Contains("the name is refused, give a path"));
  CHECK_THAT(out.str(), Catch::Contains("not usable: ") && Catch::Contains("plain.so"));
  CHECK_THAT(out.str(), Catch::Contains("entry_crashes.so' is damaged: loading it ends with signal 6"));
  CHECK_THAT(out.str(), Catch::Contains("constructor_exits.so' ended the process that loaded it (exit code 0)"));
  CHECK_THAT(out.str(), Catch::Contains("strategy   constructor_prints") && !Catch::Contains("talks"));
}

TEST_CASE("loading a library that never returns fails after the limit", "[loader]") {
  CHECK_THAT(sentence_of([] {
               probe(fake_plugin("constructor_loops"), no_interfaces, MissingInterfaces::kRefuse,
                     std::chrono::milliseconds(300));
             }),
             Catch::Contains("constructor_loops.so' was still being loaded after 0.3 s"));
}

TEST_CASE("a probe gives the same result as a load", "[loader]") {
  const LibraryFacts facts = probe(fake_plugin("two"), no_interfaces, MissingInterfaces::kRefuse);
  REQUIRE(facts.plugins.size() == 2);
  CHECK(facts.plugins[0].id == "left");
  CHECK(facts.plugins[0].config_schema.value_or("").find("bucket_bytes") != std::string::npos);
  CHECK_FALSE(facts.plugins[1].config_schema.has_value());
  CHECK(facts.plugins[1].caps == DDH_CAP_IN_PROCESS);
  CHECK(facts.abi_minor == DDH_ABI_MINOR);
  const Home home({"flushes_to_zero"});  // a copy: this process may have loaded the other one, which runs nothing again
  CHECK(probe(home.folder.path() / "plugins/flushes_to_zero.so", no_interfaces, MissingInterfaces::kRefuse)
            .warnings.size() == 1);
  CHECK_THAT(sentence_of([] { probe(fake_plugin("plain"), no_interfaces, MissingInterfaces::kRefuse); }),
             Catch::Contains("plain.so' is a shared library but not a ddhost plugin"));
}

TEST_CASE("inspect shows a plugin's options, needs and versions", "[loader]") {
  const Report good = inspect("good");
  CHECK(good.code == 0);
  for (const char* word :
       {"strategy 'good' 1.0.0", "built with 0.3", "vendor       org.example", "several ranks in one process",
        "strategy.bucket_bytes", "1024", "at least 0 bytes", "size of a bucket", "reduce_bucket_size"})
    CHECK_THAT(good.text, Catch::Contains(word));
}

TEST_CASE("inspect marks drafts and lists features", "[loader]") {
  const Report draft = inspect("understands_updates");
  CHECK_THAT(draft.text, Catch::Contains("ddh.strategy/1\n") && Catch::Contains("ddh.stream/0 (draft)"));
  CHECK_THAT(draft.text, Catch::Contains("understands  update programs\n"));
  const Report model = inspect("uses_updates");
  CHECK_THAT(model.text, Catch::Contains("uses         update programs, several optimizers\n"));
}

TEST_CASE("inspect survives a library that crashes", "[loader]") {
  const Report crashed = inspect("entry_crashes");
  CHECK(crashed.code == 1);
  CHECK_THAT(crashed.text, Catch::Contains("signal 6 (Aborted)") && Catch::Contains("what its note says"));
}

TEST_CASE("inspect shows why a plugin can't be used, and what is known about it", "[loader]") {
  const Report needs = inspect("needs_missing");
  CHECK(needs.code == 1);
  CHECK_THAT(needs.text, Catch::Contains("ddh.telepathy/1 (NOT OFFERED") && Catch::Contains("strategy.bucket_bytes"));
  const Report gone = inspect("links_gone");
  CHECK(gone.code == 1);
  CHECK_THAT(gone.text, Catch::Contains("cannot open shared object file") && Catch::Contains("2.11.0") &&
                            Catch::Contains("links_gone") && Catch::Contains("libtorch_gone.so"));
  const Report future = inspect("other_major_note");
  CHECK(future.code == 1);
  CHECK_THAT(future.text, Catch::Contains("strategy     future") && Catch::Contains("Future 3.1.0"));
  CHECK(inspect("bad_schema").code == 1);
  CHECK_THAT(inspect("bad_schema").text, Catch::Contains("colour"));
}
