#include "runtime/zero/context.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>

#include <utility>

namespace ds::zero {

BookedTensor MakeBooked(const Context& context, const FlatSpec& spec) {
  at::Tensor tensor =
      at::empty({spec.count}, at::TensorOptions().dtype(spec.dtype).device(context.device));
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  return {std::move(tensor), device::LedgerEntry(context.ledger, spec.use, context.tier(), bytes),
          at::Tensor()};
}

void MoveToHost(const Context& context, BookedTensor& booked) {
  if (!booked.defined() || booked.on_host.defined()) return;
  const bool pin = !context.device.is_cpu();
  const auto options = at::TensorOptions().dtype(booked.tensor.dtype()).pinned_memory(pin);
  booked.on_host = at::empty(booked.tensor.sizes(), options);
  booked.on_host.copy_(booked.tensor);
  c10::StorageImpl* storage = booked.tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, context.device));
  storage->set_nbytes(0);
  booked.entry = device::LedgerEntry(context.ledger, booked.entry.use(),
                                     pin ? device::MemoryTier::kPinned : device::MemoryTier::kHost,
                                     booked.entry.bytes());
}

void MoveBack(const Context& context, BookedTensor& booked) {
  if (!booked.on_host.defined()) return;
  const std::size_t bytes = booked.on_host.nbytes();
  c10::StorageImpl* storage = booked.tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::GetAllocator(context.device.type())->allocate(bytes));
  storage->set_nbytes(bytes);
  booked.tensor.copy_(booked.on_host);
  booked.on_host.reset();
  booked.entry =
      device::LedgerEntry(context.ledger, booked.entry.use(), context.tier(), booked.entry.bytes());
}

}  // namespace ds::zero
