#pragma once

// FlatLayout: where each parameter lies in a flat buffer that is cut into equal shards. Pure
// integers.
//
// Invariants:
//   1. Parameters lie in the given order, each at a multiple of kAlignment elements, those that
//      begin a range of their own at one of kShardMultiple.
//   2. padded_numel() == shard_numel() * shard_ranks, and shards are multiples of kShardMultiple,
//      so that vectorised loops over a shard have no remainder and compute the same bits as over
//      the whole.
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

// The part of one parameter that lies in a range of the buffer.
struct Piece {
  int parameter = 0;
  std::int64_t parameter_start = 0;  // in the flattened parameter
  std::int64_t range_start = 0;      // in the range that was asked about
  std::int64_t count = 0;

  friend bool operator==(const Piece&, const Piece&) = default;
};

class FlatLayout {
 public:
  static constexpr std::int64_t kAlignment = 32;
  static constexpr std::int64_t kShardMultiple = 64;

  // `numels`: elements of each parameter. `shard_ranks`: how many have the shards between them, at
  // least 1. `starts`: parameters that begin a range, ascending. Parameters and shards begin at
  // multiples of `multiple`, too, a power of two.
  FlatLayout(const std::vector<std::int64_t>& numels, int shard_ranks,
             const std::vector<int>& starts = {}, std::int64_t multiple = 1);

  int size() const { return static_cast<int>(parameters_.size()); }
  const FlatRange& parameter(int i) const { return parameters_.at(static_cast<std::size_t>(i)); }
  std::int64_t shard_numel() const { return shard_numel_; }
  std::int64_t padded_numel() const { return padded_numel_; }
  FlatRange shard(int rank) const { return {rank * shard_numel_, shard_numel_}; }
  FlatRange whole() const { return {0, padded_numel_}; }
  // The part of a shard that lies in the range; empty, at the shard's beginning, where none does.
  FlatRange shard_of(const FlatRange& range, int rank) const;

  // Finds the parts of parameters in the range, in buffer order; parameters outside it are left
  // out.
  std::vector<Piece> FindPieces(const FlatRange& range) const;

  // The ranges that no parameter covers.
  const std::vector<FlatRange>& gaps() const { return gaps_; }

 private:
  std::vector<FlatRange> parameters_;
  std::vector<FlatRange> gaps_;
  std::int64_t shard_numel_ = 0;
  std::int64_t padded_numel_ = 0;
};

}  // namespace ds::zero
