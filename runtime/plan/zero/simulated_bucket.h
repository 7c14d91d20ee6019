#pragma once

// SimulatedBucket: one flat buffer of a rank on its way through a step, in sizes: it does with the
// rank's books what FlatParameters, FlatGradients and OptimizerShard do with memory. Pure.

#include <cstdint>

#include "runtime/plan/zero/bucket_sizes.h"
#include "runtime/plan/zero/pool_sizes.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::zero {

// RankBooks have what a rank holds just now.
struct RankBooks {
  HeldMemory held;  // but for the pool, activations and what is there for a moment
  PoolSizes pool;

  friend bool operator==(const RankBooks&, const RankBooks&) = default;
};

class SimulatedBucket {
 public:
  // The buffer of sharded parameters is taken: it goes once they have values. What is there for
  // good the books have. `input` and `books` outlive this.
  SimulatedBucket(int unit, const BucketSizes& sizes, const StepMemoryInput& input,
                  RankBooks* books);

  int unit() const { return unit_; }
  const BucketBytes& bytes() const { return sizes_.bytes; }
  bool trained() const { return sizes_.trained; }
  bool of_experts() const { return sizes_.of_experts; }
  const config::Sharding& sharding() const { return sizes_.sharding; }
  // Its gradients are this rank's alone. An expert's are the sum of several ranks' tokens.
  bool is_alone() const {
    return input_.gradient_ranks == 1 && !sharding().optimizer && !sizes_.of_experts;
  }

  void BeginGather();
  void EndGather();
  void Release();
  void Fetch();
  void Stow();

  void AcquireGradients();  // requires that no reduction is under way
  void BeginReduction();
  void EndReduction();
  bool has_whole_gradients() const { return has_.whole || has_.block; }
  // Bytes of gradients in the type in which they travel, where they lie in another.
  std::int64_t travelling_copy() const;

  // They count what calls are about: the next gather, a reduction that begins, the step's end with
  // what is published then, in place of what is `present` too.
  std::int64_t gathered_bytes() const {
    return has_.near ? bytes().near_gathered : bytes().gathered;
  }
  void CountReduction(StepTraffic* traffic) const;
  void CountEnd(bool present, StepTraffic* traffic) const;

  // Brings what is updated, and takes it away.
  void BeginUpdate();
  void EndUpdate();
  // Ends an update in the backward pass, with the gradients unless they may be needed again: at
  // once, or, of one that goes on beside, with EndUpdateBeside.
  void EndEarlyUpdate();
  void EndUpdateBeside();
  // The gradients go, and what the rank has gathered is old.
  void EndStep();

  // All on which it depends what comes next, beside the books.
  struct Presence {
    bool arriving = false;   // a gather is under way
    bool stows = false;      // and its shard goes when that has ended
    bool secondary = false;  // hpZ's shard is there
    bool near = false;       // and true
    bool block = false;      // the pooled buffer of sharded gradients
    bool whole = false;      // that of whole ones
    bool own = false;        // the reduced shard
    bool reducing = false;
    bool lost_values = false;
    bool updating = false;  // beside

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
