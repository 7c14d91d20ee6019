#include "runtime/zero/shared_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::zero {
namespace {

using ::testing::Optional;
using ::testing::Pair;

// Parameters "0", "1", ..., each in a unit of its own.
std::optional<std::pair<std::string, std::string>> Find(const std::vector<at::Tensor>& tensors) {
  std::vector<ParameterUnit> units;
  for (const at::Tensor& tensor : tensors) {
    const std::string name = std::to_string(units.size());
    units.push_back({.name = "unit", .parameters = {{.name = name, .tensor = tensor}}});
  }
  return FindSharedMemory(units);
}

TEST(SharedMemory, IsFoundWhereverTheParametersBegin) {
  const at::Tensor full = at::zeros({12});
  const at::Tensor apart = at::zeros({12});
  EXPECT_THAT(Find({full, apart, full.view({3, 4})}), Optional(Pair("0", "2")));
  EXPECT_THAT(Find({apart, full.narrow(0, 5, 4), full}), Optional(Pair("1", "2")));
  EXPECT_THAT(Find({full.narrow(0, 0, 6), full.narrow(0, 5, 6)}), Optional(Pair("0", "1")));
  EXPECT_THAT(Find({full.narrow(0, 3, 2), full.view(at::kByte).narrow(0, 14, 2)}),
              Optional(Pair("0", "1")));
}

TEST(SharedMemory, IgnoresTensorsThatOnlyShareAStorage) {
  const at::Tensor full = at::zeros({4, 6});
  EXPECT_EQ(Find({full.narrow(0, 0, 2), full.narrow(0, 2, 2)}), std::nullopt);
  EXPECT_EQ(Find({full.narrow(1, 3, 3), full.narrow(1, 0, 3)}), std::nullopt);
  EXPECT_THAT(Find({full.narrow(1, 0, 3), full.narrow(1, 2, 3)}), Optional(Pair("0", "1")));
}

TEST(SharedMemory, NeedsData) {
  at::Tensor without = at::empty({4});
  without.storage().set_nbytes(0);
  const at::Tensor full = at::zeros({4});
  EXPECT_EQ(Find({without, without.view({2, 2}), full.narrow(0, 1, 0), full}), std::nullopt);
}

}  // namespace
}  // namespace ds::zero
