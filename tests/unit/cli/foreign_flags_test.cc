// What users of torchrun, mpirun and deepspeed type: taken as what it means, or refused with
// dsrun's way to the same end.

#include "cli/flags/foreign_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Parsed {
  LaunchFlags flags;
  std::vector<std::string> rest;
};

StatusOr<Parsed> ParseLine(const std::vector<std::string>& words) {
  Parsed parsed;
  FlagParser parser("", "");
  AddLaunchFlags(&parser, &parsed.flags);
  DS_ASSIGN_OR_RETURN(FlagParser::Result result,
                      parser.Parse(words, FlagParser::RemainingWords::kProgram));
  DS_RETURN_IF_ERROR(CheckLaunchFlags(parsed.flags));
  parsed.rest = std::move(result.rest);
  return parsed;
}

LaunchFlags Flags(const std::vector<std::string>& words) {
  const auto parsed = ParseLine(words);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? parsed->flags : LaunchFlags{};
}

TEST(ForeignFlagsTest, TorchrunOnOneHost) {
  for (const char* dash : {"_", "-"}) {
    const auto flag = [&](std::string name) {
      for (char& c : name) c = c == '_' ? dash[0] : c;
      return "--" + name;
    };
    const LaunchFlags flags = Flags(
        {flag("nproc_per_node"), "2", flag("nnodes") + "=1", flag("node_rank"), "0",
         flag("rdzv_backend") + "=c10d", flag("rdzv_endpoint"), "localhost:29400",
         flag("rdzv_id") + "=77", "--role", "trainer", flag("max_restarts"), "3", "train.py"});
    EXPECT_EQ(flags.num_gpus, 2);
    EXPECT_EQ(flags.num_nodes, 1);
    EXPECT_EQ(flags.master_addr, "");
    EXPECT_EQ(flags.master_port, 29400);
    EXPECT_EQ(flags.run_id, "77");
    EXPECT_EQ(flags.role, "trainer");
    EXPECT_EQ(flags.max_restarts, 3);
  }
  EXPECT_TRUE(Flags({"--standalone", "--nproc-per-node=2", "train.py"}).this_host_only);
  EXPECT_TRUE(Flags({"-m", "package.train"}).module);
}

TEST(ForeignFlagsTest, TorchrunOnManyHosts) {
  const LaunchFlags flags = Flags({"--hostfile", "h", "--nnodes=4:4", "--nproc_per_node=gpu",
                                   "--rdzv_endpoint=[fe80::1]:0", "train.py"});
  EXPECT_EQ(flags.num_nodes, 4);
  EXPECT_FALSE(flags.num_gpus.has_value());
  EXPECT_EQ(flags.device, Device::kCuda);
  EXPECT_EQ(flags.master_addr, "fe80::1");
  EXPECT_EQ(flags.master_port, 0);
  EXPECT_EQ(Flags({"--rdzv_endpoint", "node1", "x"}).master_addr, "node1");
}

TEST(ForeignFlagsTest, Mpirun) {
  for (const std::string count : {"-n", "-np", "--np", "--n"}) {
    const auto parsed = ParseLine({count, "3", "-x", "A=1", "prog", "-np", "4"});
    ASSERT_TRUE(parsed.ok()) << count << parsed.status().message();
    EXPECT_EQ(parsed->flags.total_ranks, 3);
    EXPECT_THAT(parsed->rest, ElementsAre("prog", "-np", "4"));
  }
  const LaunchFlags flags =
      Flags({"-npernode", "2", "-hostfile", "h", "-wdir", "/w", "--tag-output", "-tag-output",
             "--timestamp-output", "--allow-run-as-root", "prog"});
  EXPECT_EQ(flags.num_gpus, 2);
  EXPECT_EQ(flags.hostfile, "h");
  EXPECT_EQ(flags.workdir, "/w");
  EXPECT_TRUE(flags.timestamps);
}

TEST(ForeignFlagsTest, OneDashIsOneOnlyForKnownNames) {
  const auto parsed = ParseLine({"-qH", "h", "-x", "-np", "prog"});  // "-np" is the value of -x
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_TRUE(parsed->flags.quiet);
  EXPECT_THAT(parsed->flags.exports, ElementsAre("-np"));
}

