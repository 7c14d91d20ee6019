#include "cli/job/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using testing::Beacon;
using ::testing::ElementsAre;
using testing::Exited;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Notice;
using testing::Output;
using testing::Phase;
using testing::Started;
using ::testing::StartsWith;
using testing::Step;

class RunDirectoryTest : public ::testing::Test {
 protected:
  fs::path path() const { return folder_.path() / "runs" / "job"; }
  std::string Content(const fs::path& file) const {
    const auto text = ReadFile(path() / file);
    return text.ok() ? *text : text.status().message();
  }
  Status Append(RunDirectory& run, const v1::Event& event, int generation = 0) {
    return run.Append({host_, generation, event});
  }
  const std::string host_ = "a";
  ds::testing::TemporaryFolder folder_;
};

TEST_F(RunDirectoryTest, KeepsEveryByteOfEveryRank) {
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok()) << run.status().message();
  ASSERT_TRUE(Append(**run, Started(0, 7)).ok());
  ASSERT_TRUE(Append(**run, Output(3, std::string("a\0b\r\n", 5))).ok());
  ASSERT_TRUE(Append(**run, Output(3, "no newline")).ok());
  ASSERT_TRUE(Append(**run, Output(3, "err\n", true)).ok());
  ASSERT_TRUE(Append(**run, Output(3, "again\n"), 1).ok());
  EXPECT_EQ(Content("logs/0/rank-00003.out"), std::string("a\0b\r\nno newline", 15));
  EXPECT_EQ(Content("logs/0/rank-00003.err"), "err\n");
  EXPECT_EQ(Content("logs/1/rank-00003.out"), "again\n");
  EXPECT_EQ(Content("logs/0/rank-00000.out"), "") << "a silent rank has its files too";
  EXPECT_EQ(Content("logs/0/rank-00000.err"), "");
  EXPECT_EQ(*(*run)->NextGeneration(), 2);
}

TEST_F(RunDirectoryTest, LogsThatCannotBeReadAreNoAbsentLogs) {
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(*(*run)->NextGeneration(), 0) << "there are none";
  ASSERT_TRUE(WriteFileAtomically(path() / "logs", "a file").ok());
  EXPECT_THAT((*run)->NextGeneration().status().message(), HasSubstr("logs: Not a directory"));
  fs::remove(path() / "logs");
  fs::create_directories(path() / "logs/0/rank-00003.err");
  // The error depends on the file system.
  EXPECT_THAT((*run)->ReadLastLines(0, 3),
              ElementsAre(StartsWith("(its log cannot be read: " +
                                     (path() / "logs/0/rank-00003.err").string() + ": ")));
}

TEST_F(RunDirectoryTest, LimitedLogsKeepTheirNewestParts) {
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok());
  (*run)->LimitLogs({.max_bytes = 8, .max_files = 2});
  for (const char* text : {"one\n", "two\n", "three\n", "four\n"}) {
    ASSERT_TRUE(Append(**run, Output(3, text)).ok());
  }
  EXPECT_EQ(Content("logs/0/rank-00003.out"), "four\n");
  EXPECT_EQ(Content("logs/0/rank-00003.out.1"), "three\n");
  EXPECT_FALSE(fs::exists(path() / "logs/0/rank-00003.out.2"));
  EXPECT_THAT((*run)->ReadLastLines(0, 3), ElementsAre("three", "four"));
}

TEST_F(RunDirectoryTest, AFullDiskIsWaitedForUntilThatIsGivenUp) {
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok());
  std::vector<std::string> notices;
  (*run)->disk().Listen([&](const std::string& text) {
    notices.push_back(text);
    (*run)->disk().GiveUp();
  });
  fs::create_symlink("/dev/full", path() / "metrics.jsonl");
  const std::string full = (path() / "metrics.jsonl").string() + ": No space left on device";
  EXPECT_EQ(Append(**run, Step(1, 0.1, "{}")).message(), full);
  EXPECT_THAT(notices, ElementsAre(full + "; the job waits until there is space again"));
}

