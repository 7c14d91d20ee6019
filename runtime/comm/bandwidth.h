#pragma once

// Computes the bandwidth of collectives, as DeepSpeed's ds_bench and nccl-tests do.
//
// S is the size in bytes of one rank's input, t the time in seconds, n the number of ranks.
// Throughput is the data handled by the call divided by t: 2 S for all-reduce, n S for all-gather,
// S otherwise. Bus bandwidth is the rate that a link must carry at least, so it can be compared
// with the hardware's rate. It is throughput * (n-1)/n, except for broadcast and pt2pt, where it
// equals throughput.
//
// Pure functions. Thread-safe.

#include <cstdint>
#include <string_view>

namespace ds::comm {

struct Bandwidth {
  double throughput = 0;  // bytes per second
  double bus = 0;
};

// `collective` is "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast" or
// "pt2pt". `bytes` is the size of one rank's input.
Bandwidth ComputeBandwidth(std::string_view collective, std::int64_t bytes, double seconds,
                           int ranks);

}  // namespace ds::comm
