#include "runtime/device/transfers.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/base/check.h"

namespace ds::device {
namespace {

// An event is waited for, not the stream: LibTorch's look-out for synchronising calls, which a test
// has on for everything in a step, knows that this one is meant.
at::Tensor CopyToHost(const at::Tensor& numbers) {
  const at::Tensor host =
      at::empty(numbers.sizes(), at::TensorOptions(numbers.dtype()).pinned_memory(true));
  host.copy_(numbers, /*non_blocking=*/true);
  const c10::impl::VirtualGuardImpl guard(numbers.device().type());
  c10::Event copied(numbers.device().type());
  copied.record(guard.getStream(numbers.device()));
  copied.synchronize();
  return host;
}

}  // namespace

std::vector<double> ReadNumbers(const at::Tensor& numbers) {
  DS_CHECK(numbers.dim() == 1 && numbers.is_contiguous() && numbers.scalar_type() == at::kDouble);
  const at::Tensor host = numbers.is_cpu() ? numbers : CopyToHost(numbers);
  const auto* const first = host.const_data_ptr<double>();
  return {first, first + host.numel()};
}

at::Tensor BringTo(const at::Tensor& host, c10::Device device) {
  if (device.is_cpu()) return host;
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace ds::device