TEST_F(RunDirectoryTest, FilesOfAnotherProgramAreNotContinued) {
  fs::create_directories(path());
  ASSERT_TRUE(WriteFileAtomically(path() / "events.jsonl", "").ok());
  ASSERT_TRUE(RunDirectory::Create(path()).ok()) << "a start that failed leaves that";
  ASSERT_TRUE(WriteFileAtomically(path() / "metrics.jsonl", "{}\n").ok());
  EXPECT_EQ(RunDirectory::Create(path()).status().message(),
            "run directory " + path().string() +
                " has a file metrics.jsonl that is not of a job of dsrun; choose another with "
                "--run_dir");
  EXPECT_EQ(Content("metrics.jsonl"), "{}\n");
}

TEST_F(RunDirectoryTest, ANewFolderIsNobodyElses) {
  const auto run = RunDirectory::CreateNew(path());
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(RunDirectory::CreateNew(path()).status().code(), StatusCode::kAlreadyExists);
}

TEST_F(RunDirectoryTest, ManyRanksLogsNeedFewDescriptors) {
  constexpr int kRanks = 400;
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok()) << run.status().message();
  const auto count = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = count();
  for (int rank = 0; rank < kRanks; ++rank) ASSERT_TRUE(Append(**run, Started(rank, 7)).ok());
  for (const char* line : {"one\n", "two\n"}) {
    for (int rank = 0; rank < kRanks; ++rank) ASSERT_TRUE(Append(**run, Output(rank, line)).ok());
  }
  EXPECT_LE(count() - before, static_cast<std::ptrdiff_t>(RunDirectory::kMostOpenLogs) + 1);
  for (const char* log : {"logs/0/rank-00000.out", "logs/0/rank-00399.out"}) {
    EXPECT_EQ(Content(log), "one\ntwo\n");
  }
}

TEST_F(RunDirectoryTest, WhereFewFilesMayBeOpenFewLogsAre) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok()) << run.status().message();
  for (int rank = 0; rank < 100; ++rank) EXPECT_TRUE(Append(**run, Started(rank, 7)).ok()) << rank;
  EXPECT_TRUE(Append(**run, Output(0, "one\n")).ok());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(Content("logs/0/rank-00000.out"), "one\n");
}

TEST_F(RunDirectoryTest, SettingsAreRestored) {
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok());
  EXPECT_FALSE((*run)->ReadSettings().ok()) << "there are none yet";
  ASSERT_TRUE((*run)->WriteJob({{"train", 1}}, Durability::kDurable).ok());
  ASSERT_TRUE((*run)->WriteResolvedConfig({{"bf16", true}}).ok());
  const std::string job = Content("job.json"), config = Content("config.resolved.json");
  const auto before = (*run)->ReadSettings();
  ASSERT_TRUE(before.ok()) << before.status().message();
  ASSERT_TRUE((*run)->WriteJob({{"train", 2}}, Durability::kDurable).ok());
  ASSERT_TRUE((*run)->WriteResolvedConfig({{"bf16", false}}).ok());
  ASSERT_TRUE((*run)->PutBack(*before).ok());
  EXPECT_EQ(Content("job.json"), job);
  EXPECT_EQ(Content("config.resolved.json"), config);
  EXPECT_EQ(fs::status(path() / "job.json").permissions(), fs::perms(0600)) << "its owner's alone";
  EXPECT_FALSE((*run)->has_new_steps());
  ASSERT_TRUE(Append(**run, Step(1, 0.1, "{}")).ok());
  EXPECT_TRUE((*run)->has_new_steps());
}

TEST_F(RunDirectoryTest, StepsGoToMetricsAndOthersToEvents) {
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok());
  ASSERT_TRUE(Append(**run, Step(1, 0.1, R"({"step":1,"loss":0.10})")).ok());
  ASSERT_TRUE(Append(**run, Beacon(0, 1)).ok());
  ASSERT_TRUE(Append(**run, Phase(1, "train")).ok());
  ASSERT_TRUE(Append(**run, Notice(1, "careful")).ok());
  ASSERT_TRUE(Append(**run, Exited(1, 0, 9)).ok());
  EXPECT_EQ(Content("metrics.jsonl"), "{\"step\":1,\"loss\":0.10}\n");
  const std::string events = Content("events.jsonl");
  EXPECT_EQ(std::count(events.begin(), events.end(), '\n'), 3);
  EXPECT_THAT(events, HasSubstr(R"("event":"rank_report","rank":1,"kind":"phase")"));
  EXPECT_THAT(events, HasSubstr(R"("kind":"notice","body":{"text":"careful"})"));
  EXPECT_THAT(events,
              HasSubstr(R"("event":"rank_exited","rank":1,"pid":1001,"exit_code":0,"signal":9)"));
}

