#include "runtime/autograd/saved_buffer.h"

#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

namespace ds::activation {
namespace {

TEST(SavedBuffer, TensorsOfASizeAreAdjacentAndKeepTheirVersions) {
  SavedBuffer buffer(3);
  const at::Tensor values = at::arange(10, at::kFloat);
  const at::Tensor first = buffer.Keep(0, values);
  const auto version = first._version();
  const at::Tensor second = buffer.Keep(0, values * 2), other = buffer.Keep(1, values);
  EXPECT_TRUE(first.equal(values));
  EXPECT_TRUE(second.equal(values * 2));
  EXPECT_EQ(first._version(), version);
  EXPECT_EQ(first.storage().unsafeGetStorageImpl(), second.storage().unsafeGetStorageImpl());
  EXPECT_NE(first.storage().unsafeGetStorageImpl(), other.storage().unsafeGetStorageImpl());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second.data_ptr()) % 64, 0U);
}

TEST(SavedBuffer, IsThereUntilTheLastSliceGoes) {
  at::Tensor slice;
  {
    SavedBuffer buffer(2);
    slice = buffer.Keep(0, at::arange(4));
  }
  EXPECT_TRUE(slice.equal(at::arange(4)));
}

TEST(SavedBuffer, NamesTheKeyThatIsTooSmall) {
  SavedBuffer buffer(1);
  static_cast<void>(buffer.Keep(0, at::arange(4)));
  try {
    static_cast<void>(buffer.Keep(0, at::arange(4)));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                ::testing::HasSubstr("number_checkpoints is 1, and a forward pass keeps more"));
  }
}

}  // namespace
}  // namespace ds::activation
