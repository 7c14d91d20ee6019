#include "runtime/engine/loop/best_evaluation.h"

#include <cmath>
#include <string>

namespace ds::engine {

bool BestEvaluation::Add(std::int64_t step, double loss) {
  const bool is_better = std::isfinite(loss) && (!best_ || loss < best_->loss);
  if (is_better) best_ = {.step = step, .loss = loss};
  since_ = is_better ? 0 : since_ + 1;
  return is_better;
}

nlohmann::json BestEvaluation::State() const {
  nlohmann::json state = {{"since", since_}};
  if (best_)
    state["best"] = {
        {"step", best_->step}, {"loss", best_->loss}, {"saved_for_it", best_->saved_for_it}};
  return state;
}

Status BestEvaluation::LoadState(const nlohmann::json& state) {
  BestEvaluation loaded;
  try {
    loaded.since_ = state.at("since");
    if (state.contains("best")) {
      const nlohmann::json& best = state["best"];
      loaded.best_ = Best{.step = best.at("step"),
                          .loss = best.at("loss"),
                          .saved_for_it = best.at("saved_for_it")};
    }
  } catch (const nlohmann::json::exception&) {
    return DataLossError("the state of evaluations has a value that is missing or of another type");
  }
  best_ = loaded.best_;
  since_ = loaded.since_;
  return OkStatus();
}

}  // namespace ds::engine
