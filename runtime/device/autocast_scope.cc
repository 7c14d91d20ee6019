#include "runtime/device/autocast_scope.h"

#include <ATen/autocast_mode.h>

namespace ds::precision {

namespace autocast = at::autocast;

AutocastScope::AutocastScope(std::optional<c10::ScalarType> dtype, c10::Device device)
    : active_(dtype.has_value()), device_(device.type()) {
  if (!active_) return;
  was_enabled_ = autocast::is_autocast_enabled(device_);
  was_dtype_ = autocast::get_autocast_dtype(device_);
  was_cached_ = autocast::is_autocast_cache_enabled();
  autocast::set_autocast_enabled(device_, true);
  autocast::set_autocast_dtype(device_, *dtype);
  // LibTorch's cache would keep a cast copy of every weight until the end of the pass; under ZeRO-3
  // that is the full model.
  autocast::set_autocast_cache_enabled(false);
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  autocast::set_autocast_enabled(device_, was_enabled_);
  autocast::set_autocast_dtype(device_, was_dtype_);
  autocast::set_autocast_cache_enabled(was_cached_);
}

at::Tensor AutocastOperand(const at::Tensor& operand) {
  const c10::DeviceType device = operand.device().type();
  if (!autocast::is_autocast_enabled(device)) return operand;
  return autocast::cached_cast(autocast::get_autocast_dtype(device), operand, device);
}

}  // namespace ds::precision
