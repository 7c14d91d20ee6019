#include "runtime/zero/storage/storage_guard.h"

#include <c10/core/StorageImpl.h>

#include <utility>

namespace ds::zero {
namespace {

// c10 sets this flag (release_data_and_set_meta_custom_data_ptr_error_msg_) and has no function
// that clears it. An explicit instantiation may name private members.
using Flag = bool c10::StorageImpl::*;
Flag ThrowsOnRead();
template <Flag flag>
struct NamedFlag {
  friend Flag ThrowsOnRead() { return flag; }
};
template struct NamedFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

// The deleter of guards, which marks them.
void DeleteNothing(void*) {}

}  // namespace

at::DataPtr TakeMemory(const at::Storage& storage, const std::string& error) {
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  at::DataPtr memory = std::move(impl->_mutable_data_ptr_no_checks());
  impl->set_data_ptr_noswap(at::DataPtr(nullptr, memory.device()));
  impl->set_nbytes(0);
  impl->release_data_and_set_meta_custom_data_ptr_error_msg_(error);
  return memory;
}

void PutMemory(const at::Storage& storage, at::DataPtr memory, std::int64_t bytes) {
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  impl->*ThrowsOnRead() = false;
  impl->set_data_ptr_noswap(std::move(memory));
  impl->set_nbytes(static_cast<std::size_t>(bytes));
}

at::Storage MakeGuard(const std::string& error, std::int64_t bytes, c10::Device device) {
  at::Storage storage(
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(bytes),
                                            at::DataPtr(nullptr, nullptr, &DeleteNothing, device),
                                            /*allocator=*/nullptr, /*resizable=*/false));
  SetGuardError(storage, error);
  return storage;
}

void SetGuardError(const at::Storage& guard, const std::string& error) {
  guard.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(error);
}

bool IsGuard(const at::Storage& storage) {
  return storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get_deleter() ==
         &DeleteNothing;
}

}  // namespace ds::zero
