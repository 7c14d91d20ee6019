#pragma once

// MeasureBuckets: the bytes of a rank's buckets, and their locations while unused, as Bucket,
// OptimizerShard and Store place them. Pure.

#include <cstdint>
#include <vector>

#include "runtime/plan/zero/step_memory.h"

namespace ds::zero {

// CountBucketBytes: the bytes of one flat buffer, its shards and its gradients, in each of their
// forms, and of the temporaries next to them. Pure: a plan adds them up.

// All sizes are in bytes, except own_elements.
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
  Rest own_rest = Rest::kHere;      // of the reduced shard
  std::int64_t fetched_bytes = 0;   // of this rank's shard of the parameters
  bool parameters_on_host = false;  // the location of that shard
  // Bytes brought from the host for one sub-group of the update and for the next one.
  HeldMemory brought = {};
  bool has_turns = false;  // more than one sub-group
};

struct MeasuredModel {
  std::vector<std::vector<BucketSizes>> units;
  HeldMemory here;  // permanent model state where the rank computes
  AwayMemory away;
};

MeasuredModel MeasureBuckets(const StepMemoryInput& input);

}  // namespace ds::zero
