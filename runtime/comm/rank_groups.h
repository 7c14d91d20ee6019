#pragma once

// RankGroups: the groups of ranks that one rank works in, each by what it is for. Which ranks they
// connect says the job's mesh (runtime/topology). All are borrowed, and two of them may be one.

#include "runtime/comm/communicator.h"

namespace ds::comm {

struct RankGroups {
  Communicator* all = nullptr;        // every rank of the job: verdicts, and numbers all must know
  Communicator* gradients = nullptr;  // ranks whose gradients of a parameter add up
  // Ranks among which flat buffers are cut. Where ZeRO cuts nothing those of `gradients`, which
  // then divide work by it: the norm, Muon's matrices.
  Communicator* shards = nullptr;
  Communicator* replicas = nullptr;  // ranks that hold the same shards; null: no two do
  Communicator* stage = nullptr;     // ranks that have the same blocks; null: all have

  Communicator& of_stage() const { return stage != nullptr ? *stage : *all; }
};

}  // namespace ds::comm
