#include "runtime/engine/chosen_state.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/engine/engine_components.h"

namespace ds::engine {

std::set<std::string> ChosenState::ListFrozen() const {
  std::set<std::string> frozen;
  for (const auto& unit : engine_.components_->model.sharded->units()) {
    for (const auto& bucket : unit->buckets()) {
      for (int i = 0; !bucket->trainable() && i < bucket->parameters().layout().size(); ++i) {
        frozen.insert(bucket->parameters().parameter(i).name);
      }
    }
  }
  return frozen;
}

void ChosenState::AddShards(std::vector<checkpoint::TensorShard>* shards) {
  std::vector<checkpoint::TensorShard> all;
  engine_.state().AddShards(&all);
  const std::set<std::string> left_out = choice_.frozen ? std::set<std::string>() : ListFrozen();
  for (checkpoint::TensorShard& shard : all) {
    const bool wanted =
        checkpoint::IsOptimizerState(shard.name) ? choice_.optimizer_state : choice_.weights;
    if (wanted && !left_out.contains(shard.name)) shards->push_back(std::move(shard));
  }
}

Status ChosenState::CheckState(const nlohmann::json& state) const {
  if (choice_.optimizer_state) return engine_.state().CheckState(state);
  return engine_.components_->model.CheckWeightsAreEqual();
}

void ChosenState::ExpectState(const nlohmann::json& state) {
  if (choice_.optimizer_state) engine_.state().ExpectState(state);
}

Status ChosenState::LoadState(const nlohmann::json& state) {
  EngineComponents& engine = *engine_.components_;
  StepCounts& counts = engine.step.state.counts;
  const std::int64_t updates = counts.optimizer_updates(), scheduled = counts.scheduled_updates();
  if (choice_.optimizer_state) {
    DS_RETURN_IF_ERROR(engine_.state().LoadState(state));
  } else {
    if (choice_.progress) DS_RETURN_IF_ERROR(engine.step.LoadProgress(state));
    if (choice_.progress) counts.optimizer_began = counts.applied - updates;
    engine.step.state.Forget();
    engine.model.optimizer->ClearGradients();
    engine.model.optimizer->PublishWeights();
  }
  if (choice_.progress && !choice_.schedule) counts.schedule_began = counts.applied - scheduled;
  return OkStatus();
}

Status ChosenState::Load(const std::filesystem::path& directory) {
  DS_CHECK(choice_.progress || !choice_.optimizer_state);
  DS_RETURN_IF_ERROR(engine_.components_->model.ReloadStates());
  const checkpoint::LoadRules rules{.skips =
                                        [this](const std::string& name) {
                                          const bool chosen = checkpoint::IsOptimizerState(name)
                                                                  ? choice_.optimizer_state
                                                                  : choice_.weights;
                                          return !chosen || !choice_.strict;
                                        },
                                    .keeps_missing = !choice_.strict,
                                    .converts = !choice_.optimizer_state};
  checkpoint::Stateful* const parts[] = {this};
  return checkpoint::LoadCheckpoint(directory, parts, engine_.world(), nullptr, rules);
}

}  // namespace ds::engine
