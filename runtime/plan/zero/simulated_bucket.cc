#include "runtime/plan/zero/simulated_bucket.h"

#include <utility>

namespace ds::zero {

SimulatedBucket::SimulatedBucket(int unit, const BucketSizes& sizes, const StepMemoryInput& input,
                                 RankBooks* books)
    : unit_(unit), input_(input), books_(*books), sizes_(sizes) {
  if (sizes.sharding.parameters) {
    books_.pool.AddUser(bytes().parameters);
    books_.pool.Take(bytes().parameters);
  }
  if (trained() && sizes.sharding.gradients) books_.pool.AddUser(block_bytes());
}

void SimulatedBucket::BeginGather() {
  books_.pool.Take(bytes().parameters);
  has_.arriving = true;
  books_.held.comm_buffers += has_.near ? bytes().near_buffers : bytes().gather_buffers;
}

void SimulatedBucket::EndGather() {
  if (!std::exchange(has_.arriving, false)) return;
  books_.held.comm_buffers -= has_.near ? bytes().near_buffers : bytes().gather_buffers;
  if (std::exchange(has_.stows, false)) Stow();
  if (has_.near || bytes().secondary_shard == 0) return;
  has_.near = true;
  if (!std::exchange(has_.secondary, true)) books_.held.comm_buffers += bytes().secondary_shard;
}

void SimulatedBucket::Release() {
  if (!sharding().parameters) return;
  EndGather();
  books_.pool.Return(bytes().parameters);
}

// Moves shards from the host to the GPU, or back. File reads are counted with the file buffers.
void SimulatedBucket::Fetch() {
  if (sizes_.parameters_on_host) books_.held.parameters += sizes_.fetched_bytes;
}

void SimulatedBucket::Stow() {
  if (has_.arriving) {
    has_.stows = true;
    return;
  }
  if (sizes_.parameters_on_host) books_.held.parameters -= sizes_.fetched_bytes;
}

void SimulatedBucket::AcquireGradients() {
  if (!trained()) return;
  if (sizes_.sharding.gradients) {
    if (!std::exchange(has_.block, true)) books_.pool.Take(block_bytes());
  } else if (!std::exchange(has_.whole, true)) {
    books_.held.gradients += bytes().gradients;
  }
}

void SimulatedBucket::BeginReduction() {
  has_.reducing = true;
  const bool into_shard = sizes_.sharding.optimizer;
  if (into_shard && !std::exchange(has_.own, true) && sizes_.own_rest == Rest::kHere) {
    books_.held.gradients += bytes().own_gradients;
  }
  if (!std::exchange(has_.lost_values, true)) books_.held.comm_buffers += bytes().lost_values;
  books_.held.comm_buffers += bytes().reduction_buffers;
}

void SimulatedBucket::EndReduction() {
  if (!std::exchange(has_.reducing, false)) return;
  books_.held.comm_buffers -= bytes().reduction_buffers;
  if (std::exchange(has_.block, false)) books_.pool.Return(block_bytes());
  if (!sizes_.sharding.optimizer || !std::exchange(has_.whole, false)) return;
  books_.held.gradients -= bytes().gradients;
}

std::int64_t SimulatedBucket::travelling_copy() const {
  const bool lies_as_it_travels = sizes_.sharding.gradients && !input_.windows.gradients.whole_step;
  return lies_as_it_travels || input_.travel == input_.types.gradient ? 0 : bytes().travelling;
}

void SimulatedBucket::CountReduction(StepTraffic* traffic) const {
  if (is_alone()) return;
  if (bytes().rounded_exchange > 0) {
    traffic->all_to_all += bytes().rounded_exchange;
  } else if (sharding().optimizer) {
    traffic->reduce_scatter += bytes().travelling;
  } else {
    traffic->all_reduce += bytes().travelling;
  }
}

void SimulatedBucket::CountEnd(bool present, StepTraffic* traffic) const {
  if (!trained()) return;
  if (has_.whole && !has_.reducing && !sharding().optimizer) CountReduction(traffic);
  const int shard_ranks = sizes_.of_experts ? input_.of_experts->shard_ranks : input_.shard_ranks;
  if (sharding().optimizer && input_.shard_ranks < input_.gradient_ranks) {
    traffic->all_reduce += bytes().travelling / shard_ranks;
  }
  if (sizes_.on_two_stages) {  // the stages sum their gradients
    traffic->all_reduce += sharding().optimizer ? bytes().own_gradients : bytes().gradients;
  }
  const bool publishes = sharding().parameters ? present : sharding().optimizer;
  if (publishes) traffic->all_gather += bytes().parameters;
}

void SimulatedBucket::BeginUpdate() {
  books_.held.parameters += sizes_.brought.parameters;
  books_.held.master_weights += sizes_.brought.master_weights;
  books_.held.optimizer_state += sizes_.brought.optimizer_state;
  books_.held.other += bytes().update_buffers;
  books_.held.comm_buffers += bytes().publish_buffers;
}

void SimulatedBucket::EndUpdate() {
  books_.held.parameters -= sizes_.brought.parameters;
  books_.held.master_weights -= sizes_.brought.master_weights;
  books_.held.optimizer_state -= sizes_.brought.optimizer_state;
  books_.held.other -= bytes().update_buffers;
  books_.held.comm_buffers -= bytes().publish_buffers;
}

void SimulatedBucket::EndEarlyUpdate() {
  has_.updating = true;
  if (!input_.tiers.updates_beside) EndUpdateBeside();
}

void SimulatedBucket::EndUpdateBeside() {
  if (!std::exchange(has_.updating, false)) return;
  EndUpdate();
  if (!input_.tiers.takes_back) DropGradients();
}

void SimulatedBucket::DropGradients() {
  if (std::exchange(has_.own, false) && sizes_.own_rest == Rest::kHere) {
    books_.held.gradients -= bytes().own_gradients;
  }
  if (std::exchange(has_.whole, false)) books_.held.gradients -= bytes().gradients;
}

void SimulatedBucket::EndStep() { has_.near = has_.whole = has_.own = false; }

}  // namespace ds::zero
