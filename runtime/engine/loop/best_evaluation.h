#pragma once

// BestEvaluation: the lowest loss over data that is not learnt that a run has come to, at which
// step, and how many evaluations have been no better since. Part of a run's checkpoints, so that a
// resumed run knows it.
//
// The same on every rank. Threads: one.

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
    bool saved_for_it = false;  // its checkpoint has no other reason to be there
  };

  // Takes an evaluation behind a step; true when its loss is lower than all before. One that is not
  // finite is no better than any.
  bool Add(std::int64_t step, double loss);

  // Says that the best one has a checkpoint only because it is the best. Requires best().
  void MarkSavedForIt() { best_->saved_for_it = true; }

  const std::optional<Best>& best() const { return best_; }  // nothing before the first
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
