#include "runtime/engine/loop/evaluate.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/comm/agreement.h"
#include "runtime/engine/engine_components.h"
#include "runtime/models/decoder/lm_head.h"

namespace ds::engine {
namespace {

// Puts every module into evaluation mode; the destructor restores the previous modes. Without
// blocks it does nothing: the executor reports that.
class EvaluationMode {
 public:
  explicit EvaluationMode(const BlockList* model) {
    if (model == nullptr) return;
    for (const std::shared_ptr<Block>& block : model->blocks()) {
      for (const auto& module : block->modules()) {
        modes_.emplace_back(module.get(), module->is_training());
      }
      block->eval();
    }
  }
  ~EvaluationMode() {
    // Setting a module's mode sets its submodules', which are restored after it.
    for (const auto& [module, trains] : modes_) module->train(trains);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
};

}  // namespace

StatusOr<Evaluation> Evaluate(Engine& engine, const BatchSource& next_batch,
                              std::int64_t micro_batches) {
  return Evaluate(engine, engine.components_->runner, next_batch, micro_batches);
}

StatusOr<Evaluation> Evaluate(Engine& engine, ChunkRunner& runner, const BatchSource& next_batch,
                              std::int64_t micro_batches) {
  Executor executor(engine, runner);
  const Clock& clock = *engine.components_->reporter.clock;
  RankTopology& topology = engine.components_->topology;
  const auto begin = clock.Now();
  const EvaluationMode mode(engine.components_->model.blocks.get());
  const c10::NoGradGuard no_grad;
  double sum = 0.0, count = 0.0, hits = 0.0;
  bool counts_hits = false;
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    DS_ASSIGN_OR_RETURN(Bundle batch, next_batch());
    const auto end = executor.RunThroughStages(std::move(batch));
    if (!end) continue;
    const double weight = end->loss_count.value_or(1.0);
    sum += end->loss.item<double>() * weight;
    count += weight;
    const auto found = end->extras.find(models::kHitsName);
    if (found == end->extras.end()) continue;
    counts_hits = true;
    hits += static_cast<double>(found->second.item<std::int64_t>());
  }
  if (topology.channels) topology.channels->AwaitSends();
  const auto ranks =
      comm::GatherNumbers({sum, count, hits, counts_hits ? 1.0 : 0.0}, *topology.world);
  double sums = 0.0, counts = 0.0, all_hits = 0.0, telling = 0.0;
  // Ranks with parts of the same samples have their own losses, of their own labels.
  for (const int rank : topology.LossRanksOver(topology::kGradientAxes)) {
    sums += ranks[static_cast<std::size_t>(rank)][0];
    counts += ranks[static_cast<std::size_t>(rank)][1];
    all_hits += ranks[static_cast<std::size_t>(rank)][2];
    telling += ranks[static_cast<std::size_t>(rank)][3];
  }
  const std::chrono::duration<double> seconds = clock.Now() - begin;
  const bool has_accuracy = telling > 0.0 && counts > 0.0;
  return Evaluation{.loss = counts == 0.0 ? 0.0 : sums / counts,
                    .accuracy = has_accuracy ? std::optional(all_hits / counts) : std::nullopt,
                    .labels = static_cast<std::int64_t>(counts),
                    .seconds = seconds.count()};
}

}  // namespace ds::engine
