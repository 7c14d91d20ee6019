#include "runtime/zero/storage/store_source.h"

#include <c10/util/Exception.h>

namespace ds::zero {
namespace {

class StoreSource : public checkpoint::TensorSource {
 public:
  StoreSource(Store& store, const FlatRange& range) : store_(store), range_(range) {}

  std::int64_t count() const override { return range_.count; }
  at::ScalarType dtype() const override { return store_.dtype(); }

  Status Read(std::int64_t first, std::int64_t count, const TakeBytes& take) override {
    return UseOnOwnTier(store_, At(first, count), Access::kRead, [&](const at::Tensor& range) {
      return checkpoint::SourceOf(range)->Read(0, count, take);
    });
  }
  Status Write(std::int64_t first, std::int64_t count, const FillBytes& fill) override {
    return UseOnOwnTier(store_, At(first, count), Access::kUpdate, [&](const at::Tensor& range) {
      return checkpoint::SourceOf(range)->Write(0, count, fill);
    });
  }

 private:
  FlatRange At(std::int64_t first, std::int64_t count) const {
    return {range_.start + first, count};
  }

  Store& store_;
  const FlatRange range_;
};

}  // namespace

std::shared_ptr<checkpoint::TensorSource> SourceOf(Store& store, const FlatRange& range) {
  return std::make_shared<StoreSource>(store, range);
}

Status UseOnOwnTier(Store& store, const FlatRange& range, Access access,
                    const std::function<Status(const at::Tensor&)>& use) {
  try {
    Status status;
    {
      const Lease lease = store.AcquireOnOwnTier(range, access);
      status = use(lease.tensor());
    }
    if (store.is_in_file()) store.Offload(range);
    return status;
  } catch (const c10::Error& error) {
    return DataLossError(error.what_without_backtrace());
  }
}

}  // namespace ds::zero