// As torchrun of PyTorch 2.11, deepspeed 0.19, and mpirun of Open MPI 5 and MPICH 4 list them, as
// far as an ordinary job has a use for them.
TEST(ForeignFlagsTest, NoFlagOfTheirsIsUnknown) {
  for (const std::string name :
       {"--nnodes", "--nproc_per_node", "--rdzv_backend", "--rdzv_endpoint", "--rdzv_id",
        "--rdzv_conf", "--standalone", "--max_restarts", "--monitor_interval", "--start_method",
        "--event_log_handler", "--role", "-m", "--module", "--no_python", "--run_path", "--log_dir",
        "-r", "--redirects", "-t", "--tee", "--local_ranks_filter", "--duplicate_stdout_filters",
        "--duplicate_stderr_filters", "--node_rank", "--master_addr", "--master_port",
        "--local_addr", "--logs_specs", "--numa_binding", "--signals_to_handle",
        "--virtual_local_rank",
        // deepspeed
        "-H", "--hostfile", "-i", "--include", "-e", "--exclude", "--num_nodes",
        "--min_elastic_nodes", "--max_elastic_nodes", "--num_gpus", "--num_accelerators",
        "--launcher", "--launcher_args", "--no_local_rank", "--no_ssh", "--no_ssh_check",
        "--force_multi", "--save_pid", "--enable_each_rank_log", "--autotuning",
        "--elastic_training", "--bind_cores_to_rank", "--bind_core_list", "--ssh_port",
        "--venv_script", "--log_level", "-q", "--quiet",
        // mpirun
        "-n", "-np", "--np", "-N", "-npernode", "-ppn", "-perhost", "-x", "-wdir", "--wd", "-host",
        "-hosts", "-machinefile", "--bind-to", "--map-by", "--rank-by", "--cpu-set",
        "--oversubscribe", "--mca", "-genv", "-genvlist", "-genvall", "-envall",
        "--output-filename", "--merge-stderr-to-stdout", "--report-bindings", "--display-map",
        "--xterm", "--tag-output", "--timestamp-output", "--timeout", "--prepend-rank",
        "--allow-run-as-root"}) {
    for (const std::string value : {"1", "a"}) {
      const auto parsed = ParseLine({name, value, "x"});
      if (parsed.ok()) continue;
      EXPECT_THAT(parsed.status().message(), Not(HasSubstr("unknown flag"))) << name;
    }
  }
  EXPECT_THAT(ParseLine({"--no_such_flag", "1", "x"}).status().message(),
              HasSubstr("unknown flag"));
}

TEST(ForeignFlagsTest, TranslatesUnsupportedFlags) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> refusals = {
      {{"--nnodes=1:4", "x"}, "--nnodes 1:4 is not supported: a job keeps the size it begins with"},
      {{"--nnodes=0", "x"}, "--nnodes: 0 is not a whole number above 0"},
      {{"--nproc_per_node", "auto", "x"}, "--nproc_per_node auto is not supported: leave it out"},
      {{"--nproc-per-node=-1", "x"}, "--nproc_per_node: -1 is not a whole number above 0"},
      {{"--node-rank=3", "x"}, "give it all hosts in --hostfile"},
      {{"--rdzv_backend", "etcd-v2", "x"}, "--rdzv_backend etcd-v2 is not supported"},
      {{"--rdzv-conf", "timeout=9", "x"}, "--ssh_timeout"},
      {{"--rdzv_endpoint", "h:http", "x"}, "--rdzv_endpoint h:http: expected HOST[:PORT]"},
      {{"--rdzv_endpoint", ":1", "x"}, "expected HOST[:PORT]"},
      {{"--rdzv_endpoint", "[::1", "x"}, "expected HOST[:PORT]"},
      {{"--standalone", "-H", "h", "x"}, "--standalone and --node_rank 0 mean this host"},
      {{"-n", "2", "--num_gpus", "2", "x"}, "-n counts the ranks of the whole job"},
      {{"-n", "0", "x"}, "is not a whole number from 1 to"},
      {{"--num_gpus", "2", "--nproc_per_node", "1", "x"},
       "--num_gpus 2 and --nproc_per_node 1 are one flag with two values"},
      {{"--ppn=1", "--num_accelerators=2", "x"}, "--ppn=1 and --num_accelerators=2 are one flag"},
      {{"--num-nodes", "2", "--nnodes", "1", "x"}, "--num-nodes 2 and --nnodes 1 are one flag"},
      {{"--np", "2", "-n", "1", "x"}, "--np 2 and -n 1 are one flag with two values"},
      {{"-t", "3", "x"}, "-t is not supported: the output of every rank is always shown"},
      {{"-r3", "x"}, "-r is not supported: "},
      {{"--log-dir", "d", "x"}, "--run_dir DIR"},
      {{"--local_ranks_filter=0", "x"}, "--log_ranks RANKS"},
      {{"-N", "2", "x"}, "-N is not supported: it is ranks per host to mpirun and hosts to srun"},
      {{"--timeout", "9", "x"}, "put 'timeout SECONDS' in front of dsrun"},
      {{"-timeout", "9", "x"}, "put 'timeout SECONDS' in front of dsrun"},
      {{"-mca", "btl", "tcp", "x"}, "--mca is not supported: there is no MPI here"},
      {{"--bind-to", "core", "x"}, "--bind_to is not supported: see --bind_cores_to_rank"},
      {{"-host", "a,b", "x"}, "choose hosts and slots with --hostfile and --include"},
  };
  for (const auto& [words, message] : refusals) {
    const auto parsed = ParseLine(words);
    ASSERT_FALSE(parsed.ok()) << words[0];
    EXPECT_THAT(parsed.status().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace ds::cli
