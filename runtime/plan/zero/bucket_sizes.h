#pragma once

// MeasureBuckets: the bytes of a rank's buckets, and where they rest while nobody uses them, as
// Bucket, OptimizerShard and Store find them. Pure.

#include <cstdint>
#include <vector>

#include "runtime/plan/zero/step_memory.h"

namespace ds::zero {

// CountBucketBytes: what one flat buffer, its shards and its gradients take in each of the forms in
// which they are there, and what goes on beside them for a while. Pure: a plan adds them up.

// In bytes.
struct BucketBytes {
  std::int64_t own_elements = 0;    // of this rank's shard
  std::int64_t parameters = 0;      // whole
  std::int64_t own_parameters = 0;  // this rank's shard
  std::int64_t largest = 0;         // of one parameter
  std::int64_t gathered = 0;        // as it travels to all ranks that share it
  std::int64_t near_gathered = 0;   // ... to near ones

  // A trained one has these.
  std::int64_t travelling = 0;         // gradients between ranks
  std::int64_t gradients = 0;          // whole, where they are added up
  std::int64_t own_gradients = 0;      // this rank's part of those
  std::int64_t masters = 0;            // as this rank updates them
  std::vector<std::int64_t> states{};  // of each value that the optimizer keeps for a range
  std::int64_t update_buffers = 0;     // beside the update
  std::int64_t publish_buffers = 0;    // where parameters are published in parts

  // ZeRO++ adds these.
  std::int64_t secondary_shard = 0;
  std::int64_t gather_buffers = 0;     // beside a gather that is rounded
  std::int64_t near_buffers = 0;       // beside one from near ranks
  std::int64_t reduction_buffers = 0;  // beside a reduction that is rounded
  std::int64_t rounded_exchange = 0;   // what such a reduction sends; 0: it is not rounded
  std::int64_t lost_values = 0;        // that LoCo keeps for the next reduction
};

BucketBytes CountBucketBytes(const BucketShape& shape, const StepMemoryInput& input);

struct BucketSizes {
  BucketBytes bytes;
  bool trained = false;
  bool of_experts = false;
  bool on_two_stages = false;
  config::Sharding sharding;
  // The rest tells what is elsewhere while nobody uses it.
  Rest own_rest = Rest::kHere;      // the reduced shard's
  std::int64_t fetched_bytes = 0;   // of this rank's shard of the parameters
  bool parameters_on_host = false;  // there it rests
  // From the host, for one turn of the update, and the next one.
  HeldMemory brought = {};
  bool has_turns = false;  // more than one
};

struct MeasuredModel {
  std::vector<std::vector<BucketSizes>> units;
  HeldMemory here;  // model state that is always there
  AwayMemory away;
};

MeasuredModel MeasureBuckets(const StepMemoryInput& input);

}  // namespace ds::zero
