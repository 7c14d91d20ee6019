#include "runtime/rank/torch_boundary.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace ds::rank {
namespace {

TEST(TorchBoundaryTest, StatusPassesThrough) {
  EXPECT_TRUE(AtTorchBoundary([] { return OkStatus(); }).ok());
  EXPECT_EQ(AtTorchBoundary([] { return NotFoundError("x"); }), NotFoundError("x"));
}

TEST(TorchBoundaryTest, LibTorchsErrorBecomesItsSentence) {
  const Status status = AtTorchBoundary([] {
    at::ones({2}).view({3});
    return OkStatus();
  });
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("shape '[3]' is invalid"), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find("frame #"), std::string::npos) << "a backtrace is no sentence";
}

TEST(TorchBoundaryTest, DistinguishesOutOfMemoryFromBugs) {
  EXPECT_EQ(AtTorchBoundary([]() -> Status { throw std::bad_alloc(); }).code(),
            StatusCode::kResourceExhausted);
  const Status refused = AtTorchBoundary([] {
    at::empty({std::int64_t{1} << 46});
    return OkStatus();
  });
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsOutOfMemory(refused)) << refused.message();
  EXPECT_EQ(refused.message().find("enforce"), std::string::npos) << refused.message();
  const Status bug = AtTorchBoundary([]() -> Status { throw std::logic_error("why"); });
  EXPECT_EQ(bug, InternalError("why"));
  EXPECT_FALSE(IsOutOfMemory(bug));
}

}  // namespace
}  // namespace ds::rank
