#pragma once

// AutocastScope implements torch_autocast. During its lifetime LibTorch runs this thread's matrix
// products, convolutions and attention in a lower precision, and operations that need fp32 in fp32.
// Weights are cast again at each use; autograd casts their gradients back.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace ds::precision {

class AutocastScope {
 public:
  // Without a dtype the scope has no effect.
  AutocastScope(std::optional<c10::ScalarType> dtype, c10::Device device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const bool active_;
  const c10::DeviceType device_;
  bool was_enabled_ = false;
  bool was_cached_ = false;
  c10::ScalarType was_dtype_ = c10::kFloat;
};

// Returns the operand in autocast's dtype, or the operand itself if autocast is off on this thread.
// Differentiable. For functions with their own backward pass, which autocast does not know.
at::Tensor AutocastOperand(const at::Tensor& operand);

}  // namespace ds::precision
