#pragma once

// Low-rank adapters in a model: where they are added, which parameters train, how they are merged.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/models/block.h"
#include "runtime/parallel/tensor/group.h"
#include "runtime/plan/model/lora_spec.h"
#include "runtime/plan/model/quantized_layout.h"

namespace ds::models {

// Adds an adapter to every linear layer that `spec` selects, and freezes all other parameters,
// except those that a PEFT folder trains in full. Fills in the targets that `spec` leaves open.
// Fails for a target that no layer has, for a PEFT folder that does not fit the model, and for
// magnitudes of rows that several ranks share. Call it before the engine is created, which
// allocates the adapters. `ranks` is the group that shards the model's matrices. For a pipeline
// stage, `spec` must already be filled in from all blocks.
enum class ModelScope { kAll, kStage };
Status AddLora(BlockList& model, LoraSpec* spec, const tensor_parallel::TensorGroup& ranks = {},
               ModelScope part = ModelScope::kAll);

// Quantises, in `format`, the weights of all linear layers within decoder layers and of all
// experts; they are then not trained. The head, routers, tables and norms are not quantised. Call
// it before the engine is created.
void QuantizeBase(BlockList& model, BaseFormat format);

// Freezes the parameters whose full names match one of the patterns (file name patterns: *, ?,
// [a-z]). Fails if a pattern matches nothing, or if nothing would be left to train.
Status FreezeParameters(const BlockList& model, const std::vector<std::string>& patterns);

// Merges adapters into the base weights.
class LoraMerger {
 public:
  LoraMerger(const LoraSpec& spec, bool weights_are_in_out)
      : spec_(spec), weights_are_in_out_(weights_are_in_out) {}

  // Keeps an adapter's tensor on the CPU. Call it for all tensors before the first Merge.
  void Take(const std::string& name, const at::Tensor& tensor) { tensors_[name] = tensor.clone(); }
  // Returns the weight with this full name, merged with its adapter if it has one. Rounds once.
  at::Tensor Merge(const std::string& name, const at::Tensor& weight) const;

 private:
  LoraSpec spec_;
  bool weights_are_in_out_;
  std::map<std::string, at::Tensor> tensors_;
};

}  // namespace ds::models
