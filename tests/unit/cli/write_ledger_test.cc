#include "cli/job/write_ledger.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/job/log_file.h"
#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

constexpr std::size_t kHosts = 3;

v1::Event Numbered(std::uint64_t sequence) {
  v1::Event event;
  event.set_sequence(sequence);
  return event;
}

class WriteLedgerTest : public ::testing::Test {
 protected:
  WriteLedger Ledger() { return WriteLedger(memory_.data(), kHosts); }

  ds::testing::TemporaryFolder folder_;
  std::vector<std::uint64_t> memory_ =
      std::vector<std::uint64_t>(WriteLedger::BytesFor(kHosts) / sizeof(std::uint64_t) + 1);
  const std::string a_ = "a", b_ = "b";
};

TEST_F(WriteLedgerTest, RecordsEventsByHostAndGeneration) {
  WriteLedger ledger = Ledger();
  EXPECT_TRUE(ledger.OnEvent({a_, 0, Numbered(7)}));
  ledger.OnWritten();
  EXPECT_TRUE(ledger.OnEvent({b_, 0, Numbered(2)}));
  ledger.OnWritten();
  EXPECT_FALSE(Ledger().OnEvent({a_, 0, Numbered(7)}));
  EXPECT_TRUE(Ledger().OnEvent({a_, 0, Numbered(8)}));
  EXPECT_TRUE(Ledger().OnEvent({b_, 0, Numbered(3)}));
  EXPECT_TRUE(Ledger().OnEvent({a_, 1, Numbered(1)})) << "sequences begin again";
}

// A writer may be killed at any moment: before, in the middle of or after the write.
TEST_F(WriteLedgerTest, AnAppendWithoutARecordIsUndone) {
  const auto path = folder_.path() / "log";
  for (const std::string written : {"", "li", "line 2\n"}) {
    ASSERT_TRUE(WriteFileAtomically(path, "line 1\n" + written).ok());
    WriteLedger ledger = Ledger();
    ledger.OnEvent({a_, 0, Numbered(1)});
    ledger.OnAppend(path, 7);
    EXPECT_TRUE(Ledger().Undo().ok());
    EXPECT_EQ(*ReadFile(path), "line 1\n");
    EXPECT_TRUE(Ledger().Undo().ok());
  }
}

TEST_F(WriteLedgerTest, ARecordedAppendStays) {
  const auto path = folder_.path() / "log";
  WriteLedger ledger = Ledger();
  LogFile log(path, {}, &ledger);
  ledger.OnEvent({a_, 0, Numbered(1)});
  EXPECT_TRUE(log.Append("line 1\n").status.ok());
  ledger.OnWritten();
  EXPECT_TRUE(Ledger().Undo().ok());
  EXPECT_EQ(*ReadFile(path), "line 1\n");
}

TEST_F(WriteLedgerTest, TheFileMayHaveBeenRotatedInBetween) {
  const auto path = folder_.path() / "log";
  WriteLedger ledger = Ledger();
  LogFile log(path, {.max_bytes = 10}, &ledger);
  ledger.OnEvent({a_, 0, Numbered(1)});
  EXPECT_TRUE(log.Append("line 1\n").status.ok());
  ledger.OnWritten();
  ledger.OnEvent({a_, 0, Numbered(2)});
  EXPECT_TRUE(log.Append("line 2\n").status.ok());
  EXPECT_TRUE(Ledger().Undo().ok());
  EXPECT_EQ(*ReadFile(path), "");
  EXPECT_EQ(*ReadFile(NameRotated(path, 1)), "line 1\n");
}

TEST_F(WriteLedgerTest, WithoutMemoryNothingIsRecorded) {
  WriteLedger ledger;
  EXPECT_TRUE(ledger.OnEvent({a_, 0, Numbered(1)}));
  ledger.OnAppend(folder_.path() / "log", 0);
  ledger.OnWritten();
  EXPECT_TRUE(ledger.OnEvent({a_, 0, Numbered(1)}));
  EXPECT_TRUE(ledger.Undo().ok());
}

}  // namespace
}  // namespace ds::cli
