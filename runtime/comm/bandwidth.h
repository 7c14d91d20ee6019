#pragma once

// Bandwidths of collectives, as DeepSpeed's ds_bench and nccl-tests reckon them.
//
// With S bytes in one rank's input, t seconds and n ranks: the throughput counts what a call
// handles (all-reduce 2 S, all-gather n S, the others S); the bus bandwidth what a link must carry
// at least, so that it can be held against the hardware's: that times (n-1)/n, for a broadcast and
// a message all of it.
//
// Pure; threads: plain functions.

#include <cstdint>
#include <string_view>

namespace ds::comm {

struct Bandwidth {
  double throughput = 0;  // bytes per second
  double bus = 0;
};

// `collective`: "all_reduce" "all_gather" "reduce_scatter" "all_to_all" "broadcast" "pt2pt".
// `bytes` of one rank's input.
Bandwidth ComputeBandwidth(std::string_view collective, std::int64_t bytes, double seconds,
                           int ranks);

}  // namespace ds::comm
