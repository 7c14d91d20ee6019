#include "runtime/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace ds {
namespace {

StatusOr<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgumentError("odd");
  return value / 2;
}

StatusOr<int> Quarter(int value) {
  DS_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

TEST(StatusTest, DefaultIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status(), OkStatus());
}

TEST(StatusTest, CodesEqualGrpcs) {
  EXPECT_EQ(static_cast<int>(StatusCode::kInvalidArgument), 3);
  EXPECT_EQ(static_cast<int>(StatusCode::kUnavailable), 14);
  EXPECT_EQ(static_cast<int>(StatusCode::kUnauthenticated), 16);
}

TEST(StatusTest, ContextComesFirst) {
  const Status status = NotFoundError("no such file").WithContext("hostfile");
  EXPECT_EQ(status.message(), "hostfile: no such file");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(OkStatus().WithContext("anything").ok());
}

TEST(StatusTest, ErrnoBecomesCodeAndWords) {
  const Status full = ErrnoError(ENOSPC, "/data/x");
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(full.message(), "/data/x: No space left on device");
  EXPECT_EQ(ErrnoError(ENOENT, "a").code(), StatusCode::kNotFound);
}

TEST(StatusOrTest, PropagatesTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

TEST(StatusOrDeathTest, ValueOfAnErrorIsABug) {
  const StatusOr<int> bad = InvalidArgumentError("because");
  EXPECT_DEATH(static_cast<void>(bad.value()), "because");
}

TEST(CheckTest, ThrowsInProcessesOfOtherPrograms) {
  const StatusOr<int> bad = InvalidArgumentError("because");
  ThrowOnFailedCheck(true);
  try {
    static_cast<void>(bad.value());
    ADD_FAILURE() << "no exception";
  } catch (const CheckError& error) {
    EXPECT_THAT(error.what(), ::testing::MatchesRegex(".*:[0-9]+: bug: check failed: .*because.*"));
  }
  ThrowOnFailedCheck(false);
  EXPECT_DEATH(static_cast<void>(bad.value()), "bug: check failed: .*because");
}

}  // namespace
}  // namespace ds