TEST_F(RunDirectoryTest, ASecondJobIsRefused) {
  {
    const auto run = RunDirectory::Create(path());
    ASSERT_TRUE(run.ok());
    ASSERT_TRUE((*run)->WriteJob({{"job", "x"}}, Durability::kAtomic).ok());
  }
  const auto again = RunDirectory::Create(path());
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().message(),
            "run directory " + path().string() +
                " already contains a job; choose another with --run_dir, or resume it if it is "
                "a run of 'dsrun train': dsrun resume " +
                path().string());
  const auto opened = RunDirectory::Open(path());
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ((*opened)->ReadJob()->at("job"), "x");
}

TEST_F(RunDirectoryTest, OneDsrunAtATime) {
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok());
  ASSERT_TRUE((*run)->WriteJob({{"job", "x"}}, Durability::kAtomic).ok());
  const std::string held = "run directory " + path().string() + " is in use by dsrun, pid ";
  EXPECT_THAT(RunDirectory::Open(path()).status().message(), HasSubstr(held));
  // The lock comes before the look for a job: one that begins or ends meanwhile changes nothing.
  EXPECT_THAT(RunDirectory::Create(path()).status().message(), HasSubstr(held));
}

TEST_F(RunDirectoryTest, AnUnwritableFolderNamesTheFlag) {
  const auto run = RunDirectory::Create("/dev/null/job");
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(run.status().message(), HasSubstr("run directory /dev/null/job: "));
  EXPECT_THAT(run.status().message(), HasSubstr("Not a directory; choose another with --run_dir"));
}

TEST_F(RunDirectoryTest, OnlyARunCanBeOpened) {
  const auto run = RunDirectory::Open(folder_.path());
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().message(),
            folder_.path().string() + " is no run directory: it has no job.json");
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "job.json", "[1]").ok());
  const auto damaged = RunDirectory::Open(folder_.path());
  ASSERT_TRUE(damaged.ok());
  EXPECT_THAT((*damaged)->ReadJob().status().message(), HasSubstr("it is no JSON object"));
}

TEST_F(RunDirectoryTest, LastLinesAreOfStandardErrorIfThereAreAny) {
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok());
  const auto lines_after = [&](const v1::Event& event) {
    EXPECT_TRUE(Append(**run, event).ok());
    return (*run)->ReadLastLines(0, 3);
  };
  EXPECT_THAT((*run)->ReadLastLines(0, 3), IsEmpty());
  EXPECT_THAT(lines_after(Started(3, 100)), IsEmpty()) << "its logs are there, and empty";
  EXPECT_THAT(lines_after(Output(3, "out")), ElementsAre("out"));
  EXPECT_THAT(lines_after(Output(3, "one\n\nthree", true)), ElementsAre("one", "", "three"));
  EXPECT_THAT(lines_after(Output(3, "\n\n", true)), ElementsAre("one", "", "three", ""));
  const std::string longest(200'000, 'x');
  EXPECT_THAT(lines_after(Output(3, longest, true)), ElementsAre(longest.substr(0, 64 * 1024)));
}

TEST_F(RunDirectoryTest, AVerdictSurvivesBytesThatAreNoText) {
  const auto run = RunDirectory::Create(path());
  ASSERT_TRUE(run.ok());
  ASSERT_TRUE((*run)->WriteVerdict({.last_lines = {"\xFF\xFE"}}).ok());
  EXPECT_TRUE(nlohmann::json::accept(Content("verdict.json")));
  ASSERT_TRUE((*run)->RemoveVerdict().ok());
  EXPECT_FALSE(fs::exists(path() / "verdict.json"));
  EXPECT_TRUE((*run)->RemoveVerdict().ok()) << "fine when there is none";
}

}  // namespace
}  // namespace ds::cli
