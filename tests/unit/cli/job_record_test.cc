#include "cli/agent/job_record.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "cli/console/backlog_writer.h"
#include "cli/front/agent_link.h"
#include "cli/front/job_view.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint_format/latest.h"
#include "runtime/process/unix_socket.h"
#include "tests/support/program.h"
#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Output;
using testing::Step;

void AddFinding(v1::Finding::Level level, const std::string& message, const std::string& hint,
                v1::PrepareResponse* response) {
  v1::Finding* finding = response->add_findings();
  finding->set_level(level);
  finding->set_message(message);
  finding->set_hint(hint);
}

class JobRecordTest : public ::testing::Test {
 protected:
  struct Shown {
    std::string out, err;
  };

  void SetUp() override {
    auto created = RunDirectory::Create(path());
    ASSERT_TRUE(created.ok()) << created.status().message();
    run_directory_ = *std::move(created);
  }

  // What the user sees of a record that `use` is made of.
  Shown Record(const std::function<void(JobRecord&)>& use) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    {
      BacklogWriter writer;
      Console console({}, &writer);
      SocketPair connection = *MakeSocketPair();
      FrontServer fronts({}, {});
      EXPECT_TRUE(fronts.Start(std::move(connection.theirs), AgentSocket()).ok());
      std::thread front([&] {
        AgentLink link;
        link.Open(std::move(connection.ours));
        while (const auto message = link.Receive()) {
          ShowOnConsole(*message, path().string(), &console);
        }
      });
      {
        WriteLedger ledger;
        JobRecord record(&plan_, run_directory_.get(), &fronts, &ledger);
        use(record);
      }
      fronts.Close();
      front.join();
    }
    Shown shown;
    shown.out = ::testing::internal::GetCapturedStdout();
    shown.err = ::testing::internal::GetCapturedStderr();
    return shown;
  }

  // The same for a job that ends so; its exit status goes to status_.
  Shown Conclude(const JobOutcome& outcome) {
    return Record([&](JobRecord& record) { status_ = record.Conclude(outcome); });
  }

  fs::path path() const { return folder_.path() / "job"; }
  bool HasFile(const std::string& name) const { return fs::exists(path() / name); }
  std::string Content(const std::string& name) const {
    const auto text = ReadFile(path() / name);
    return text.ok() ? *text : text.status().message();
  }

  const std::string host_ = "h1";
  const Verdict failure_{
      .rank = 2, .host = "h1", .exit_code = 3, .message = "rank 2 ended with status 3", .pid = 77};
  ds::testing::TemporaryFolder folder_;
  JobPlan plan_;
  std::unique_ptr<RunDirectory> run_directory_;
  int status_ = -1;
};

TEST_F(JobRecordTest, ShowsTheNoticesOfThePlan) {
  plan_.notices = {"the hostfile names h1 twice", "no GPU is visible"};
  EXPECT_EQ(Record([](JobRecord& record) { record.ShowNotices(); }).err,
            "dsrun: the hostfile names h1 twice\ndsrun: no GPU is visible\n");
}

TEST_F(JobRecordTest, ReportsSparesWithoutRestarts) {
  plan_.spares.push_back({.host = "s1"});
  const auto show = [](JobRecord& record) { record.ShowNotices(); };
  EXPECT_THAT(Record(show).err, HasSubstr("--max_restarts is not given"));
  plan_.flags.max_restarts = 1;
  EXPECT_THAT(Record(show).err, IsEmpty());
}

TEST_F(JobRecordTest, ShowsWarningsOfAHostAndNothingElseOfItsFindings) {
  v1::PrepareResponse response;
  AddFinding(v1::Finding::OK, "dsrank is there", "", &response);
  AddFinding(v1::Finding::WARN, "/dev/shm is small", "mount more", &response);
  AddFinding(v1::Finding::WARN, "few descriptors", "", &response);
  EXPECT_EQ(Record([&](JobRecord& record) { record.OnPrepared(host_, response); }).err,
            "dsrun: host h1: /dev/shm is small; mount more\ndsrun: host h1: few descriptors\n");
}

TEST_F(JobRecordTest, ReportsHostsWithoutGpus) {
  v1::PrepareResponse response;
  const auto prepared = [&](JobRecord& record) { record.OnPrepared(host_, response); };
  EXPECT_THAT(Record(prepared).err, IsEmpty()) << "a user's program chooses for itself";
  plan_.purpose.built_in = true;
  EXPECT_EQ(Record(prepared).err, "dsrun: host h1 has no GPU: its ranks run on CPU\n");
  plan_.flags.device = Device::kCpu;
  EXPECT_THAT(Record(prepared).err, IsEmpty()) << "the user has asked for it";
  plan_.flags.device = Device::kAuto;
  response.set_ranks_on_gpus(true);
  EXPECT_THAT(Record(prepared).err, IsEmpty());
}

TEST_F(JobRecordTest, KeepsOutputAndShowsIt) {
  const Shown shown = Record([&](JobRecord& record) {
    EXPECT_TRUE(record.OnEvent({host_, 0, Output(1, "hello\n")}).ok());
    record.Conclude(JobOutcome());
  });
  EXPECT_EQ(shown.out, "1@h1: hello\n");
  EXPECT_EQ(Content("logs/0/rank-00001.out"), "hello\n");
}

