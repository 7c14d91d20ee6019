#pragma once

// Low-rank adapters in a model: where they stand, what is trained, and how they are merged.

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

// Puts an adapter into every linear layer that `spec` finds one for, and freezes all other
// parameters but the whole ones that a PEFT folder trains. Fills in the targets that `spec` leaves
// open. Refuses a target that no layer has, a PEFT folder that does not fit the model, and
// magnitudes of rows that several ranks share. Comes before the engine, which gives the adapters
// their memory. `ranks` are those that have the model's matrices between them. A stage of a
// pipeline takes a spec that all blocks have filled in.
enum class ModelPart { kAll, kStage };
Status AddLora(BlockList& model, LoraSpec* spec, const tensor_parallel::Group& ranks = {},
               ModelPart part = ModelPart::kAll);

// Lets bytes of `format` stand for the weights of all linear layers within layers and of all
// experts, which are not trained then: not for the head, nor for routers, tables and norms. Comes
// before the engine, too.
void QuantizeBase(BlockList& model, BaseFormat format);

// Freezes the parameters whose full names match one of the patterns (as of file names: *, ?,
// [a-z]). Refuses a pattern that none matches, and to leave nothing to train.
Status FreezeParameters(const BlockList& model, const std::vector<std::string>& patterns);

// Adds adapters to the weights that they stand beside.
class LoraMerger {
 public:
  LoraMerger(const LoraSpec& spec, bool weights_are_in_out)
      : spec_(spec), weights_are_in_out_(weights_are_in_out) {}

  // Keeps an adapter's tensor, on the CPU; all come before the first weight.
  void Take(const std::string& name, const at::Tensor& tensor) { tensors_[name] = tensor.clone(); }
  // The weight with this full name, with its adapter, if it has one. Rounds once.
  at::Tensor Merge(const std::string& name, const at::Tensor& weight) const;

 private:
  LoraSpec spec_;
  bool weights_are_in_out_;
  std::map<std::string, at::Tensor> tensors_;
};

}  // namespace ds::models
