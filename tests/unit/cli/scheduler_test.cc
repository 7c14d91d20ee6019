#include "cli/launch/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/program.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SchedulerTest, WithoutOneIsSilent) {
  EXPECT_THAT(DescribeAllocation({{"HOME", "/root"}, {"WORLD_SIZE", "8"}}, false), IsEmpty());
}

TEST(SchedulerTest, SlurmsHostsAreListedByScontrol) {
  const Environment shell = {
      {"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "4"}, {"SLURM_GPUS_ON_NODE", "8"}};
  EXPECT_THAT(DescribeAllocation(shell, false),
              ElementsAre("SLURM_NNODES=4: this job uses this host only; for all of them: scontrol "
                          "show hostnames \"$SLURM_JOB_NODELIST\" | sed 's/$/ slots=8/' >hostfile "
                          "&& dsrun --hostfile hostfile ..."));
  EXPECT_THAT(DescribeAllocation(shell, true), IsEmpty());
  EXPECT_THAT(DescribeAllocation({{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "1"}}, false), IsEmpty());
  EXPECT_THAT(DescribeAllocation({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "2"}}, false),
              ElementsAre(HasSubstr("slots=N")));
}

TEST(SchedulerTest, EveryTaskOfSrunIsAJob) {
  const Environment shell = {{"SLURM_JOB_ID", "7"},
                             {"SLURM_NNODES", "2"},
                             {"SLURM_STEP_NUM_TASKS", "16"},
                             {"SLURM_PROCID", "3"}};
  EXPECT_THAT(DescribeAllocation(shell, true),
              ElementsAre("SLURM_STEP_NUM_TASKS=16: srun starts this command 16 times, and each "
                          "starts a job of its own; start dsrun once, without srun"));
  EXPECT_THAT(DescribeAllocation(shell, false),
              ElementsAre(HasSubstr("srun starts"), HasSubstr("this host only")));
  EXPECT_THAT(DescribeAllocation({{"OMPI_COMM_WORLD_SIZE", "2"}}, false),
              ElementsAre(HasSubstr("mpirun starts this command 2 times")));
  EXPECT_THAT(DescribeAllocation({{"PMI_SIZE", "1"}}, false), IsEmpty());
}

TEST(SchedulerTest, PbsNamesAFile) {
  const ds::testing::TemporaryFolder folder;
  const std::string file = (folder.path() / "nodes").string();
  const Environment shell = {{"PBS_NODEFILE", file}, {"NCPUS", "16"}};
  EXPECT_THAT(DescribeAllocation(shell, false), IsEmpty()) << "it is not there";
  std::ofstream(file) << "a\na\nb\nb\n";
  EXPECT_THAT(DescribeAllocation(shell, false),
              ElementsAre(HasSubstr("PBS_NODEFILE names 2 hosts: this job uses this host only; for "
                                    "all of them: cp \"$PBS_NODEFILE\" hostfile")));
  std::ofstream(file) << "a\nb\nc\n";
  EXPECT_THAT(DescribeAllocation(shell, false),
              ElementsAre(HasSubstr("sed 's/$/ slots=16/' \"$PBS_NODEFILE\" >hostfile")));
}

TEST(SchedulerTest, OthersHaveTheirVariables) {
  EXPECT_THAT(DescribeAllocation({{"LSB_MCPU_HOSTS", "a 8 b 8"}}, false),
              ElementsAre(HasSubstr("LSB_MCPU_HOSTS names 2 hosts")));
  EXPECT_THAT(DescribeAllocation({{"PE_HOSTFILE", "/x"}, {"NHOSTS", "3"}}, false),
              ElementsAre(HasSubstr("NHOSTS=3")));
  EXPECT_THAT(DescribeAllocation({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
                                  {"WORLD_SIZE", "4"},
                                  {"MASTER_ADDR", "job-master-0"}},
                                 false),
              ElementsAre(HasSubstr("WORLD_SIZE=4: this job uses this pod only")));
}

}  // namespace
}  // namespace ds::cli
