#include "runtime/process/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace ds {
namespace {

class UnixSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "/socket-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(UnixSocketTest, IsForThisUserAloneAndMadeOnce) {
  const auto path = folder_ / "s";
  EXPECT_EQ(ConnectUnix(path).status().code(), StatusCode::kUnavailable);
  const auto listener = ListenUnix(path);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(ListenUnix(path).status().code(), StatusCode::kAlreadyExists);
  const auto connection = ConnectUnix(path);
  ASSERT_TRUE(connection.ok()) << connection.status().message();
}

TEST_F(UnixSocketTest, SendsDescriptors) {
  SocketPair pair = *MakeSocketPair();
  SocketPair sent = *MakeSocketPair();
  ASSERT_TRUE(SendDescriptor(pair.ours.get(), sent.ours).ok());
  sent.ours.Reset();
  const auto received = ReceiveDescriptor(pair.theirs.get());
  ASSERT_TRUE(received.ok()) << received.status().message();
  EXPECT_EQ(::fcntl(received->get(), F_GETFD), FD_CLOEXEC);
  ASSERT_EQ(::write(received->get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(sent.theirs.get(), &byte, 1), 1);
  pair.ours.Reset();
  EXPECT_EQ(ReceiveDescriptor(pair.theirs.get()).status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(SendDescriptor(pair.theirs.get(), sent.theirs).ok());
}

}  // namespace
}  // namespace ds
