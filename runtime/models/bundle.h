#pragma once

// Bundle: what flows from block to block of a model.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/autograd/keeper.h"
#include "runtime/autograd/recompute.h"
#include "runtime/models/batch.h"
#include "runtime/models/kernels/dropout.h"
#include "runtime/models/kernels/tiled_rows.h"

namespace ds::models {

// The tensors that flow from block to block. B samples of S tokens, H the model's width.
struct Bundle {
  Batch batch;
  at::Tensor hidden;  // [B, S, H], set by every block but the last
  at::Tensor loss;    // scalar fp32, a mean; set by the last block when there are labels
  // The number of labels that mean is over, set with it: a step's loss is its sums (loss times
  // count) over its counts, whatever shapes its micro-batches have. Absent: the mean of the losses.
  std::optional<double> loss_count;
  // Saves who counts the batch's labels a wait for their device.
  std::optional<MeasuredLabels> measured_labels;
  // Tokens of the longest document and of the longest sample, padding aside: rotary angles and the
  // embedding's noise go by them. 0: unknown, and padding counts.
  std::int64_t longest_document = 0, longest_sample = 0;
  std::map<std::string, at::Tensor> extras;  // a model's own tensors, by name
  // Backward will multiply the loss by loss_scale, and by loss_count over loss_unit: for a block
  // that computes gradients in its forward pass, which in fp16 would vanish without it.
  double loss_scale = 1.0;
  double loss_unit = 1.0;
  RandomPlace random;  // of these samples, among all draws; the engine sets it before every block
  std::optional<activation::RecomputeOptions> recompute_attention;  // AttentionOptions::recompute
  RowTiles mlp_tiles;                                               // of feed-forward parts
  activation::Keeper* keeper = nullptr;  // of what attention keeps by portions; null: the device
  class KeyValueCache* cache = nullptr;  // of tokens before these (key_value_cache.h); null: none

  // A tensor of the batch; undefined where there is none of the name.
  const at::Tensor& tensor(std::string_view name) const { return FindTensor(batch, name); }
};

}  // namespace ds::models
