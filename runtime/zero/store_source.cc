#include "runtime/zero/store_source.h"

namespace ds::zero {
namespace {

class StoreSource : public checkpoint::TensorSource {
 public:
  StoreSource(Store& store, const FlatRange& range) : store_(store), range_(range) {}

  std::int64_t count() const override { return range_.count; }
  at::ScalarType dtype() const override { return store_.dtype(); }

  Status Read(std::int64_t first, std::int64_t count, const TakeBytes& take) override {
    const Lease lease = Borrow(first, count);
    return checkpoint::SourceOf(lease.tensor())->Read(0, count, take);
  }
  Status Write(std::int64_t first, std::int64_t count, const FillBytes& fill) override {
    const Lease lease = Borrow(first, count);
    return checkpoint::SourceOf(lease.tensor())->Write(0, count, fill);
  }

 private:
  Lease Borrow(std::int64_t first, std::int64_t count) {
    return store_.AcquireWhereItLies({range_.start + first, count});
  }

  Store& store_;
  const FlatRange range_;
};

}  // namespace

std::shared_ptr<checkpoint::TensorSource> SourceOf(Store& store, const FlatRange& range) {
  return std::make_shared<StoreSource>(store, range);
}

}  // namespace ds::zero
