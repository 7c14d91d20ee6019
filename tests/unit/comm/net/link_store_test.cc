#include "runtime/comm/net/link_store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace ds::comm {
namespace {

class LinkStoreTest : public ::testing::Test {
 protected:
  LinkStoreTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    link_ = std::make_unique<RankLink>(UniqueFd(ends[0]));
    daemon_.Reset(ends[1]);
  }
  void Answer(const std::string& line) {
    ASSERT_EQ(::write(daemon_.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  std::string Said() {
    std::string line(1000, '\0');
    line.resize(static_cast<std::size_t>(::read(daemon_.get(), line.data(), line.size())));
    return line;
  }

  std::unique_ptr<RankLink> link_;
  UniqueFd daemon_;
};

constexpr std::chrono::minutes kLong{1};

TEST_F(LinkStoreTest, PutsAndGetsGoOverTheLink) {
  LinkStore store(link_.get());
  ASSERT_TRUE(store.Put("ranks/0", "at 10.0.0.1").ok());
  EXPECT_EQ(Said(), "dsrun1 put {\"key\":\"ranks/0\",\"value\":\"at 10.0.0.1\"}\n");
  Answer("dsrun1 value {\"key\":\"ranks/1\",\"value\":\"at 10.0.0.2\"}\n");
  const auto value = store.Get("ranks/1", kLong);
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(*value, "at 10.0.0.2");
  EXPECT_EQ(Said(), "dsrun1 get {\"key\":\"ranks/1\"}\n");
}

TEST_F(LinkStoreTest, ADaemonThatDoesNotAnswerOrIsGoneIsAnError) {
  LinkStore store(link_.get());
  EXPECT_EQ(store.Get("a", std::chrono::milliseconds(1)).status().code(),
            StatusCode::kDeadlineExceeded);
  daemon_.Reset();
  EXPECT_EQ(store.Get("a", kLong).status().code(), StatusCode::kUnavailable);
}

TEST_F(LinkStoreTest, AnAnswerToAnotherQuestionIsAnError) {
  LinkStore store(link_.get());
  Answer("dsrun1 value {\"key\":\"b\",\"value\":\"x\"}\n");
  EXPECT_EQ(store.Get("a", kLong).status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace ds::comm
