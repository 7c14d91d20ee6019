#pragma once

// A ZeRO stage is a row of three booleans; nothing outside this file knows a stage by its number.

namespace ds::zero {

// What is cut into one shard per rank instead of being whole on every rank.
struct Sharding {
  bool optimizer = false;   // master weights and the optimizer's state
  bool gradients = false;   // gradients outside the backward pass of their block
  bool parameters = false;  // parameters outside the forward and backward pass of their block

  friend bool operator==(const Sharding&, const Sharding&) = default;
};

// Stage 0 shards nothing, 1 the optimizer, 2 the gradients too, 3 the parameters too. In a world of
// one rank every shard is the whole, so nothing is sharded. Requires 0 <= stage <= 3.
Sharding ShardingOfStage(int stage, int world_size);

}  // namespace ds::zero
