// A thousand stories of jobs whose hosts, network, user and dsrun itself do their worst. What must
// hold in each: never two live generations, every rank ends, and the verdict is about something
// that has happened. The decisions are those of the programs; the rest is played
// (simulated_host.h, simulated_job.h).

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "cli/job/verdict/verdict.h"
#include "tests/sim/simulated_job.h"

namespace ds::sim {
namespace {

constexpr std::uint64_t kSeeds = 1000;

// DSRUN_SIM_SEEDS=1000000 plays so many instead.
std::uint64_t CountSeeds() {
  const char* const wanted = std::getenv("DSRUN_SIM_SEEDS");
  return wanted == nullptr ? kSeeds : std::stoull(wanted);
}

// DSRUN_SIM_SEED=1394 tells one story, with --gtest_also_run_disabled_tests.
TEST(SimulationTest, DISABLED_OneSeed) {
  const char* const wanted = std::getenv("DSRUN_SIM_SEED");
  const std::uint64_t seed = wanted == nullptr ? 0 : std::stoull(wanted);
  const Ending ending = Play(DrawScenario(seed), seed);
  std::cout << ending.trace;
  for (const std::string& violation : ending.violations) ADD_FAILURE() << violation;
}

TEST(SimulationTest, InvariantsHold) {
  std::map<std::string, int> endings;
  int restarted = 0;
  int fenced = 0;
  int spared = 0;
  int returned = 0;
  int taken_over = 0;
  for (std::uint64_t seed = 0; seed < CountSeeds(); ++seed) {
    const Ending ending = Play(DrawScenario(seed), seed);
    ++endings[ending.outcome.ok() ? "well"
                                  : std::string(cli::CauseName(ending.outcome.failure().cause))];
    restarted += ending.generations > 1;
    fenced += ending.fenced;
    spared += ending.spared;
    returned += ending.returned;
    taken_over += ending.taken_over;
    for (const std::string& violation : ending.violations) {
      // One story is enough to look at.
      ADD_FAILURE() << "seed " << seed << ": " << violation << "\n"
                    << (HasFailure() ? "" : ending.trace);
    }
  }
  // They are not all the same story.
  for (const char* ending : {"well", "exit_code", "signal", "host_lost", "daemon_lost", "suspended",
                             "user_stop", "preflight", "internal"}) {
    EXPECT_GE(endings[ending], 5) << ending;
  }
  EXPECT_GE(restarted, 100);
  EXPECT_GE(fenced, 20);
  EXPECT_GE(spared, 20);
  EXPECT_GE(returned, 20);
  EXPECT_GE(taken_over, 50);
}

TEST(SimulationTest, ASeedIsReproducible) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(Play(DrawScenario(seed), seed).trace, Play(DrawScenario(seed), seed).trace);
  }
}

// The first violation that holds `what`, within as many stories.
std::string FindViolation(const Mistakes& mistakes, const std::string& what) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    for (const std::string& violation : Play(DrawScenario(seed), seed, mistakes).violations) {
      if (violation.find(what) != std::string::npos) return violation;
    }
  }
  return "";
}

TEST(SimulationTest, FindsALeaseThatCountsFromTheArrivalOfARenewal) {
  EXPECT_NE(FindViolation({.lease_from_arrival = true}, "begins while"), "");
}

TEST(SimulationTest, FindsAStoppedDaemonThatIsNotEnded) {
  EXPECT_NE(FindViolation({.no_death_timer = true}, "begins while"), "");
}

TEST(SimulationTest, FindsAStopThatIsLostAndNotRepeated) {
  EXPECT_NE(FindViolation({.lost_stops_count = true}, "too late"), "");
}

TEST(SimulationTest, FindsAPauseOfDsrunThatIsBlamedOnAHost) {
  EXPECT_NE(FindViolation({.pauses_go_unnoticed = true}, "nothing that has happened"), "");
}

TEST(SimulationTest, FindsAFailureThatIsNotTheFirst) {
  EXPECT_NE(FindViolation({.first_by_arrival = true}, "failed earlier"), "");
}

}  // namespace
}  // namespace ds::sim
