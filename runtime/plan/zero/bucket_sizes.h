#pragma once

// MeasureBuckets: the bytes of a rank's buckets, and their locations while unused, as Bucket,
// OptimizerShard and Store place them. Pure.

#include <cstdint>
#include <vector>

#include "runtime/plan/zero/pool_sizes.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::zero {

// The bytes of one flat buffer, its shards and its gradients, in each of their forms, and of the
// temporaries next to them. A plan adds them up. All sizes are in bytes, except own_elements.
struct BucketBytes {
  std::int64_t own_elements = 0;    // in this rank's shard
  std::int64_t parameters = 0;      // full
  std::int64_t own_parameters = 0;  // this rank's shard
  std::int64_t largest = 0;         // of one parameter
  std::int64_t gathered = 0;        // by a gather over all ranks that share it
  std::int64_t near_gathered = 0;   // by a gather over near ranks

  // The fields below apply to trained buckets.
  std::int64_t travelling = 0;         // full gradients in the communication dtype
  std::int64_t gradients = 0;          // full gradients in the accumulation dtype
  std::int64_t own_gradients = 0;      // this rank's shard of `gradients`
  std::int64_t masters = 0;            // the master weights that this rank updates
  std::vector<std::int64_t> states{};  // of each optimizer state of each range
  std::int64_t update_buffers = 0;     // temporaries of the update
  std::int64_t publish_buffers = 0;    // if parameters are published in parts

  // The fields below apply to ZeRO++.
  std::int64_t secondary_shard = 0;
  std::int64_t gather_buffers = 0;     // of a quantized gather
  std::int64_t near_buffers = 0;       // of a quantized gather from near ranks
  std::int64_t reduction_buffers = 0;  // of a quantized reduction
  std::int64_t rounded_exchange = 0;   // sent by a quantized reduction; 0: not quantized
  std::int64_t lost_values = 0;        // kept by LoCo for the next reduction
};

BucketBytes CountBucketBytes(const BucketShape& shape, const StepMemoryInput& input);

struct BucketSizes {
  BucketBytes bytes;
  bool trained = false;
  bool of_experts = false;
  bool on_two_stages = false;
  config::Sharding sharding;
  // Rest: the location while the data is unused.
  StorageTier own_storage_tier = StorageTier::kHere;  // of the reduced shard
  std::int64_t fetched_bytes = 0;                     // of this rank's shard of the parameters
  bool parameters_on_host = false;                    // the location of that shard
  // Bytes brought from the host for one sub-group of the update and for the next one.
  HeldMemory brought = {};
  bool has_sub_groups = false;  // more than one sub-group
};

struct MeasuredModel {
  std::vector<std::vector<BucketSizes>> units;
  HeldMemory here;  // permanent model state where the rank computes
  OffloadedMemory offload;
};

MeasuredModel MeasureBuckets(const StepMemoryInput& input);

// RankBooks: the memory that a rank holds at the moment.
struct RankBooks {
  HeldMemory held;  // without the pool, activations and temporaries
  PoolSizes pool;

  friend bool operator==(const RankBooks&, const RankBooks&) = default;
};

// Simulates the sizes of one flat buffer of a rank through a step. It changes the
// rank's books as FlatParameters, FlatGradients and OptimizerShard change memory.
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
  void Offload();

  void AcquireGradients();  // requires that no reduction is in flight
  void BeginReduction();
  void EndReduction();
  bool has_full_gradients() const { return has_.full || has_.block; }
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
  // An overlapped update (Tiers::overlaps_update) ends in FinishOverlappedUpdate instead.
  void EndEarlyUpdate();
  void FinishOverlappedUpdate();
  // Drops the gradients, and marks secondary shards as stale.
  void EndStep();

  // The state, apart from the books, that determines later results.
  struct Presence {
    bool arriving = false;   // a gather is in flight
    bool offloads = false;   // its shard is offloaded when the gather ends
    bool secondary = false;  // hpZ's secondary shard exists
    bool near = false;       // and is up to date
    bool block = false;      // the pooled buffer of sharded gradients
    bool full = false;       // the buffer of full gradients
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
    return input_.windows.gradients.full_step ? bytes().gradients : bytes().travelling;
  }

  const int unit_;
  const StepMemoryInput& input_;
  RankBooks& books_;
  const BucketSizes sizes_;
  Presence has_;
};

}  // namespace ds::zero
