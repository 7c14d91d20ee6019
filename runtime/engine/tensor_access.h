#pragma once

// TensorAccess: reads and writes the fp32 weight, the gradient or an optimizer state of one
// parameter, whatever of it is sharded. What DeepSpeed calls safe_get_full_fp32_param and so on.
// It holds nothing but a reference to the engine.
//
// "Full" is the whole tensor in the parameter's shape, fp32, on the engine's device; these methods
// are collective and give every rank the same. "Local" is the flat part that this rank owns, empty
// where it owns none. Names are full ones ("transformer.wte.weight"); an optimizer state is named
// as in checkpoints ("exp_avg").
//
// Gradients are there from the last backward of a step to its step(): the mean over ranks of the
// sum over micro-batches, before clipping, the loss scale taken out. Frozen parameters have a
// weight only, and it cannot be set.
//
// Errors: an unknown name or state, a gradient that is not there, a value of another shape, a
// weight to set while an optimizer's ranks have moved on their own (ZeroOneAdam), any call within
// WithGatheredParameters.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"

namespace ds::engine {

class TensorAccess {
 public:
  // `engine` outlives this.
  explicit TensorAccess(Engine& engine) : engine_(engine) {}

  StatusOr<at::Tensor> GetFullFp32Param(const std::string& name);
  StatusOr<at::Tensor> GetFullGrad(const std::string& name);
  StatusOr<at::Tensor> GetFullOptimizerState(const std::string& name, const std::string& state);

  // All ranks give the same value. The model follows at once.
  Status SetFullFp32Param(const std::string& name, const at::Tensor& value);
  Status SetFullGrad(const std::string& name, const at::Tensor& value);
  Status SetFullOptimizerState(const std::string& name, const std::string& state,
                               const at::Tensor& value);
  // Replaces the gradients of all these by what `update` makes of each, the same on every rank.
  using GradientUpdate =
      std::function<at::Tensor(const std::string& name, const at::Tensor& gradient)>;
  Status UpdateFullGrads(const std::vector<std::string>& names, const GradientUpdate& update);

  // Copies. Collective only for gradients, which may have to be reduced first.
  StatusOr<at::Tensor> GetLocalFp32Param(const std::string& name);
  StatusOr<at::Tensor> GetLocalGrad(const std::string& name);
  StatusOr<at::Tensor> GetLocalOptimizerState(const std::string& name, const std::string& state);

  // Takes a value of the length that the getter gives. Collective: the model follows at once.
  Status SetLocalFp32Param(const std::string& name, const at::Tensor& value);
  Status SetLocalGrad(const std::string& name, const at::Tensor& value);
  Status SetLocalOptimizerState(const std::string& name, const std::string& state,
                                const at::Tensor& value);

 private:
  enum class Kind { kWeight, kGradient, kState };
  struct Wanted {
    Kind kind = Kind::kWeight;
    std::string name;
    std::string state;  // of kState
  };
  struct HeldTensor;

  StatusOr<HeldTensor> Find(const Wanted& wanted);
  StatusOr<HeldTensor> FindWritable(const Wanted& wanted);
  StatusOr<at::Tensor> GetFull(const Wanted& wanted);
  StatusOr<at::Tensor> GetLocal(const Wanted& wanted);
  Status SetFull(const Wanted& wanted, const at::Tensor& value);
  Status SetLocal(const Wanted& wanted, const at::Tensor& value);

  Engine& engine_;
};

}  // namespace ds::engine

namespace ds {
using engine::TensorAccess;
}  // namespace ds
