#pragma once

// TensorAccess reads and writes the fp32 weight, the gradient or an optimizer state of one
// parameter, sharded or not. DeepSpeed's counterparts are safe_get_full_fp32_param and similar. It
// only holds a reference to the engine.
//
// "Full" is the unsharded tensor in the parameter's shape, fp32, on the engine's device; these
// methods are collective and return the same on every rank. "Local" is the flat part that this rank
// owns, possibly empty. Names are full names ("transformer.wte.weight"); an optimizer state is
// named as in checkpoints ("exp_avg").
//
// Of experts that ranks have apart, each rank names its own, and all the corresponding ones; the
// ranks with the same experts pass and get the same values.
//
// Gradients exist from the last backward of a step to its step(). They are the mean over ranks of
// the sum over micro-batches, before clipping and without the loss scale. Frozen parameters only
// have a weight, which cannot be set.
//
// Errors: an unknown name or state, a gradient that does not exist, a value with a different shape,
// setting a weight while the weights of an optimizer's ranks differ (ZeroOneAdam), any call inside
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
  // `engine` must outlive this object.
  explicit TensorAccess(Engine& engine) : engine_(engine) {}

  StatusOr<at::Tensor> GetFullFp32Param(const std::string& name);
  StatusOr<at::Tensor> GetFullGrad(const std::string& name);
  StatusOr<at::Tensor> GetFullOptimizerState(const std::string& name, const std::string& state);

  // All ranks pass the same value. The model is updated before the call returns.
  Status SetFullFp32Param(const std::string& name, const at::Tensor& value);
  Status SetFullGrad(const std::string& name, const at::Tensor& value);
  Status SetFullOptimizerState(const std::string& name, const std::string& state,
                               const at::Tensor& value);
  // Returns whether all micro-batches of a step have been through backward, so that step() is next.
  bool HasGradients() const;
  // Replaces the gradient of each parameter by the result of `update`, which must be the same on
  // every rank.
  using GradientUpdate =
      std::function<at::Tensor(const std::string& name, const at::Tensor& gradient)>;
  Status UpdateFullGrads(const std::vector<std::string>& names, const GradientUpdate& update);

  // Returns copies. Collective only for gradients, which may have to be reduced first.
  StatusOr<at::Tensor> GetLocalFp32Param(const std::string& name);
  StatusOr<at::Tensor> GetLocalGrad(const std::string& name);
  StatusOr<at::Tensor> GetLocalOptimizerState(const std::string& name, const std::string& state);

  // Takes a value with the length that the getter returns. Collective: the model is updated before
  // the call returns.
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
  // Returns NotFound unless the ranks hold the full tensor. Collective.
  Status CheckIsHeld(const HeldTensor& found, const Wanted& wanted);
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
