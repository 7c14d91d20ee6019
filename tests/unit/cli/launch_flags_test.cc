#include "cli/flags/launch_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/flags/flag_parser.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;

struct ParsedFlags {
  LaunchFlags flags;
  std::vector<std::string> rest;
};

StatusOr<ParsedFlags> Parse(
    const std::vector<std::string>& arguments,
    FlagParser::RemainingWords rest = FlagParser::RemainingWords::kProgram) {
  ParsedFlags parsed;
  FlagParser parser("", "");
  AddLaunchFlags(&parser, &parsed.flags);
  DS_ASSIGN_OR_RETURN(FlagParser::Result result, parser.Parse(arguments, rest));
  DS_RETURN_IF_ERROR(CheckLaunchFlags(parsed.flags));
  parsed.rest = std::move(result.rest);
  return parsed;
}

TEST(LaunchFlagsTest, TakesDeepSpeedsNamesInBothSpellings) {
  const auto parsed = Parse({"-H", "hosts", "--num_gpus", "4", "--master-port=29500", "-i", "a@b:0",
                             "--num-nodes", "2", "--bind-cores-to-rank", "--one_device_per_rank"});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->flags.hostfile, "hosts");
  EXPECT_EQ(parsed->flags.num_gpus, 4);
  EXPECT_EQ(parsed->flags.num_nodes, 2);
  EXPECT_EQ(parsed->flags.master_port, 29500);
  EXPECT_EQ(parsed->flags.include, "a@b:0");
  EXPECT_TRUE(parsed->flags.bind_cores_to_rank);
  EXPECT_TRUE(parsed->flags.one_device_per_rank);
}

TEST(LaunchFlagsTest, TheLastOfARepeatedFlagWinsAndShortFlagsMayBeGlued) {
  const auto parsed = Parse({"--num_gpus", "2", "-Hfirst", "-qH", "second", "--num_gpus", "3"});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->flags.num_gpus, 3);
  EXPECT_EQ(parsed->flags.hostfile, "second");
  EXPECT_TRUE(parsed->flags.quiet);
}

// Closed connections are a proof only without it.
TEST(LaunchFlagsTest, ALeaseDecidesWhenTheUserSetsIt) {
  EXPECT_FALSE(Parse({"prog", "--lease_seconds", "10"})->flags.lease_decides);
  const auto parsed = Parse({"--lease_seconds", "10", "prog"});  // the default
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->flags.lease_seconds, 10);
  EXPECT_TRUE(parsed->flags.lease_decides);
}

TEST(LaunchFlagsTest, AllWordsAfterTheProgramBelongToIt) {
  const auto parsed = Parse({"--num_gpus", "2", "./prog", "--num_gpus", "9", "--", "-x", ""});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->flags.num_gpus, 2);
  EXPECT_THAT(parsed->rest, ElementsAre("./prog", "--num_gpus", "9", "--", "-x", ""));
}

TEST(LaunchFlagsTest, AcceptsFlagsForDefaultBehaviour) {
  EXPECT_TRUE(Parse({"--no_local_rank", "--no-ssh-check", "--launcher", "pdsh", "prog"}).ok());
}

TEST(LaunchFlagsTest, TheLauncherIsBuiltInUnlessOpenSshIsNamed) {
  EXPECT_EQ(Parse({"prog"})->flags.transport, SshTransport::kLibssh);
  EXPECT_EQ(Parse({"--launcher", "ssh", "prog"})->flags.transport, SshTransport::kLibssh);
  EXPECT_EQ(Parse({"--launcher", "libssh", "prog"})->flags.transport, SshTransport::kLibssh);
  EXPECT_EQ(Parse({"--launcher=ssh-client", "prog"})->flags.transport, SshTransport::kSshClient);
}

TEST(LaunchFlagsTest, ExportsAccumulate) {
  const auto parsed = Parse({"-x", "A=1", "-x", "B=", "prog"});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_THAT(parsed->flags.exports, ElementsAre("A=1", "B="));
  EXPECT_THAT(parsed->rest, ElementsAre("prog"));
}

TEST(LaunchFlagsTest, ExportsAreAddedToThoseThatAreThere) {
  LaunchFlags flags{.exports = {"A=1"}};
  FlagParser parser("", "");
  AddLaunchFlags(&parser, &flags);
  ASSERT_TRUE(
      parser.Parse({"-x", "NCCL_*", "--export=C=a b", "prog"}, FlagParser::RemainingWords::kProgram)
          .ok());
  EXPECT_THAT(flags.exports, ElementsAre("A=1", "NCCL_*", "C=a b"));
}

