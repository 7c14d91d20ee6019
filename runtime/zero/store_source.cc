#include "runtime/zero/store_source.h"

#include <c10/util/Exception.h>

namespace ds::zero {
namespace {

class StoreSource : public checkpoint::TensorSource {
 public:
  StoreSource(Store& store, const FlatRange& range) : store_(store), range_(range) {}

  std::int64_t count() const override { return range_.count; }
  at::ScalarType dtype() const override { return store_.dtype(); }

  Status Read(std::int64_t first, std::int64_t count, const TakeBytes& take) override {
    return Use(first, count, Access::kRead, [&](const at::Tensor& range) {
      return checkpoint::SourceOf(range)->Read(0, count, take);
    });
  }
  Status Write(std::int64_t first, std::int64_t count, const FillBytes& fill) override {
    return Use(first, count, Access::kUpdate, [&](const at::Tensor& range) {
      return checkpoint::SourceOf(range)->Write(0, count, fill);
    });
  }

 private:
  // Calls `use` with the elements. What a file had to bring for that goes again.
  template <typename UseRange>
  Status Use(std::int64_t first, std::int64_t count, Access access, UseRange use) {
    const FlatRange range{range_.start + first, count};
    // A drive that fails throws, and the other ranks wait for this one's status.
    try {
      Status status;
      {
        const Lease lease = store_.AcquireWhereItLies(range, access);
        status = use(lease.tensor());
      }
      if (store_.rests_in_file()) store_.Stow(range);
      return status;
    } catch (const c10::Error& error) {
      return DataLossError(error.what_without_backtrace());
    }
  }

  Store& store_;
  const FlatRange range_;
};

}  // namespace

std::shared_ptr<checkpoint::TensorSource> SourceOf(Store& store, const FlatRange& range) {
  return std::make_shared<StoreSource>(store, range);
}

}  // namespace ds::zero
