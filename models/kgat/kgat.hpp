// SPDX-License-Identifier: Apache-2.0
//
// kgat/kgat.hpp: the knowledge graph attention network, unit by unit: embedding, aggregator.0 .. aggregator.(L-1), score;
// and embedding, transr.
//
//   program    kind    units                             a sample is
//   cf         train   embedding, aggregators, score     a user with an item and one that it has not
//   kg         train   embedding, transr                 a triple and a wrong tail
//   eval       eval    embedding, aggregators, score     a user with test items
//   attention  update  embedding, transr                 a node, whose edges get new weights
//
// Data parallelism divides samples. Every micro-batch of cf passes through the whole graph, on each rank: the loss of a
// user depends on nodes three edges away, which is most of the graph. So a step of N micro-batches costs N passes, and the
// bits depend on the size of a micro-batch, not on where it runs.
//
// The attention is a function of the embeddings, the same on all ranks, and no gradient flows through it. So an update
// program renews it, which every rank runs over all nodes; a phase of train.phases, or train.update_every, says when.
#pragma once

#include <memory>
#include <optional>

#include "../ops/model_products.hpp"
#include "ddh/sdk/batch_view.hpp"
#include "ddh/sdk/torch/unit_model.hpp"
#include "layers.hpp"
#include "simplified.hpp"

namespace kgat {

inline constexpr int32_t kEmbeddingUnit = 0;

// What a micro-batch keeps from forward to backward.
struct Context {
  std::vector<at::Tensor> e;      // (N, width) outputs of embedding and aggregators
  std::vector<at::Tensor> norms;  // (N) of the aggregators' outputs
  std::vector<AggregatorSaved> saved;
  std::vector<SimplifiedSaved> simplified;  // of variant simplified, instead of norms and saved
  at::Tensor x;                             // rows (rows, d) that TransR projects
  at::Tensor y;                             // projected (rows, k)
  at::Tensor rows;                          // representations (3 B, F); in backward their gradients
  at::Tensor g;                             // backward: gradient of the last e, or of x
  std::vector<double> sums;
  std::vector<int32_t> users;  // of an evaluation whose scores were sent
  double count = 0;
  BatchOnDevice indices;
  [[nodiscard]] LayerOutputs outputs() const { return {e, norms}; }
};

class DDH_HIDDEN Kgat final : public ddh::UnitModel<KgatBatch, Context> {
 public:
  explicit Kgat(const ddh_create& create);

  const ddh_model_desc& describe() override { return desc_.get(); }
  void prepare() override;
  ddh_batch* batch_create(const ddh_batch_args& args, ddh_batch_info& info) override;
  bool estimate(const ddh_estimate_args& args, ddh_estimate& out) override;
  // The three figures of `out` that a plan needs beside activation_bytes.
  void add_peaks(const ddh_estimate_args& args, ddh_estimate& out);

  // A row of ids: a user with items, or a triple; and what was drawn against it (view.cpp).
  void view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const;
  [[nodiscard]] const void* interface(std::string_view id) const override {
    return id == DDH_BATCH_VIEW_IFACE ? ddh::batch_view_table<Kgat>() : UnitModel::interface(id);
  }

  // Adds to a batch what the graph needs; the host takes it over.
  ddh_batch* complete(KgatBatch batch);
  [[nodiscard]] const KgatData& data() const { return data_; }
  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const SimplifiedGraph& simplified() const { return simplified_.value(); }
  // (E) The weights of the edges; they may be changed before the next call.
  [[nodiscard]] std::vector<float>& attention() {
    weights_ = at::Tensor();
    return attention_;
  }
  [[nodiscard]] int32_t program(const std::string& name);  // its index
  // Between forward and backward: representations (N, F) of all nodes.
  [[nodiscard]] at::Tensor representations(int32_t micro_batch) const;

 protected:
  void run_forward(const ddh_unit_call& c) override;
  void run_backward(const ddh_unit_call& c) override;
  void give_metrics(int32_t program, int32_t micro_batch, double* sums, double* counts) override;

 private:
  [[nodiscard]] int32_t score_unit() const { return static_cast<int32_t>(config_.n_layers()) + 1; }
  [[nodiscard]] int32_t transr_unit() const { return score_unit() + 1; }
  [[nodiscard]] size_t layer_of(int32_t unit) const { return static_cast<size_t>(unit) - 1; }
  UnitContext unit_context(const ddh_unit_call& c);
  void run_simplified(const UnitContext& u, const ddh_unit_call& c, Context& context);
  void run_aggregator(const UnitContext& u, const ddh_unit_call& c, Context& context);
  void run_transr(const UnitContext& u, const ddh_unit_call& c, Context& context);
  void run_score(const UnitContext& u, const ddh_unit_call& c, Context& context);
  void backward_of_layer(const UnitContext& u, Context& context, size_t l) const;
  // Keeps or sends the sum of a batch's losses, the first metric.
  void give_loss(const LossSum& loss, const ddh_unit_call& c, Context& context);
  void evaluate(const UnitContext& u, const ddh_unit_call& c, Context& context);
  // Adds the metrics of the users' rankings to `sums`; scores (users, items) on the host.
  void add_rankings(const at::Tensor& scores, const std::vector<int32_t>& users, double* sums) const;
  const at::Tensor& weights();
  at::Tensor take_gradient_of(const UnitContext& u, Context& context, size_t l) const;
  void build_description();
  std::vector<int32_t> add_layer(size_t l);
  std::vector<int32_t> add_simplified_layer(size_t l);
  void add_units();
  void add_programs();

  const Config config_;
  const KgatData data_;
  const Graph graph_;
  const std::optional<SimplifiedGraph> simplified_;  // of variant simplified
  const std::unique_ptr<GraphOps> graph_ops_;
  const Sampler sampler_;
  std::vector<int32_t> test_users_;
  std::vector<float> attention_;  // (E) weights of the edges
  at::Tensor weights_;            // the same on the device; undefined: must be copied there
  ddh::ModelDesc desc_;
  ops::ModelProducts products_;
};

extern const char* const kNeeds[];

}  // namespace kgat