TEST(LaunchFlagsTest, AnExportLocatesItsValueInAnyForm) {
  const auto positions = [](const std::vector<std::string>& words) {
    const StatusOr<ParsedFlags> parsed = Parse(words);
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (const ValuePosition& position : parsed->flags.export_values) {
      found.emplace_back(position.words_after, position.bytes);
    }
    return found;
  };
  using Positions = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(positions({"-x", "A=1", "prog"}), Positions({{1, 1}}));
  EXPECT_EQ(positions({"-xA=1", "--export=B=22", "--export", "C=", "prog", "-x", "D=1"}),
            Positions({{6, 1}, {5, 2}, {3, 0}}));
  EXPECT_EQ(positions({"-qx", "A=b=c", "-qxB=1", "-np", "2", "prog"}), Positions({{4, 3}, {3, 1}}));
  EXPECT_EQ(positions({"-x", "HOME", "-qx", "NCCL_*", "prog"}), Positions());
}

TEST(LaunchFlagsTest, ReadsFlagsAfterGluedShortOnes) {
  const auto parsed = Parse({"-qx", "A=1", "-np", "2", "prog"});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->flags.total_ranks, 2);
  EXPECT_THAT(parsed->rest, ElementsAre("prog"));
  EXPECT_EQ(Parse({"-qx", "A=1", "--workdir=", "prog"}).status().message(),
            "--workdir= has no value; give one or leave the flag out");
}

TEST(LaunchFlagsTest, HowAProcessRuns) {
  const auto parsed = Parse({"--env-file", "a", "--env_file=b", "--workdir", "/w", "--umask", "027",
                             "--ulimit", "core=0", "--ulimit=nofile=1:2", "prog"});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_THAT(parsed->flags.env_files, ElementsAre("a", "b"));
  EXPECT_EQ(parsed->flags.workdir, "/w");
  EXPECT_EQ(parsed->flags.umask, 027);
  EXPECT_THAT(parsed->flags.ulimits, ElementsAre("core=0", "nofile=1:2"));
}

struct FlagRefusal {
  std::vector<std::string> arguments;
  std::string message;
};

TEST(LaunchFlagsTest, RefusesByName) {
  const std::vector<FlagRefusal> refusals = {
      {{"--num_gpu", "2", "prog"}, "unknown flag --num_gpu; did you mean '--num_gpus'?"},
      {{"--hostfil=x"}, "unknown flag --hostfil; did you mean '--hostfile'?"},
      {{"--zzzzzzzzzzz"}, "unknown flag --zzzzzzzzzzz"},
      {{"--num_gpus", "0"}, "--num_gpus: 0 is not a whole number from 1 to 4096"},
      {{"--num_gpus", "x"}, "--num_gpus: x is not a whole number from 1 to 4096"},
      {{"--master_port", "65536"}, "--master_port: 65536 is not a whole number from 0 to 65535"},
      {{"--grace_seconds", "nan", "prog"}, "--grace_seconds: nan is not a number from 0 to 86400"},
      {{"--lease_seconds", "NAN", "prog"}, "--lease_seconds: NAN is not a number from 1 to 3600"},
      {{"--device", "tpu"}, "--device: tpu not in {auto,cpu,cuda}"},
      {{"-i", "a", "-e", "b"}, "--include and --exclude exclude one another; give one of them"},
      {{"--bind_core_list", "0-3"}, "--bind_core_list needs --bind_cores_to_rank"},
      {{"--module", "--no_python"}, "--module and --no_python exclude one another"},
      {{"--engine", "native", "--no_python"},
       "--engine native and --no_python exclude one another"},
      {{"--engine", "deepspeed"}, "--engine: deepspeed not in {own,native}"},
      {{"-x", "=1"}, "-x =1: expected NAME=VALUE, NAME or a pattern"},
      {{"--log_max_size", "1x"},
       "--log_max_size 1x: expected bytes, for example 100M, 2G or 1048576"},
      {{"--log_max_files", "2"}, "--log_max_files needs --log_max_size"},
      {{"--umask", "8"}, "--umask 8: expected an octal number from 0 to 777"},
      {{"--ulimit", "nofiles=3"},
       "--ulimit nofiles=3: there is no limit 'nofiles'; did you mean 'nofile'?"},
      {{"--elastic_training", "prog"},
       "--elastic_training is not supported: there is no elastic mode; see --max_restarts"},
      {{"--node-rank=3", "prog"},
       "--node_rank is not supported: dsrun starts every host itself; give it all hosts in "
       "--hostfile"},
      {{"--launcher", "slurm", "prog"},
       "--launcher slurm is not supported: dsrun starts its own daemon on every host; drop the "
       "flag, or choose the SSH client, libssh or ssh-client"},
      {{"--launcher", "ssh_client", "prog"},
       "--launcher ssh_client is not supported: dsrun starts its own daemon on every host; drop "
       "the flag, or choose the SSH client, libssh or ssh-client; did you mean 'ssh-client'?"},
  };
  for (const FlagRefusal& refusal : refusals) {
    const auto parsed = Parse(refusal.arguments);
    ASSERT_FALSE(parsed.ok()) << refusal.message;
    EXPECT_EQ(parsed.status().message(), refusal.message);
  }
}

TEST(LaunchFlagsTest, ACommandsLeftoverWordIsAnError) {
  const auto parsed = Parse({"--num_gpus", "2", "extra"}, FlagParser::RemainingWords::kRefused);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().message(), "unexpected argument 'extra'");
}

}  // namespace
}  // namespace ds::cli
