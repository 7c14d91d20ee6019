#pragma once

// TensorPlan: what one of the parts into which tensor parallelism cuts a decoder has of it.
//
// Matrices that a layer applies first (queries, keys, values; gate and up) are cut by their
// outputs, those behind them (the attention's output, down) by their inputs, so that the parts'
// results of attention and MLP add up, and those of every expert; tables and head are cut by the
// vocabulary; every part has the rest whole. Heads stay whole: a part has heads of the keys and the
// queries that share them. Parts are as even as can be, the first ones larger. Where there are more
// parts than heads of the keys, all parts have all keys and values, and each uses one head of them.
//
// Pure; safe from any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

struct IndexRange {
  std::int64_t first = 0, count = 0;
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

// A part has these indices of a dimension of a weight, one behind the other.
struct WeightSlice {
  std::size_t dimension = 0;
  std::int64_t extent = 0;  // of that dimension in the whole weight
  std::vector<IndexRange> kept;
};

class TensorPlan {
 public:
  // Part `part` of `parts`. Refuses a decoder that cannot be cut so, naming the numbers of parts
  // next to it into which it can.
  static StatusOr<TensorPlan> Create(const DecoderSpec& spec, int part, int parts);

  int parts() const { return parts_; }
  // The decoder of this part alone: its heads, widths and vocabulary are the part's.
  const DecoderSpec& slice() const { return slice_; }
  std::int64_t first_head() const { return heads_.first; }
  const IndexRange& vocabulary() const { return vocabulary_; }
  std::int64_t whole_vocabulary() const { return whole_.vocabulary; }
  std::int64_t whole_heads() const { return whole_.heads; }
  // The one head of the keys that this part uses, where every part has all of them.
  std::optional<std::int64_t> copied_key_head() const { return copied_key_head_; }

  // Tells what the part has of the weight with this full name, or of an adapter's beside it (of A
  // inputs, of B and magnitudes outputs); nothing: all of it.
  std::optional<WeightSlice> SliceOf(const std::string& name) const;

 private:
  // The weight of a product or a table and its bias.
  struct Row {
    std::string module;  // the end of its name
    bool by_outputs = true;
    bool in_out = false;  // the layout of the weight
    std::int64_t extent = 0;
    std::vector<IndexRange> kept;
  };

  TensorPlan(const DecoderSpec& spec, int part, int parts);
  const Row* FindRow(std::string_view module) const;  // null: all parts have all of it
  void AddAttention();
  // An MLP that stands at `path` in a layer.
  void AddMlp(const std::string& path, std::int64_t width, int part);

  DecoderSpec whole_, slice_;
  int parts_;
  IndexRange heads_, key_heads_, vocabulary_;
  std::optional<std::int64_t> copied_key_head_;
  std::vector<Row> rows_;
};

}  // namespace ds::models