TEST_F(JobRecordTest, AnUnrecordedEventIsAnErrorAndIsNotShown) {
  ASSERT_TRUE(WriteFileAtomically(path() / "logs", "a file in the logs' place").ok());
  const Shown shown = Record([&](JobRecord& record) {
    EXPECT_FALSE(record.OnEvent({host_, 0, Output(1, "hello\n")}).ok());
  });
  EXPECT_THAT(shown.out, IsEmpty());
}

TEST_F(JobRecordTest, AnIncompleteRecordIsTheVerdictOfASuccessfulJob) {
  ASSERT_TRUE(WriteFileAtomically(path() / "logs", "a file in the logs' place").ok());
  const Shown shown = Record([&](JobRecord& record) {
    record.Begin();  // what becomes of the event is known later
    static_cast<void>(record.OnEvent({host_, 0, Output(1, "hello\n")}));
    status_ = record.Conclude(JobOutcome());
  });
  EXPECT_EQ(status_, 1);
  EXPECT_THAT(shown.err, HasSubstr("the run directory could not be written"));
}

// A log is a pipe that nobody reads yet: the thread waits there, and the next output behind it.
TEST_F(JobRecordTest, OutputThatWasGivenUpMakesNoGoodEnd) {
  const fs::path slow = path() / "logs/0/rank-00001.out";
  fs::create_directories(slow.parent_path());
  ASSERT_EQ(::mkfifo(slow.c_str(), 0600), 0);
  const Shown shown = Record([&](JobRecord& record) {
    record.Begin();
    static_cast<void>(record.OnEvent({host_, 0, Output(1, "hello\n")}));
    static_cast<void>(record.OnEvent({host_, 0, Output(2, "world\n")}));
    record.GiveUp();
    const UniqueFd reader(::open(slow.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    status_ = record.Conclude(JobOutcome());
    record.End();
  });
  EXPECT_EQ(status_, 1);
  EXPECT_THAT(shown.err, HasSubstr("the run directory could not be written"));
  EXPECT_TRUE(HasFile("verdict.json")) << "which is put after that, and is not given up again";
}

TEST_F(JobRecordTest, ASuccessfulTrainingEndsWithItsResults) {
  plan_.purpose = {.built_in = true, .trains = true, .closing_lines = {"next: dsrun resume"}};
  const Shown shown = Record([&](JobRecord& record) {
    EXPECT_TRUE(record.OnEvent({host_, 0, Step(1, 4.5, R"({"step":1})")}).ok());
    EXPECT_TRUE(record.OnEvent({host_, 0, Step(9, 2.25, R"({"step":9})")}).ok());
    status_ = record.Conclude(JobOutcome());
  });
  EXPECT_EQ(status_, kExitOk);
  const std::string where = ShortenPath(path());
  EXPECT_THAT(shown.out, HasSubstr("done; the run directory is " + where + "\n"));
  EXPECT_THAT(shown.out, HasSubstr("  metrics      " + where + "/metrics.jsonl\n"));
  EXPECT_THAT(shown.out, HasSubstr("  config       " + where + "/config.resolved.json\n"));
  EXPECT_THAT(shown.out, HasSubstr("  logs         " + where + "/logs\n"));
  EXPECT_THAT(shown.out, HasSubstr("  checkpoints  " + where + "/checkpoints\n"));
  EXPECT_THAT(shown.out, Not(HasSubstr("  model ")));
  EXPECT_THAT(shown.out, HasSubstr("loss 4.5000 at step 1, 2.2500 at step 9\n"));
  EXPECT_TRUE(shown.out.ends_with("next: dsrun resume\n")) << shown.out;
  EXPECT_FALSE(HasFile("verdict.json"));
}

TEST_F(JobRecordTest, ASuccessfulTrainingNamesTheModelThatItWrote) {
  plan_.purpose = {
      .built_in = true, .trains = true, .model = folder_.path() / "hf", .closing_lines = {}};
  EXPECT_THAT(Conclude(JobOutcome()).out,
              HasSubstr("\n  model        " + ShortenPath(folder_.path() / "hf") + "\n"));
}

TEST_F(JobRecordTest, AProgramThatEndsWellHasTheLastWord) {
  const Shown shown = Conclude(JobOutcome());
  EXPECT_EQ(status_, kExitOk);
  EXPECT_THAT(shown.out + shown.err, IsEmpty());
  EXPECT_FALSE(HasFile("verdict.json"));
}

TEST_F(JobRecordTest, AFailureIsKeptAndShown) {
  const Shown shown = Conclude(failure_);
  EXPECT_EQ(status_, 3);
  EXPECT_THAT(shown.err,
              AllOf(HasSubstr("the job failed: rank 2 ended with status 3\n"),
                    HasSubstr("files      " + ShortenPath(path())), HasSubstr("status     3\n")));
  EXPECT_THAT(shown.out, Not(HasSubstr("done")));
  const auto verdict = nlohmann::json::parse(Content("verdict.json"));
  EXPECT_EQ(verdict.at("rank"), 2);
  EXPECT_EQ(verdict.at("exit_code"), 3);
}

// Of all ranks that fail only the verdict's is quoted, from its log.
TEST_F(JobRecordTest, AFailureQuotesTheRanksLastLines) {
  std::string lines;
  for (int i = 1; i <= 1000; ++i) lines += "complaint " + std::to_string(i) + "\n";
  const Shown shown = Record([&](JobRecord& record) {
    EXPECT_TRUE(record.OnEvent({host_, 0, Output(2, lines, /*is_stderr=*/true)}).ok());
    EXPECT_TRUE(record.OnEvent({host_, 0, Output(2, "words\n")}).ok());
    EXPECT_TRUE(record.OnEvent({host_, 0, Output(1, "another's\n", true)}).ok());
    EXPECT_TRUE(record.OnEvent({host_, 1, Output(2, "a later try's\n", true)}).ok());
    status_ = record.Conclude(failure_);
  });
  const auto quoted = nlohmann::json::parse(Content("verdict.json")).at("last_lines");
  ASSERT_EQ(quoted.size(), 50U);
  EXPECT_EQ(quoted.front(), "complaint 951");
  EXPECT_EQ(quoted.back(), "complaint 1000");
  EXPECT_THAT(shown.err, HasSubstr("its last lines:\n"));
}

TEST_F(JobRecordTest, ATracebackIsQuotedRatherThanTheLog) {
  Verdict verdict = failure_;
  verdict.last_lines = {"ValueError: no column"};
  Record([&](JobRecord& record) {
    EXPECT_TRUE(record.OnEvent({host_, 0, Output(2, "noise\n", true)}).ok());
    record.Conclude(verdict);
  });
  EXPECT_EQ(nlohmann::json::parse(Content("verdict.json")).at("last_lines"),
            nlohmann::json({"ValueError: no column"}));
}

TEST_F(JobRecordTest, DistinctStatusesAreKeptShownAndReturnedAlike) {
  plan_.flags.exit_codes = ExitCodes::kDistinct;
  Verdict verdict = failure_;
  verdict.cause = Cause::kHostLost;
  verdict.exit_code = kExitHostLost;
  const Shown shown = Conclude(verdict);
  EXPECT_EQ(status_, kDistinctBase + kExitHostLost);
  EXPECT_THAT(shown.err, HasSubstr("status     244\n"));
  EXPECT_EQ(nlohmann::json::parse(Content("verdict.json")).at("exit_code"), 244);
}

class StoppedTrainingTest : public JobRecordTest {
 protected:
  // The hint of a job that is stopped after `last_step` with this newest checkpoint; 0 = none.
  std::string Hint(int last_step, int saved, Cause cause = Cause::kUserStop) {
    const fs::path root = run_directory_->checkpoints();
    fs::create_directories(root);
    if (saved > 0) {
      EXPECT_TRUE(
          checkpoint::WriteLatest(root, {.step = saved, .lineage = {}}, FileSystem::System()).ok());
    }
    Record([&](JobRecord& record) {
      if (last_step > 0) {
        EXPECT_TRUE(
            record.OnEvent({host_, 0, Step(static_cast<std::uint64_t>(last_step), 4.5)}).ok());
      }
      record.Conclude(Verdict{.cause = cause, .message = "stopped", .hint = ""});
    });
    return nlohmann::json::parse(Content("verdict.json")).at("hint");
  }
  std::string Command() const { return "`dsrun resume " + ShortenPath(path()) + "`"; }
};

TEST_F(StoppedTrainingTest, NamesTheLostStepsAndResume) {
  plan_.purpose.trains = true;
  EXPECT_EQ(Hint(0, 0), "") << "nothing is lost";
  EXPECT_THAT(Hint(37, 0), HasSubstr("no checkpoint: all 37 steps are lost"));
  EXPECT_EQ(Hint(37, 20), Command() +
                              " continues after step 20, the newest checkpoint; the steps "
                              "after it, up to 37, are lost");
  EXPECT_EQ(Hint(20, 20), Command() + " continues after step 20, the newest checkpoint");
  EXPECT_THAT(Hint(37, 20, Cause::kSignal), HasSubstr(Command()));
  EXPECT_EQ(Hint(37, 20, Cause::kConfig), "") << "first correct the config";
}

TEST_F(StoppedTrainingTest, AProgramKeepsItsOwnCheckpoints) { EXPECT_EQ(Hint(37, 20), ""); }

TEST_F(JobRecordTest, AVerdictThatCannotBeWrittenIsShownAllTheSame) {
  ASSERT_TRUE(fs::create_directories(path() / "verdict.json" / "taken"));
  const Shown shown = Conclude(failure_);
  EXPECT_EQ(status_, 3);
  EXPECT_THAT(shown.err, AllOf(HasSubstr("dsrun: verdict.json is not written: "),
                               HasSubstr("the job failed: rank 2 ended with status 3\n")));
}

}  // namespace
}  // namespace ds::cli
