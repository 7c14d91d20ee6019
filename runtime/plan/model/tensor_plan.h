#pragma once

// TensorPlan: the slice of a decoder that one tensor-parallel rank (a part) holds.
//
// The first matrices of a block (queries, keys, values; gate and up) are split by outputs, the
// second ones (attention output, down) by inputs, so that the ranks' results of attention, of the
// MLP and of every expert sum up. Tables and the head are split by the vocabulary; all other
// weights are replicated. Heads are not split: a part has heads of the keys and the queries that
// share them. Parts are as even as possible, the first ones larger. With more parts than key heads,
// every part has all keys and values and uses one head.
//
// Pure. Thread-safe.

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

// The indices of one dimension of a weight that a part holds, concatenated.
struct WeightSlice {
  std::size_t dimension = 0;
  std::int64_t extent = 0;  // of that dimension in the full weight
  std::vector<IndexRange> retained;
};

class TensorPlan {
 public:
  // Creates the plan of part `part` of `parts`. Refuses a decoder that cannot be split this way;
  // the error names the nearest numbers of parts that work.
  static StatusOr<TensorPlan> Create(const DecoderSpec& spec, int part, int parts);

  int parts() const { return parts_; }
  // The decoder of this part alone, with the part's heads, widths and vocabulary.
  const DecoderSpec& slice() const { return slice_; }
  std::int64_t first_head() const { return heads_.first; }
  const IndexRange& vocabulary() const { return vocabulary_; }
  std::int64_t full_vocabulary() const { return full_.vocabulary; }
  std::int64_t full_heads() const { return full_.heads; }
  // The key head that this part uses, where every part has all key heads.
  std::optional<std::int64_t> copied_key_head() const { return copied_key_head_; }

  // Returns the part's slice of the weight with this full name, or of an adapter's parameter
  // (inputs of A; outputs of B and magnitudes). nullopt: all of it.
  std::optional<WeightSlice> SliceOf(const std::string& name) const;

 private:
  // The weight of a linear layer or a table, and its bias.
  struct ShardedLayer {
    std::string module;  // suffix of its name
    bool by_outputs = true;
    bool in_out = false;  // the layout of the weight
    std::int64_t extent = 0;
    std::vector<IndexRange> retained;
  };

  TensorPlan(const DecoderSpec& spec, int part, int parts);
  const ShardedLayer* FindRow(std::string_view module) const;  // null: replicated in all parts
  void AddAttention();
  // Adds the MLP at `path` in a layer.
  void AddMlp(const std::string& path, std::int64_t width, int part);

  DecoderSpec full_, slice_;
  int parts_;
  IndexRange heads_, key_heads_, vocabulary_;
  std::optional<std::int64_t> copied_key_head_;
  std::vector<ShardedLayer> rows_;
};

}  // namespace ds::models
