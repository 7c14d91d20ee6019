#include "runtime/autograd/saved_buffer.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace ds::activation {
namespace {

// Alignment of slices, for vector loads of any width.
constexpr std::int64_t kAlignment = 64;

}  // namespace

at::Tensor SavedBuffer::Keep(std::size_t input, const at::Tensor& values) {
  const std::int64_t size = (values.numel() + kAlignment - 1) / kAlignment * kAlignment;
  Slices& slices = slices_[{input, values.scalar_type(), values.numel()}];
  TORCH_CHECK(slices.taken < count_, "activation_checkpointing.number_checkpoints is ", count_,
              ", and a forward pass keeps more: set it to the layers that are computed again");
  if (!slices.all.defined()) slices.all = at::empty({count_ * size}, values.options());
  // The slice has its own version counter: others are written while autograd keeps this one.
  const at::Tensor slice =
      slices.all.narrow(0, size * slices.taken++, values.numel()).variable_data();
  slice.copy_(values);
  return slice;
}

}  // namespace ds::activation
