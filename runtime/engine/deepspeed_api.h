#pragma once

// DeepSpeedApi: what DeepSpeed's engine offers beside forward, backward and step, under its names:
// counts, batch sizes, boundaries, rates, gradients that stay local, states that wait on the host.
//
//   ds::DeepSpeedApi(engine).set_lr(1e-4).ok();
//
// It holds nothing but a reference to the engine, which outlives it. Collective unless it is a
// plain getter: all ranks call it in the same order.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/report/phase_timers.h"
#include "runtime/zero/state_kind.h"

namespace ds::engine {

class DeepSpeedApi {
 public:
  explicit DeepSpeedApi(Engine& engine);

  // Counted over the whole run, checkpoints included: skipped steps, micro-batches (also those of
  // the step in progress) and samples (of all ranks) of finished steps.
  std::int64_t skipped_steps() const;
  std::int64_t micro_steps() const;
  std::int64_t global_samples() const;

  // The batch equation of the steps to come. It can be changed between steps, not inside one; the
  // caller then brings as many micro-batches, of that size. Not part of checkpoints.
  const config::BatchConfig& batch_sizes() const;
  // Keeps the micro-batch; refused when micro-batches and ranks do not divide `train`.
  Status set_train_batch_size(std::int64_t train);
  // Keeps the accumulation.
  Status set_train_micro_batch_size(std::int64_t micro);

  // True when the micro-batch in progress, or between two of them the next one, is its step's last:
  // by their count, or as the user says (set_gradient_accumulation_boundary), or decides by calling
  // step() (managed_gradient_accumulation false).
  bool is_gradient_accumulation_boundary() const;
  // Takes the decision from the count of micro-batches, until the next call: with false, step()
  // finishes nothing. Refused with managed_gradient_accumulation false.
  Status set_gradient_accumulation_boundary(bool is_boundary);

  // While the returned scope lives, backward communicates no gradient and step() is refused, as a
  // second scope is. no_sync is for gradients that are not sharded, whose backward never does
  // before the boundary; it is refused at stages 2 and 3. coalesce_grad_reduction is for every
  // stage: sharded gradients then stay whole on every rank, in the dtype they travel in, until the
  // next backward outside the scope or the step reduces them all at once.
  class LocalGradients;
  StatusOr<LocalGradients> no_sync();
  StatusOr<LocalGradients> coalesce_grad_reduction();

  // Tells whether the latest step() has changed the parameters.
  bool was_step_applied() const;
  // The norm of the latest finished step, before clipping; nothing before the first.
  std::optional<double> global_grad_norm() const;
  // The rate and momentum that the next update will use.
  double lr() const;
  double momentum() const;  // Adam's beta1, SGD's and Muon's momentum
  // Sets it: for one update where a schedule gives the next one, for good where there is none.
  // Groups keep their factors; Muon's halves both get it, as in DeepSpeed. Part of checkpoints.
  Status set_lr(double lr);
  // Says of the next micro-batch which sample of its step it begins with, and of that step what
  // its rate is multiplied by, where batches are of samples as they come (dynamic batching: as
  // VariableBatchSizeLR does). The factor stays until it is told anew; not part of checkpoints.
  void place_batch(std::int64_t first_sample, double lr_factor);
  double loss_scale() const;

  // Tells what a recomputed block, or its attention, has taken on this rank.
  struct RecomputeTimes {
    std::string block;  // as in messages
    std::chrono::nanoseconds first{0}, again{0};
  };
  // Since the last call, in the model's order; nothing without activation_checkpointing.profile.
  std::vector<RecomputeTimes> take_recompute_times();
  // Tells what the phases of the latest finished step have taken on this rank; none before the
  // first, and without wall_clock_breakdown.
  const std::optional<PhaseTimes>& wall_clock_timers() const;

  // Between steps: takes model state to host memory, all of it or these kinds, so that something
  // else can have the device's. It comes back with reload_states, or the next call that needs it.
  // Refused inside a step.
  Status offload_states(const std::vector<zero::StateKind>& include = {});
  Status reload_states();
  // Frees the buffers that gathered parameters and gradients have used; refused inside a step.
  Status empty_partition_cache();

 private:
  Status ChangeBatch(const StatusOr<config::BatchConfig>& batch);

  EngineParts& parts_;
};

// Ends with its destructor; the engine outlives it.
class DeepSpeedApi::LocalGradients {
 public:
  LocalGradients(LocalGradients&&) = default;
  ~LocalGradients() = default;

 private:
  friend class DeepSpeedApi;
  explicit LocalGradients(bool* inside);
  struct Leave {
    void operator()(bool* inside) const { *inside = false; }
  };
  std::unique_ptr<bool, Leave> inside_;
};

}  // namespace ds::engine

namespace ds {
using engine::DeepSpeedApi;
}  // namespace ds
