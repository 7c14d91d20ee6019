// What ranks write arrives complete, in order, and whole lines at a time.

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/procs/daemon_job.h"
#include "tests/support/daemon_calls.h"

namespace ds::procs {
namespace {

using OutputTest = DaemonJob;

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
    start = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

// Sanitizers keep freed memory for a while.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// The largest resident size a process has had.
long PeakMebibytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string word;
  long kibibytes = -1;
  while (status >> word) {
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes / 1024;
  }
  return -1;
}

TEST_F(OutputTest, ManyLinesOfEightRanksAreUndamaged) {
  constexpr int kLines = 100'000;
  bool whole_lines = true;
  const Outcome outcome =
      Run(Request(8, {"lines", std::to_string(kLines)}), [&](const v1::Event& event) {
        if (event.has_rank_output() && !event.rank_output().partial()) {
          whole_lines = whole_lines && event.rank_output().data().back() == '\n';
        }
      });
  EXPECT_TRUE(whole_lines);
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    const std::vector<std::string> lines = SplitLines(outcome.out.at(rank));
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(kLines)) << "rank " << rank;
    for (int i = 0; i < kLines; ++i) {
      const std::string expected = "rank " + std::to_string(rank) + " line " + std::to_string(i) +
                                   " " + std::string(static_cast<std::size_t>(i % 61), 'x');
      ASSERT_EQ(lines[static_cast<std::size_t>(i)], expected);
    }
  }
}

TEST_F(OutputTest, StreamsAreKeptApart) {
  const Outcome outcome = Run(Request(1, {"say", "hello\n"}));
  EXPECT_EQ(outcome.out.at(0), "hello\n");
  EXPECT_EQ(outcome.err.at(0), "HELLO\n");
}

TEST_F(OutputTest, EveryByteArrivesWithoutAFinalNewline) {
  bool last_was_partial = false;
  const Outcome outcome = Run(Request(1, {"every-byte"}), [&](const v1::Event& event) {
    if (event.has_rank_output()) last_was_partial = event.rank_output().partial();
  });
  std::string expected;
  for (int c = 255; c >= 0; --c) expected.push_back(static_cast<char>(c));
  EXPECT_EQ(outcome.out.at(0), expected);
  EXPECT_TRUE(last_was_partial);
}

TEST_F(OutputTest, ALineOfOneMegabyteArrives) {
  constexpr std::size_t kLength = 1'000'000;
  const Outcome outcome = Run(Request(1, {"long-line", std::to_string(kLength)}));
  EXPECT_EQ(outcome.out.at(0), std::string(kLength, 'y') + "\n");
}

TEST_F(OutputTest, ALineOfFiveMegabytesComesInMarkedPieces) {
  constexpr std::size_t kLength = 5'000'000;
  std::vector<bool> partial;
  const Outcome outcome =
      Run(Request(1, {"long-line", std::to_string(kLength)}), [&](const v1::Event& event) {
        if (event.has_rank_output()) partial.push_back(event.rank_output().partial());
      });
  EXPECT_EQ(outcome.out.at(0), std::string(kLength, 'y') + "\n");
  EXPECT_GE(std::count(partial.begin(), partial.end(), true), 4);
  EXPECT_FALSE(partial.back());
}

TEST_F(OutputTest, AProgressBarIsSeenWhileItRuns) {
  const Outcome outcome = Run(Request(1, {"say", "\r 10%\r 20%\r 30%\ndone\n"}));
  EXPECT_EQ(outcome.out.at(0), "\r 10%\r 20%\r 30%\ndone\n");
}

TEST_F(OutputTest, ASlowReaderMakesRanksWaitAndLosesNothing) {
  // Far more than the daemon may hold in memory (64 MiB).
  constexpr std::size_t kLength = 300'000'000;
  const auto launched =
      testing::Launch(client(), Request(1, {"long-line", std::to_string(kLength)}));
  ASSERT_TRUE(launched.ok());
  const Outcome outcome = Watch();
  EXPECT_EQ(outcome.out.at(0).size(), kLength + 1);
  EXPECT_EQ(outcome.exits.at(0).exit_code(), 0);
  if (!kSanitized) {
    EXPECT_LT(PeakMebibytes(daemon().pid()), 128);
  }
}

TEST_F(OutputTest, MessagesOfTheRankLinkAreReports) {
  const Outcome outcome = Run(Request(1, {"link"}));
  const std::vector<v1::RankReport>& reports = outcome.reports.at(0);
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_EQ(reports[0].hello().pid(), 1U);
  EXPECT_EQ(reports[1].beacon().step(), 7U);
  EXPECT_EQ(reports[2].error().message(), "no \"data\"");
  EXPECT_FALSE(outcome.exits.at(0).link_broken());
}

TEST_F(OutputTest, ARankThatBreaksTheLinkLosesTheLinkOnly) {
  const Outcome outcome = Run(Request(1, {"break-link"}));
  EXPECT_TRUE(outcome.exits.at(0).link_broken());
  EXPECT_EQ(outcome.exits.at(0).exit_code(), 0);
}

TEST_F(OutputTest, ACancelledWatchResumesWhereItWas) {
  ASSERT_TRUE(testing::Launch(client(), Request(1, {"lines", "1000"})).ok());
  std::string text;
  std::uint64_t seen = 0;
  const Status cancelled = testing::WatchUntil(client(), {kJob, 1, 0}, [&](const v1::Event& event) {
    EXPECT_EQ(event.sequence(), ++seen);
    text += event.rank_output().data();
    return true;
  });
  EXPECT_EQ(cancelled.code(), StatusCode::kCancelled) << cancelled.message();
  EXPECT_EQ(seen, 1U);
  const Status ended = testing::Watch(client(), {kJob, 1, seen}, [&](const v1::Event& event) {
    EXPECT_EQ(event.sequence(), ++seen);
    text += event.rank_output().data();
  });
  EXPECT_TRUE(ended.ok()) << ended.message();
  EXPECT_EQ(SplitLines(text).size(), 1000U);
}

}  // namespace
}  // namespace ds::procs
