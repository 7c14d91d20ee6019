#pragma once

// ChosenState saves or loads a part of an engine's state: DeepSpeed's options of save_checkpoint
// and load_checkpoint. Engine::state() is all of it.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/stateful.h"
#include "runtime/engine/engine.h"

namespace ds::engine {

// StateChoice says what is saved or loaded. A load leaves the rest of the engine's state as it is.
struct StateChoice {
  bool weights = true;  // of all parameters, and the buffers of modules
  bool frozen = true;   // among the weights, those of frozen parameters
  // The optimizer's tensors and its count of updates; needs `progress`. Without it, the masters of
  // loaded weights are loaded, too.
  bool optimizer_state = true;
  bool progress = true;  // counts of steps and samples, loss scale, a rate that was set
  bool schedule = true;  // the schedule's position; without `progress` it stays as it is
  // If false, a load skips tensors that the engine does not have, and leaves those as they are that
  // the checkpoint does not have.
  bool strict = true;
};

class ChosenState : public checkpoint::Stateful {
 public:
  // `engine` must outlive this object.
  ChosenState(Engine& engine, const StateChoice& choice) : engine_(engine), choice_(choice) {}

  // Loads as checkpoint::LoadCheckpoint; without the optimizer's state, weights are converted to
  // the dtype that the engine keeps. Drops the micro-batches of the step in progress. Collective.
  Status Load(const std::filesystem::path& directory);

  std::string_view state_name() const override { return engine_.state().state_name(); }
  Status CheckSavable() const override { return engine_.state().CheckSavable(); }
  void AddShards(std::vector<checkpoint::TensorShard>* shards) override;
  nlohmann::json State() const override { return engine_.state().State(); }
  Status CheckState(const nlohmann::json& state) const override;
  void ExpectState(const nlohmann::json& state) override;
  Status LoadState(const nlohmann::json& state) override;

 private:
  std::set<std::string> ListFrozen() const;

  Engine& engine_;
  StateChoice choice_;
};

}  // namespace ds::engine
