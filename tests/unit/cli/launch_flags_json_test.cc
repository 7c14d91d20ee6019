#include "cli/flags/launch_flags_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ds::cli {
namespace {

TEST(LaunchFlagsJsonTest, RoundTrip) {
  const LaunchFlags flags{.hostfile = "/h",
                          .include = "a",
                          .exclude = "b",
                          .num_nodes = 2,
                          .num_gpus = 3,
                          .total_ranks = 4,
                          .share_machine = true,
                          .master_addr = "m",
                          .master_port = 4,
                          .interface = "eth0",
                          .run_id = "i",
                          .role = "trainer",
                          .ssh_port = 5,
                          .transport = SshTransport::kSshClient,
                          .ssh_timeout = 6.5,
                          .lease_seconds = 7.5,
                          .lease_decides = true,
                          .start_timeout = 8.5,
                          .collective_timeout = 8.5,
                          .device = Device::kCuda,
                          .one_device_per_rank = true,
                          .bind_cores_to_rank = true,
                          .bind_core_list = "0-1",
                          .python = "p",
                          .engine = Engine::kNative,
                          .module = true,
                          .no_python = true,
                          .pass_local_rank = true,
                          .exports = {"A=1"},
                          .env_files = {"f"},
                          .workdir = "w",
                          .umask = 022,
                          .ulimits = {"core=0"},
                          .run_dir = "r",
                          .max_restarts = 5,
                          .restart_from_scratch = true,
                          .grace_seconds = 1.5,
                          .quiet = true,
                          .log_ranks = "0",
                          .errors_only = true,
                          .timestamps = true,
                          .log_max_bytes = 7,
                          .log_max_files = 5,
                          .exit_codes = ExitCodes::kDistinct,
                          .log_level = "debug"};
  const nlohmann::ordered_json json = ToJson(flags);
  const auto read = ReadLaunchFlags(json);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(ToJson(*read), json);
  for (const auto& [name, value] : json.items()) {
    EXPECT_NE(value, ToJson(LaunchFlags{}).at(name)) << name << " was not set above";
  }
}

TEST(LaunchFlagsJsonTest, MissingFlagsKeepTheirDefaultAndDamageIsAnError) {
  EXPECT_EQ(ReadLaunchFlags(nlohmann::ordered_json::object())->grace_seconds, 15);
  EXPECT_FALSE(ReadLaunchFlags({{"num_gpus", "three"}}).ok());
}

TEST(LaunchFlagsJsonTest, NamesFlagsOfAnotherVersion) {
  EXPECT_EQ(ReadLaunchFlags({{"num_cpus", 3}, {"num_gpus", 3}, {"a", 1}}).status().message(),
            "its launch flags have entries that this dsrun does not support: num_cpus, a");
  EXPECT_EQ(ReadLaunchFlags({{"num_gpus", "three"}}).status().message(),
            "the launch flag 'num_gpus' in it is damaged: its value is of another type");
  for (const char* flag : {"device", "engine", "exit_codes", "launcher"}) {
    for (const nlohmann::ordered_json& value :
         {nlohmann::ordered_json("rocm"), nlohmann::ordered_json(nullptr)}) {
      const auto read = ReadLaunchFlags({{flag, value}});
      EXPECT_EQ(read.status().message(), std::string("the launch flag '") + flag +
                                             "' in it is damaged: " + value.dump() +
                                             " is not a value that this dsrun supports");
    }
  }
}

}  // namespace
}  // namespace ds::cli
