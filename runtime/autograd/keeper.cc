#include "runtime/autograd/keeper.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <utility>

#include "runtime/device/transfers.h"
#include "runtime/offload/windows.h"

namespace ds::activation {
namespace {

void ThrowUnlessOk(const Status& status) { TORCH_CHECK(status.ok(), status.message()); }

offload::ByteRange BytesOf(const std::vector<std::int64_t>& sizes, c10::ScalarType type) {
  return {0, c10::multiply_integers(sizes) * static_cast<std::int64_t>(c10::elementSize(type))};
}

// Returns the file's bytes as a tensor that holds access to them.
at::Tensor Lend(const std::shared_ptr<offload::Windows>& file, offload::Access access,
                const std::vector<std::int64_t>& sizes, c10::ScalarType type) {
  auto acquired = file->Acquire(BytesOf(sizes, type), access);
  ThrowUnlessOk(acquired.ok() ? OkStatus() : acquired.status());
  auto use = std::make_shared<offload::WindowUse>(*std::move(acquired));
  void* const bytes = use->bytes().data();
  const auto give_back = [file, use = std::move(use)](void*) mutable {
    use.reset();
    static_cast<void>(file->Release());  // the next access returns a failed write's error
  };
  return at::from_blob(bytes, sizes, give_back, at::TensorOptions().dtype(type));
}

}  // namespace

void SavedTensor::Prefetch() const {
  if (file_) ThrowUnlessOk(file_->Prefetch(BytesOf(sizes_, type_)));
}

at::Tensor SavedTensor::Bring() const {
  if (!file_) return here_.to(device_, /*non_blocking=*/true);
  const at::Tensor lent = Lend(file_, offload::Access::kRead, sizes_, type_);
  return lent.to(device_);
}

SavedTensor Keeper::Keep(const at::Tensor& values) const {
  SavedTensor saved;
  saved.device_ = values.device();
  if (!Moves(saved.device_)) {
    saved.here_ = values;
    return saved;
  }
  if (where_ == KeepIn::kHost) {
    saved.here_ = device::TakeToHost(values);
    return saved;
  }
  saved.sizes_ = values.sizes().vec();
  saved.type_ = values.scalar_type();
  auto file = offload::Windows::Create(*files_, BytesOf(saved.sizes_, saved.type_).count);
  ThrowUnlessOk(file.ok() ? OkStatus() : file.status());
  saved.file_ = *std::move(file);
  Lend(saved.file_, offload::Access::kOverwrite, saved.sizes_, saved.type_).copy_(values);
  return saved;
}

void Keeper::Add(const at::Tensor& change, SavedTensor* sum) const {
  if (!sum->defined()) {
    *sum = Keep(change);
  } else if (!Moves(change.device())) {
    sum->here_.add_(change);
  } else {
    *sum = Keep(sum->Bring() + change);
  }
}

}  // namespace ds::activation
