#pragma once

// DeepSpeedApi adds the rest of DeepSpeed's engine API to forward, backward and step, under
// DeepSpeed's names: counts, batch sizes, boundaries, learning rates, local gradients, offloaded
// states.
//
//   ds::DeepSpeedApi(engine).set_lr(1e-4).ok();
//
// It only holds a reference to the engine, which must outlive it. Every method except a plain
// getter is collective: all ranks call it in the same order.

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

  // Counts over the whole run, including its checkpoints: skipped steps, micro-batches (including
  // the step in progress), and samples of all ranks in finished steps.
  std::int64_t skipped_steps() const;
  std::int64_t micro_steps() const;
  std::int64_t global_samples() const;

  // The batch sizes of the following steps. Change them between steps only; the caller then
  // provides the new number of micro-batches of the new size. Not saved in checkpoints.
  const config::BatchConfig& batch_sizes() const;
  // Keeps the micro-batch size. Fails if micro-batch size times ranks does not divide `train`.
  Status set_train_batch_size(std::int64_t train);
  // Keeps the number of accumulation steps.
  Status set_train_micro_batch_size(std::int64_t micro);

  // Returns true if the micro-batch in progress (between two micro-batches: the next one) is the
  // last of its step. Decided by the count, by set_gradient_accumulation_boundary, or, with
  // managed_gradient_accumulation false, by the caller's step().
  bool is_gradient_accumulation_boundary() const;
  // Overrides the count of micro-batches until the next call. With false, step() finishes nothing.
  // Fails with managed_gradient_accumulation false.
  Status set_gradient_accumulation_boundary(bool is_boundary);

  // Between backward and step() of a step with one micro-batch: drops its gradients, so that step()
  // finishes nothing. Does nothing otherwise, and where the caller decides about boundaries:
  // accumulated gradients stay, as at DeepSpeed's ZeRO stages 1 to 3. Fails if super_offload has
  // updated a part of the model with them.
  Status zero_grad();

  // While the returned scope lives, backward communicates no gradients; step() and a second scope
  // fail. no_sync is for unsharded gradients, which are never communicated before the boundary
  // anyway; it fails at stages 2 and 3. coalesce_grad_reduction works at every stage: gradients
  // stay unsharded on every rank, in the communication dtype. The next backward outside the scope,
  // or the step, reduces them all at once.
  class LocalGradients;
  StatusOr<LocalGradients> no_sync();
  StatusOr<LocalGradients> coalesce_grad_reduction();

  // Returns whether the latest step() changed the parameters.
  bool was_step_applied() const;
  // The gradient norm of the latest finished step, before clipping; nullopt before the first.
  std::optional<double> global_grad_norm() const;
  // The learning rate and momentum of the next update.
  double lr() const;
  double momentum() const;  // Adam's beta1, SGD's and Muon's momentum
  // Sets the learning rate: for one update if there is a schedule, permanently otherwise. Groups
  // keep their factors. Both halves of Muon get the rate, as in DeepSpeed. Saved in checkpoints.
  Status set_lr(double lr);
  // The same with one rate for each of EngineOptions::group_rates, of which there are `count`.
  Status set_group_rates(const std::vector<double>& rates);
  std::vector<double> group_rates(std::size_t count) const;
  // Sets the index in its step of the next micro-batch's first sample, and the factor on the step's
  // learning rate. For dynamic batching (VariableBatchSizeLR in DeepSpeed), where batches have
  // varying numbers of samples. The factor stays until the next call. Not saved in checkpoints.
  void place_batch(std::int64_t first_sample, double lr_factor);
  double loss_scale() const;

  // Times that a recomputed block, or its attention, took on this rank.
  struct RecomputeTimes {
    std::string block;  // as named in messages
    std::chrono::nanoseconds first{0}, again{0};
  };
  // Returns the times since the last call, in the model's order; empty without
  // activation_checkpointing.profile.
  std::vector<RecomputeTimes> take_recompute_times();
  // Times of the phases of the latest finished step on this rank; nullopt before the first, and
  // without wall_clock_breakdown.
  const std::optional<PhaseTimes>& wall_clock_timers() const;

  // Moves all model state, or these kinds of it, to host memory, to free device memory for other
  // uses. reload_states, or the next call that needs the state, moves it back. Fails inside a step.
  Status offload_states(const std::vector<zero::StateKind>& include = {});
  Status reload_states();
  // Frees the buffers of gathered parameters and gradients. Fails inside a step.
  Status empty_partition_cache();

 private:
  Status CheckRatesCanChange() const;
  Status ChangeBatch(const StatusOr<config::BatchConfig>& batch);

  EngineComponents& engine_;
};

// LocalGradients is the scope of no_sync and coalesce_grad_reduction. The destructor ends it. The
// engine must outlive it.
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
