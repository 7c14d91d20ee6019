#include "tests/procs/daemon_job.h"

#include <csignal>
#include <filesystem>
#include <iterator>

#include "tests/places.h"
#include "tests/support/daemon_calls.h"

namespace ds::procs {
namespace {

namespace fs = std::filesystem;

void Record(const v1::Event& event, Outcome* outcome) {
  EXPECT_EQ(event.sequence(), ++outcome->events);
  EXPECT_GT(event.unix_nanos(), 0);
  if (event.has_rank_started()) {
    outcome->pids[event.rank_started().rank()] = static_cast<pid_t>(event.rank_started().pid());
  } else if (event.has_rank_output()) {
    const v1::RankOutput& output = event.rank_output();
    auto& text = output.stream() == v1::RankOutput::STDOUT ? outcome->out : outcome->err;
    text[output.rank()] += output.data();
    EXPECT_FALSE(output.data().empty());
    EXPECT_EQ(outcome->exits.count(output.rank()), 0U) << "output after the rank's end";
  } else if (event.has_rank_report()) {
    outcome->reports[event.rank_report().rank()].push_back(event.rank_report());
  } else if (event.has_rank_exited()) {
    outcome->exits[event.rank_exited().rank()] = event.rank_exited();
    outcome->exit_order.push_back(event.rank_exited().rank());
  }
}

}  // namespace

std::string TestRankPath() { return std::string(DS_TEST_RANK); }

bool Exists(pid_t pid) { return ::kill(pid, 0) == 0; }

std::function<void(const v1::Event&)> WhenReady(int count, std::function<void()> act) {
  auto left = std::make_shared<int>(count);
  return [left, act = std::move(act)](const v1::Event& event) {
    if (!event.has_rank_output() || event.rank_output().data() != "ready\n") return;
    if (--*left == 0) act();
  };
}

fs::path DaemonJob::Dsrund() const { return DS_BIN_DIR "/dsrund"; }

void DaemonJob::SetUp() {
  auto daemon = cli::LocalDaemon::Start({.job_id = kJob, .dsrund = Dsrund()});
  ASSERT_TRUE(daemon.ok()) << daemon.status().message();
  daemon_ = std::move(daemon).value();
}

void DaemonJob::TearDown() {
  if (daemon_ == nullptr) return;
  const fs::path folder = daemon_->folder();
  const Status closed = daemon_->Close();
  EXPECT_TRUE(closed.ok()) << closed.message();
  EXPECT_FALSE(fs::exists(folder)) << folder;
}

v1::LaunchRequest DaemonJob::Request(int count, const std::vector<std::string>& arguments,
                                     std::uint32_t generation) const {
  v1::LaunchRequest request;
  request.set_job_id(kJob);
  request.set_generation(generation);
  request.set_working_directory("/");
  request.set_inherit_environment(true);
  for (int rank = 0; rank < count; ++rank) {
    v1::RankSpec* spec = request.add_ranks();
    spec->set_rank(static_cast<std::uint32_t>(rank));
    v1::EnvironmentVariable* variable = spec->add_environment();
    variable->set_name("RANK");
    variable->set_value(std::to_string(rank));
    SetArguments(&request, rank, arguments);
  }
  return request;
}

void DaemonJob::SetArguments(v1::LaunchRequest* request, int rank,
                             const std::vector<std::string>& arguments) {
  v1::RankSpec* spec = request->mutable_ranks(rank);
  spec->clear_argv();
  spec->add_argv(TestRankPath());
  for (const std::string& argument : arguments) spec->add_argv(argument);
}

Outcome DaemonJob::Watch(std::uint32_t generation, const EventCallback& on_event) {
  Outcome outcome;
  outcome.watch = testing::Watch(client(), {kJob, generation, 0}, [&](const v1::Event& event) {
    Record(event, &outcome);
    if (on_event) on_event(event);
  });
  EXPECT_TRUE(outcome.watch.ok()) << outcome.watch.message();
  for (const auto& [rank, pid] : outcome.pids) EXPECT_FALSE(Exists(pid)) << "rank " << rank;
  return outcome;
}

Outcome DaemonJob::Run(const v1::LaunchRequest& request, const EventCallback& on_event) {
  const auto response = testing::Launch(client(), request);
  EXPECT_TRUE(response.ok()) << response.status().message();
  if (!response.ok()) return {};
  EXPECT_EQ(response->pids_size(), request.ranks_size());
  return Watch(request.generation(), on_event);
}

std::size_t CountDescriptors(pid_t pid) {
  const fs::directory_iterator entries("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace ds::procs
