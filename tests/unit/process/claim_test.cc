#include "runtime/process/claim.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <vector>

namespace ds {
namespace {

TEST(Claim, IsTakenOnce) {
  const StatusOr<Claim> claim = Claim::Create();
  ASSERT_TRUE(claim.ok());
  EXPECT_TRUE(claim->Take());
  EXPECT_FALSE(claim->Take());
}

TEST(Claim, OneOfManyProcessesHasIt) {
  const StatusOr<Claim> claim = Claim::Create();
  ASSERT_TRUE(claim.ok());
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(Claim(UniqueFd(::dup(claim->fd()))).Take() ? 1 : 0);
    children.push_back(child);
  }
  int taken = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    taken += WEXITSTATUS(status);
  }
  EXPECT_EQ(taken, 1);
  EXPECT_FALSE(claim->Take());
}

TEST(Claim, WhatIsNoneIsNobodys) {
  EXPECT_FALSE(Claim(UniqueFd()).Take());
  EXPECT_FALSE(Claim(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))).Take());
}

}  // namespace
}  // namespace ds
