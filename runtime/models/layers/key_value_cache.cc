#include "runtime/models/layers/key_value_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace ds::models {
namespace {

// Writes rows [samples, heads, S, width] at the indices `positions` [samples, S].
void WriteRows(const at::Tensor& table, const at::Tensor& positions, const at::Tensor& rows) {
  table.scatter_(/*dim=*/2, positions.unsqueeze(1).unsqueeze(3).expand_as(rows), rows);
}

}  // namespace

// Zero-filled, because masked entries are still multiplied by 0, which must not give NaN.
KeyValueCache::KeyValueCache(const DecoderSpec& spec, const Shape& shape,
                             const at::TensorOptions& options)
    : capacity_(shape.capacity), lengths_(static_cast<std::size_t>(shape.samples), 0) {
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    const auto add = [&](std::vector<at::Tensor>& tables, std::int64_t width) {
      tables.push_back(at::zeros({shape.samples, spec.kv_heads, capacity_, width}, options));
    };
    add(keys_, spec.head_width);
    add(values_, WidthOfValue(spec));
  }
}

void KeyValueCache::Extend(const std::vector<std::int64_t>& counts) {
  TORCH_CHECK(counts.size() == lengths_.size(), "a pass over ", counts.size(),
              " samples, and the cache has ", lengths_.size());
  const std::int64_t width = *std::max_element(counts.begin(), counts.end());
  const std::int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
  TORCH_CHECK(longest + width <= capacity_, longest, " tokens and ", width,
              " more do not fit into a cache of ", capacity_);
  begins_ = longest == 0;
  tokens_ = longest + width;
  positions_ = at::tensor(lengths_, at::TensorOptions(at::kLong)).unsqueeze(1) +
               at::arange(width, at::TensorOptions(at::kLong));
  positions_ = positions_.to(keys_.front().device());
  for (std::size_t i = 0; i < counts.size(); ++i) lengths_[i] += counts[i];
}

std::array<at::Tensor, 2> KeyValueCache::Keep(std::int64_t layer, const at::Tensor& keys,
                                              const at::Tensor& values) {
  const auto index = static_cast<std::size_t>(layer);
  WriteRows(keys_.at(index), positions_, keys);
  WriteRows(values_.at(index), positions_, values);
  return {keys_[index].narrow(2, 0, tokens_), values_[index].narrow(2, 0, tokens_)};
}

void KeyValueCache::Clear() { std::fill(lengths_.begin(), lengths_.end(), 0); }

void KeyValueCache::Select(const std::vector<std::int64_t>& samples) {
  const at::Tensor kept =
      at::tensor(samples, at::TensorOptions(at::kLong)).to(keys_.front().device());
  for (std::vector<at::Tensor>* tables : {&keys_, &values_}) {
    for (at::Tensor& table : *tables) table = table.index_select(0, kept);
  }
  std::vector<std::int64_t> lengths;
  for (const std::int64_t sample : samples) {
    lengths.push_back(lengths_.at(static_cast<std::size_t>(sample)));
  }
  lengths_ = std::move(lengths);
}

}  // namespace ds::models
