#pragma once

// EngineState: the engine's part of checkpoints (Engine::state says what it holds).

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/stateful.h"
#include "runtime/engine/engine_parts.h"

namespace ds::engine {

class EngineState : public checkpoint::Stateful {
 public:
  // `parts` outlives this.
  explicit EngineState(EngineParts& parts) : parts_(parts) {}

  std::string_view state_name() const override { return "engine"; }
  Status CheckSavable() const override;
  void AddShards(std::vector<checkpoint::TensorShard>* shards) override;
  nlohmann::json State() const override;
  Status CheckState(const nlohmann::json& state) const override;
  Status LoadState(const nlohmann::json& state) override;

 private:
  EngineParts& parts_;
};

}  // namespace ds::engine
