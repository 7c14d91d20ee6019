#pragma once

// SimulatedBucket: simulates the sizes of one flat buffer of a rank through a step. It changes the
// rank's books as FlatParameters, FlatGradients and OptimizerShard change memory. Pure.

#include <cstdint>

#include "runtime/plan/zero/bucket_sizes.h"
#include "runtime/plan/zero/pool_sizes.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::zero {

// RankBooks: the memory that a rank holds at the moment.
struct RankBooks {
  HeldMemory held;  // without the pool, activations and temporaries
  PoolSizes pool;

  friend bool operator==(const RankBooks&, const RankBooks&) = default;
};

class SimulatedBucket {
 public:
  // Takes the buffer of sharded parameters from the pool; the caller returns it once they have
  // values. `books` must already include permanent memory. `input` and `books` must outlive this
  // object.
  SimulatedBucket(int unit, const BucketSizes& sizes, const StepMemoryInput& input,
                  RankBooks* books);

  int unit() const { return unit_; }
  const BucketBytes& bytes() const { return sizes_.bytes; }
  bool trained() const { return sizes_.trained; }
  bool of_experts() const { return sizes_.of_experts; }
  const config::Sharding& sharding() const { return sizes_.sharding; }
  // True if its gradients are this rank's alone. An expert's gradients sum the tokens of several
  // ranks.
  bool is_alone() const {
    return input_.gradient_ranks == 1 && !sharding().optimizer && !sizes_.of_experts;
  }

  void BeginGather();
  void EndGather();
  void Release();
  void Fetch();
  void Stow();

  void AcquireGradients();  // requires that no reduction is in flight
  void BeginReduction();
  void EndReduction();
  bool has_whole_gradients() const { return has_.whole || has_.block; }
  // Returns the bytes of a copy of the gradients in the communication dtype, or 0 if they are
  // stored in it.
  std::int64_t travelling_copy() const;

  // These count the bytes of collectives: the next gather; a reduction that begins; the step's end.
  // At the end updated parameters are published; sharded ones only if `present`.
  std::int64_t gathered_bytes() const {
    return has_.near ? bytes().near_gathered : bytes().gathered;
  }
  void CountReduction(StepTraffic* traffic) const;
  void CountEnd(bool present, StepTraffic* traffic) const;

  // Add and remove the memory that an update needs.
  void BeginUpdate();
  void EndUpdate();
  // Ends an update in the backward pass, and drops the gradients unless a rollback may need them.
  // An overlapped update (Tiers::updates_beside) ends in EndUpdateBeside instead.
  void EndEarlyUpdate();
  void EndUpdateBeside();
  // Drops the gradients, and marks secondary shards as stale.
  void EndStep();

  // The state, apart from the books, that determines later results.
  struct Presence {
    bool arriving = false;   // a gather is in flight
    bool stows = false;      // its shard is offloaded when the gather ends
    bool secondary = false;  // hpZ's secondary shard exists
    bool near = false;       // and is up to date
    bool block = false;      // the pooled buffer of sharded gradients
    bool whole = false;      // the buffer of full gradients
    bool own = false;        // the reduced shard
    bool reducing = false;
    bool lost_values = false;
    bool updating = false;  // in the background

    friend bool operator==(const Presence&, const Presence&) = default;
  };
  const Presence& presence() const { return has_; }

 private:
  void DropGradients();
  std::int64_t block_bytes() const {
    return input_.windows.gradients.whole_step ? bytes().gradients : bytes().travelling;
  }

  const int unit_;
  const StepMemoryInput& input_;
  RankBooks& books_;
  const BucketSizes sizes_;
  Presence has_;
};

}  // namespace ds::zero
