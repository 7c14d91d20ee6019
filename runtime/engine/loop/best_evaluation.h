#pragma once

// BestEvaluation tracks the lowest evaluation loss of a run, its step, and the number of
// evaluations since then. Saved in a run's checkpoints, so that a resumed run continues with it.
//
// The same on every rank. Not thread-safe.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/stateful.h"

namespace ds::engine {

inline constexpr std::string_view kBestEvaluationState = "best_evaluation";

class BestEvaluation : public checkpoint::Stateful {
 public:
  struct Best {
    std::int64_t step = 0;
    double loss = 0.0;
    bool saved_for_it = false;  // its checkpoint was saved only because it is the best
  };

  // Adds the evaluation after a step. Returns true if its loss is lower than all before; a loss
  // that is not finite never is.
  bool Add(std::int64_t step, double loss);

  // Marks that the best one has a checkpoint only because it is the best. Requires best().
  void MarkSavedForIt() { best_->saved_for_it = true; }

  const std::optional<Best>& best() const { return best_; }  // nullopt before the first
  std::int64_t evaluations_since() const { return since_; }

  std::string_view state_name() const override { return kBestEvaluationState; }
  void AddShards(std::vector<checkpoint::TensorShard>* /*shards*/) override {}
  nlohmann::json State() const override;
  Status LoadState(const nlohmann::json& state) override;

 private:
  std::optional<Best> best_;
  std::int64_t since_ = 0;
};

}  // namespace ds::engine
