#pragma once

// RankGroups: the groups of ranks that one rank works in, by purpose. The job's mesh
// (runtime/topology) defines their ranks. The pointers are not owned, and two of the pointers may
// be equal.

#include "runtime/comm/communicator.h"

namespace ds::comm {

struct RankGroups {
  Communicator* all = nullptr;  // every rank of the job: verdicts, and numbers that all ranks need
  Communicator* gradients = nullptr;  // ranks whose gradients of a parameter are summed
  // Ranks across which flat buffers are sharded. Without sharding by ZeRO they equal `gradients`,
  // and divide work among themselves: the norm, Muon's matrices.
  Communicator* shards = nullptr;
  Communicator* replicas = nullptr;  // ranks that hold the same shards; null if no two ranks do
  Communicator* stage = nullptr;     // ranks that hold the same blocks; null if all ranks do

  Communicator& of_stage() const { return stage != nullptr ? *stage : *all; }
};

}  // namespace ds::comm
