#pragma once

// Bundle: the values passed from block to block of a model.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/autograd/keeper.h"
#include "runtime/autograd/recompute.h"
#include "runtime/device/kernels/attention_rule.h"
#include "runtime/models/batch.h"
#include "runtime/models/kernels/dropout.h"
#include "runtime/models/kernels/tiled_rows.h"

namespace ds::models {

// The tensors passed from block to block, for B samples of S tokens and a model of width H.
struct Bundle {
  Batch batch;
  at::Tensor hidden;  // [B, S, H], set by every block except the last
  at::Tensor loss;    // fp32 scalar, a mean; set by the last block if there are labels
  // The number of labels that `loss` averages over, set together with it. The loss of a step is
  // sum(loss * count) / sum(count) over its micro-batches, which may differ in shape. Absent:
  // the step's loss is the plain mean of the losses.
  std::optional<double> loss_count;
  // If set, the block that counts the labels need not wait for their device.
  std::optional<MeasuredLabels> measured_labels;
  // If set and of the batch's "documents", attention need not wait for their device.
  std::shared_ptr<const kernels::SampleDocuments> documents;
  // The lengths in tokens of the longest document and the longest sample, without padding. Rotary
  // angles and the embedding's noise depend on them. 0: unknown, and padding counts.
  std::int64_t longest_document = 0, longest_sample = 0;
  std::map<std::string, at::Tensor> extras;  // model-specific tensors by name
  // The backward pass multiplies the loss by loss_scale and by loss_count / loss_unit. A block that
  // computes gradients in its forward pass applies these factors there; otherwise the gradients
  // would underflow in fp16.
  double loss_scale = 1.0;
  double loss_unit = 1.0;
  RandomPosition random;  // RNG position of these samples; set by the engine before every block
  std::optional<activation::RecomputeOptions> recompute_attention;  // AttentionOptions::recompute
  RowTiles mlp_tiles;                                               // for feed-forward layers
  // Stores the tensors that chunked (FPDT) attention keeps; null: they stay on the device.
  activation::Keeper* keeper = nullptr;
  // Keys and values of earlier tokens (key_value_cache.h); null: none.
  class KeyValueCache* cache = nullptr;

  // Returns a tensor of the batch; undefined if there is none with this name.
  const at::Tensor& tensor(std::string_view name) const { return FindTensor(batch, name); }
};

}  // namespace ds::models
