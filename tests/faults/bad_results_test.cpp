// SPDX-License-Identifier: Apache-2.0
//
// Results of plugins are checked before they are used: views, descriptions, batches, metrics, slots, state.
#include "fixtures/harness/bad_run.hpp"

using namespace ddhost::test;

namespace {

struct Case {
  const char* fault;
  const char* word;
};

}  // namespace

TEST_CASE("an invalid view is refused, and the error names the unit and the fault", "[misbehaving]") {
  const auto [fault, word] = GENERATE(values<Case>({{"stride_0", "param_stride 0"},
                                                    {"stride_8", "param_stride 8"},
                                                    {"n_params_0", "of 0 parameters"},
                                                    {"null_params", "with the invalid pointer params"},
                                                    {"null_data", "without data (NULL) of parameter"},
                                                    {"odd_data", "is not a multiple of 4"},
                                                    {"wrong_param", "at index 0, where"},
                                                    {"wrong_numel", "elements of parameter"},
                                                    {"wrong_dtype", "with dtype 6"},
                                                    {"null_grad", "without a gradient (NULL)"},
                                                    {"grad_in_forward", "which this call does not train"},
                                                    {"wrong_mode", "mode 9"},
                                                    {"later", "whose gradient has no blocks"}}));
  check_named(run_bad(bad_strategy("acquire", fault, {"strategy.rank=1", "strategy.step=2"})),
              {"rank 1: strategy 'bad', acquire of unit", "gave a view", word, "fix the plugin"});
}

TEST_CASE("blocks of gradients are checked, and the error names the unit and the fault", "[misbehaving]") {
  const Words in_blocks = {"model.width=8", "model.hidden=70", "model.grad_rows=8"};
  CHECK(run_bad(bad_strategy("next_block", "none", in_blocks)).code == 0);
  const auto [fault, word] = GENERATE(values<Case>({{"block_twice", "gave block 0 of parameter 'layers.2.w1' twice"},
                                                    {"block_missing", "ended without block 1 of parameter"},
                                                    {"no_later", "ended without block 0 of parameter"},
                                                    {"odd_offset", "its blocks have 64 of 560 elements"},
                                                    {"wrong_numel", "its blocks have 64 of 560 elements"},
                                                    {"wrong_param", "does not show as DDH_GRAD_LATER"},
                                                    {"null_grad", "give DDH_GRAD_WRITE or DDH_GRAD_ADD"},
                                                    {"wrong_mode", "with mode 3"}}));
  check_named(run_bad(joined(bad_strategy("next_block", fault, {"strategy.rank=1", "strategy.step=2"}), in_blocks)),
              {"rank 1: strategy 'bad', next_block of unit", word, "fix the plugin"});
}

TEST_CASE("an unreadable description of a model is refused, and the error names the fault", "[misbehaving]") {
  const auto [fault, word] = GENERATE(values<Case>({{"null_params", "1 parameters at NULL"},
                                                    {"n_params_0", "uses parameter 0 of 0"},
                                                    {"null_param", "parameter 0 of the model is NULL"},
                                                    {"small_struct", "struct_size 8"},
                                                    {"null_name", "parameter 0 of the model has no name"},
                                                    {"null_shape", "has no shape"},
                                                    {"wrong_owner", "owned by unit 7"},
                                                    {"null_unit_list", "lists 1 parameters at NULL"},
                                                    {"wrong_unit_param", "uses parameter 9 of 1"},
                                                    {"wrong_program_unit", "uses unit -1 of 1"},
                                                    {"null_metrics", "has 1 metrics at NULL"},
                                                    {"null_metric", "a metric without a name"},
                                                    {"null_model_name", "the model has no name"}}));
  check_named(run_bad(bad_model("describe", fault)), {"model 'bad_model', describe", word});
}

TEST_CASE("ranks whose models have other numbers of samples are refused", "[misbehaving]") {
  check_named(run_bad(bad_model("describe", "own_samples")),
              {"rank 1 has another number of samples of program 'train' than rank 0", "same files"});
}

TEST_CASE("batches and metrics with invalid counts are refused", "[misbehaving]") {
  check_named(run_bad(bad_model("batch_create", "null_batch")), {"model 'bad_model', batch_create", "gave no batch"});
  check_named(run_bad(bad_model("batch_create", "nan_count")), {"model 'bad_model', batch_create", "loss_count"});
  check_named(run_bad(bad_model("batch_create", "null_batch", {"data.workers=4"})),
              {"model 'bad_model', batch_create", "gave no batch"});  // on any thread
  check_named(run_bad(bad_model("batch_create", "negative_count")), {"model 'bad_model', batch_create", "-1"});
  check_named(run_bad(bad_model("metrics", "nan_count")), {"model 'bad_model', metrics", "metric 0 (loss)", "nan"});
  check_named(run_bad(bad_model("metrics", "negative_count")), {"model 'bad_model', metrics", "the count -2"});
}

TEST_CASE("slots of an optimizer that this host does not know are refused", "[misbehaving]") {
  check_named(run_bad(bad_optimizer("slot", "null_name")), {"optimizer 'bad_optimizer', slot", "no name"});
  check_named(run_bad(bad_optimizer("slot", "wrong_dtype")), {"optimizer 'bad_optimizer', slot", "dtype 99"});
  check_named(run_bad(bad_optimizer("slot", "wrong_extent")), {"optimizer 'bad_optimizer', slot", "extent 77"});
}

TEST_CASE("invalid state of a strategy is refused before the first step", "[misbehaving]") {
  const auto [fault, word] = GENERATE(values<Case>({{"missing_entry", "must occur once"},
                                                    {"null_data", "has no data (NULL)"},
                                                    {"wrong_param", "names parameter 99"},
                                                    {"wrong_replica", "is replica"},
                                                    {"more_than_asked", "entries and then gave"}}));
  check_named(run_bad(bad_strategy("state", fault)), {"strategy 'bad', state", word, "fix the plugin"});
}
