// What the controller makes of hosts with too little memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/job/job_controller.h"
#include "cli/job/user_stop.h"
#include "tests/unit/cli/events.h"
#include "tests/unit/cli/fake_daemon.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using testing::FakeDaemon;
using Scripts = std::vector<std::vector<v1::Event>>;

class OneProgram : public Program {
 public:
  StatusOr<RankProgram> ForGeneration(int) const override { return RankProgram{.argv = {"prog"}}; }
};

class OneSpare : public ReplacementStarter {
 public:
  StatusOr<StartedReplacement> StartReplacement(const Replacement& replacement) override {
    const bool is_spare = replacement.host == 2;
    return StartedReplacement{.daemon = is_spare ? &daemon : &back, .master_addr = "m"};
  }
  FakeDaemon daemon{Scripts()};
  FakeDaemon back{Scripts{{testing::Ended()}}};  // on the lost host itself
};

class JobMemoryChecksTest : public ::testing::Test {
 protected:
  // Two ranks a host, of 8 MiB each.
  JobPlan Plan(const std::vector<HostSlots>& hosts) const {
    return {
        .job_id = "job",
        .flags = {.max_restarts = 1, .grace_seconds = 1},
        .world = PlanWorld(hosts),
        .master_addr = "m",
        .purpose = {.memory = {.on_cpu = {.bytes = 8 << 20, .parts = "8.00 MiB of parameters"}}}};
  }
  static void Equip(FakeDaemon* daemon, int mebibytes) {
    daemon->prepare_answer.set_core_count(4);
    daemon->prepare_answer.set_master_port(4242);
    daemon->prepare_answer.set_available_memory(static_cast<std::uint64_t>(mebibytes) << 20);
  }

  OneProgram program_;
  OneSpare starter_;
  testing::RecordingObserver observer_;
  UserStop stop_;
};

TEST_F(JobMemoryChecksTest, ASpareWithTooLittleIsNotTaken) {
  FakeDaemon here(Scripts{{}, {testing::Ended()}}), lost(Scripts{{testing::Cut()}});
  for (FakeDaemon* daemon : {&here, &lost, &starter_.back}) Equip(daemon, 100);
  Equip(&starter_.daemon, 12);
  JobPlan plan = Plan({{.host = "a", .slots = {0, 1}}, {.host = "b", .slots = {0, 1}}});
  plan.spares.push_back({.host = "c", .slots = {0, 1}, .remote = true});
  JobController controller(std::move(plan), &program_, {{0, &here}, {1, &lost}}, &observer_,
                           JobController::Options{.spares = &starter_, .stop = &stop_});
  EXPECT_TRUE(controller.Run().ok());
  EXPECT_THAT(
      observer_.notices,
      ::testing::Contains("spare host c: its 2 ranks will hold 16.0 MiB, 8.00 MiB each, and "
                          "12.0 MiB of memory are available"));
  EXPECT_TRUE(starter_.daemon.launched.empty());
}

TEST_F(JobMemoryChecksTest, OvercommittedMemoryIsShownWithItsPartsAndTheJobStarts) {
  FakeDaemon here(Scripts{{testing::Exited(0, 0), testing::Exited(1, 0), testing::Ended()}});
  Equip(&here, 12);
  JobPlan plan = Plan({{.host = "a", .slots = {0, 1}}});
  plan.purpose.memory.only_warns = true;
  JobController controller(std::move(plan), &program_, {{0, &here}}, &observer_,
                           JobController::Options{.spares = &starter_, .stop = &stop_});
  EXPECT_TRUE(controller.Run().ok());
  EXPECT_THAT(observer_.notices,
              ElementsAre("host a: its 2 ranks will hold 16.0 MiB, 8.00 MiB each, and 12.0 MiB of "
                          "memory are available; planned for each rank: 8.00 MiB of parameters"));
}

}  // namespace
}  // namespace ds::cli
