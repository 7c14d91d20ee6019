#include "runtime/base/fnv.h"

#include <gtest/gtest.h>

namespace ds {
namespace {

// The vectors of the algorithm's authors (draft-eastlake-fnv).
TEST(FnvTest, TheAuthorsVectors) {
  EXPECT_EQ(HashFnv1a(""), 0xcbf29ce484222325U);
  EXPECT_EQ(HashFnv1a("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(HashFnv1a("foobar"), 0x85944171f73967e8U);
}

}  // namespace
}  // namespace ds
