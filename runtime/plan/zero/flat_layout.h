#pragma once

// FlatLayout: the position of each parameter in a flat buffer that is split into equal shards. Pure
// integers.
//
// Invariants:
//   1. Parameters are in the given order, each at a multiple of kAlignment elements; those that
//      begin a range of their own are at a multiple of kShardMultiple.
//   2. padded_numel() == shard_numel() * shard_ranks, and shards are multiples of kShardMultiple,
//      so that vectorised loops over a shard have no remainder and compute the same bits as over
//      the full buffer.
//   3. Shard r is [r * shard_numel(), (r + 1) * shard_numel()).

#include <cstdint>
#include <vector>

namespace ds::zero {

struct FlatRange {
  std::int64_t start = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return start + count; }
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};

// The part of one parameter within a range of the buffer.
struct Piece {
  int parameter = 0;
  std::int64_t parameter_start = 0;  // in the flattened parameter
  std::int64_t range_start = 0;      // in the requested range
  std::int64_t count = 0;

  friend bool operator==(const Piece&, const Piece&) = default;
};

class FlatLayout {
 public:
  static constexpr std::int64_t kAlignment = 32;
  static constexpr std::int64_t kShardMultiple = 64;

  // `numels`: elements of each parameter. `shard_ranks`: the number of shards, at least 1.
  // `starts`: parameters that begin a range, ascending. Parameters and shards also begin at
  // multiples of `multiple`, a power of two.
  FlatLayout(const std::vector<std::int64_t>& numels, int shard_ranks,
             const std::vector<int>& starts = {}, std::int64_t multiple = 1);

  int size() const { return static_cast<int>(parameters_.size()); }
  const FlatRange& parameter(int i) const { return parameters_.at(static_cast<std::size_t>(i)); }
  std::int64_t shard_numel() const { return shard_numel_; }
  std::int64_t padded_numel() const { return padded_numel_; }
  FlatRange shard(int rank) const { return {rank * shard_numel_, shard_numel_}; }
  FlatRange full_range() const { return {0, padded_numel_}; }
  // Returns the part of rank's shard within the range; if there is none, an empty range at the
  // shard's beginning.
  FlatRange shard_of(const FlatRange& range, int rank) const;

  // Returns the parts of parameters within the range, in buffer order.
  std::vector<Piece> FindPieces(const FlatRange& range) const;

  // Returns the ranges that no parameter covers.
  const std::vector<FlatRange>& gaps() const { return gaps_; }

 private:
  std::vector<FlatRange> parameters_;
  std::vector<FlatRange> gaps_;
  std::int64_t shard_numel_ = 0;
  std::int64_t padded_numel_ = 0;
};

}  // namespace ds::zero
