// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/own_optims.hpp: optimizers that a strategy makes for tensors of its own (ddh/service/own_optim.h),
// each an instance of an optimizer plugin with options of its own.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/calls/plugin.hpp"

namespace ddhost {

struct RankServices;
class OwnOptim;

// Finds and loads an optimizer by its name or path.
using FindOptimizer = std::function<Plugin(const std::string& id)>;

class OwnOptims {
 public:
  // `services` and `model` outlive the object.
  OwnOptims(RankServices& services, const ddh_model_desc& model, FindOptimizer find);
  OwnOptims(const OwnOptims&) = delete;
  OwnOptims& operator=(const OwnOptims&) = delete;
  ~OwnOptims();

  // `options`: JSON of an object; "": the defaults. `section`: theirs, in messages.
  OwnOptim& create(const std::string& id, const std::string& section, const std::string& options);

 private:
  RankServices& services_;
  const ddh_model_desc& model_;
  const FindOptimizer find_;
  std::deque<std::unique_ptr<OwnOptim>> all_;
};

class OwnOptim {
 public:
  virtual ~OwnOptim() = default;
  [[nodiscard]] virtual const std::vector<ddh_slot_desc>& slots() const = 0;
  [[nodiscard]] virtual int32_t needs(int32_t param) const = 0;
  virtual void update(const ddh_optim_shard& shard, const ddh_step_block& block) = 0;

 protected:
  OwnOptim() = default;
};

}  // namespace ddhost
