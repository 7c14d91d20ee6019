#pragma once

// AutocastScope is torch_autocast: while one lives, LibTorch runs matrix products, convolutions and
// attention of this thread in a lower precision, and what needs fp32 in fp32. Weights are cast anew
// each time they are used; autograd casts their gradients back.

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace ds::precision {

class AutocastScope {
 public:
  // Without a dtype nothing changes.
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

}  // namespace ds::precision
