#include "runtime/process/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

namespace ds {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPatience{10'000};
constexpr std::size_t kMaxBytes = std::size_t{16} << 20;

class UnixSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "/socket-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    one_.Reset(ends[0]);
    other_.Reset(ends[1]);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  UniqueFd one_, other_;
};

TEST_F(UnixSocketTest, AMessageOfManyMebibytesAndADescriptor) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const UniqueFd read(pipe[0]);
  UniqueFd write(pipe[1]);
  const std::string text(std::size_t{5} << 20, 'x');
  std::thread sender([&] {
    EXPECT_TRUE(SendMessage(one_.get(), text, kPatience, {write.get()}).ok());
    write.Reset();
  });
  auto message = ReceiveMessage(other_.get(), kMaxBytes, kPatience);
  sender.join();
  ASSERT_TRUE(message.ok()) << message.status().message();
  EXPECT_EQ(message->bytes, text);
  ASSERT_EQ(message->descriptors.size(), 1u);
  EXPECT_EQ(::write(message->descriptors[0].get(), "!", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(read.get(), &byte, 1), 1);
  EXPECT_EQ(byte, '!');
}

TEST_F(UnixSocketTest, AnEmptyMessageIsOne) {
  ASSERT_TRUE(SendMessage(one_.get(), "", kPatience).ok());
  EXPECT_EQ(ReceiveMessage(other_.get(), kMaxBytes, kPatience)->bytes, "");
}

TEST_F(UnixSocketTest, WhatIsTooLongCutShortOrSilentIsAnError) {
  ASSERT_TRUE(SendMessage(one_.get(), "four", kPatience).ok());
  EXPECT_EQ(ReceiveMessage(other_.get(), 3, kPatience).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(ReceiveMessage(one_.get(), kMaxBytes, milliseconds(0)).status().code(),
            StatusCode::kDeadlineExceeded);
  ASSERT_EQ(::write(other_.get(), "\x09", 1), 1);
  other_.Reset();
  EXPECT_EQ(ReceiveMessage(one_.get(), kMaxBytes, kPatience).status().code(),
            StatusCode::kUnavailable);
}

TEST_F(UnixSocketTest, ASenderDoesNotWaitForEverForAReader) {
  const std::string text(std::size_t{5} << 20, 'x');
  EXPECT_EQ(SendMessage(one_.get(), text, milliseconds(0)).code(), StatusCode::kDeadlineExceeded);
}

TEST_F(UnixSocketTest, ListenConnectAndKnowThePeer) {
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
  const auto peer = PeerOf(connection->get());
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->user, ::geteuid());
}

TEST_F(UnixSocketTest, APrivateFolderIsNobodyElses) {
  EXPECT_TRUE(CheckPrivateFolder(folder_).ok());
  std::filesystem::create_directory_symlink(folder_, folder_ / "link");
  EXPECT_EQ(CheckPrivateFolder(folder_ / "link").code(), StatusCode::kPermissionDenied);
  ASSERT_EQ(::chmod(folder_.c_str(), 0750), 0);
  EXPECT_EQ(CheckPrivateFolder(folder_).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(CheckPrivateFolder(folder_ / "none").code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace ds
