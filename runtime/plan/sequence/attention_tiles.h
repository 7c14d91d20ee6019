#pragma once

// Sizes of attention that is computed by operators (device/kernels/attention_block.h). Plans of
// memory count by them.

#include <cstdint>

namespace ds::sequence_parallel {

// Queries that are computed at once. Of their scores at most half are hidden.
inline constexpr std::int64_t kPieceQueries = 256;
// The most bytes of scores that exist at a time, if a single query's scores are not more.
inline constexpr std::int64_t kTileScoreBytes = std::int64_t{64} << 20;

}  // namespace ds::sequence_parallel
