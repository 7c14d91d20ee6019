#include "cli/agent/agent_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>

#include "runtime/process/pipe.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;

v1::JobState State(int generation) {
  v1::JobState state;
  state.set_generation(generation);
  state.set_rank_key(std::string(1000, static_cast<char>('a' + generation)));
  return state;
}

TEST(AgentMemoryTest, KeepsTheLastState) {
  AgentMemory memory = *AgentMemory::Make(2);
  EXPECT_FALSE(memory.Read().has_value());
  for (int generation = 0; generation < 3; ++generation) {
    memory.Keep(State(generation));
    ASSERT_TRUE(memory.Read().has_value());
    EXPECT_EQ(memory.Read()->SerializeAsString(), State(generation).SerializeAsString());
  }
  memory.Keep(std::nullopt);
  EXPECT_FALSE(memory.Read().has_value());
}

TEST(AgentMemoryTest, AStateThatIsTooLargeIsNotKept) {
  AgentMemory memory = *AgentMemory::Make(1);
  memory.Keep(State(0));
  v1::JobState large;
  large.set_rank_key(std::string(std::size_t{64} << 20, 'x'));
  memory.Keep(large);
  EXPECT_FALSE(memory.Read().has_value());
}

TEST(AgentMemoryTest, AStateComesWithTheLastMoment) {
  AgentMemory memory = *AgentMemory::Make(2);
  v1::JobMoment moment;
  for (int generation = 0; generation < 3; ++generation) {
    moment.set_generation(generation);
    moment.add_clocks()->set_number(7);
    memory.KeepMoment(moment);
  }
  EXPECT_FALSE(memory.Read().has_value());
  memory.Keep(State(2));
  ASSERT_TRUE(memory.Read().has_value());
  EXPECT_EQ(memory.Read()->moment().SerializeAsString(), moment.SerializeAsString());
  EXPECT_EQ(memory.Read()->rank_key(), State(2).rank_key());
}

// A process may be killed at any moment.
TEST(AgentMemoryTest, AKilledProcessLeavesAWholeState) {
  AgentMemory memory = *AgentMemory::Make(2);
  memory.Keep(State(0));
  Pipe written = *MakePipe();
  const pid_t writer = ::fork();
  ASSERT_GE(writer, 0);
  if (writer == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    memory.Keep(State(1));
    written.write.Reset();
    for (int generation = 0;; generation = (generation + 1) % 20) {
      v1::JobMoment moment;
      for (int i = 0; i < generation; ++i) moment.add_clocks()->set_number(generation);
      memory.KeepMoment(moment);
      memory.Keep(State(generation));
    }
  }
  written.write.Reset();
  char byte = 0;
  EXPECT_EQ(::read(written.read.get(), &byte, 1), 0);
  ASSERT_EQ(::kill(writer, SIGKILL), 0);
  ASSERT_EQ(::waitpid(writer, nullptr, 0), writer);
  std::optional<v1::JobState> left = memory.Read();
  ASSERT_TRUE(left.has_value());
  for (const v1::ClockState& clock : left->moment().clocks()) {
    EXPECT_EQ(clock.number(), left->moment().clocks_size());
  }
  left->clear_moment();
  EXPECT_EQ(left->SerializeAsString(), State(left->generation()).SerializeAsString());
}

TEST(AgentMemoryTest, KeepsTheRequestsOfTheUser) {
  AgentMemory made = *AgentMemory::Make(1);
  AgentMemory memory = std::move(made);
  EXPECT_FALSE(memory.detached());
  memory.OnDetach();
  memory.OnStop(SIGINT);
  memory.OnStop(SIGTERM);
  EXPECT_TRUE(memory.detached());
  EXPECT_THAT(memory.stop_signals(), ElementsAre(SIGINT, SIGTERM));
}

}  // namespace
}  // namespace ds::cli
