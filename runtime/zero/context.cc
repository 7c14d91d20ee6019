#include "runtime/zero/context.h"

#include <ATen/ops/empty.h>

namespace ds::zero {

BookedTensor MakeBooked(const Context& context, const FlatSpec& spec) {
  at::Tensor tensor =
      at::empty({spec.count}, at::TensorOptions().dtype(spec.dtype).device(context.device));
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  return {std::move(tensor), device::LedgerEntry(context.ledger, spec.use, context.tier(), bytes)};
}

}  // namespace ds::zero
