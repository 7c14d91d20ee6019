#pragma once

// Launch flags: where and how ranks run. They precede COMMAND or PROGRAM. dsrun's own commands also
// take them after the command name, where they override. Names are DeepSpeed's, each in `_` and `-`
// spelling.
//
// Flags of other launchers are in foreign_flags.h.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

class FlagParser;

enum class Device { kAuto, kCpu, kCuda };

// Selects what a Python program gets from `import deepspeed`: the installed package, or
// dsrun.compat.
enum class Engine { kOwn, kNative };

std::string_view EngineName(Engine engine);  // "own", "native"

// Selects the exit statuses that dsrun uses for failures of its own; see exit_codes.h.
enum class ExitCodes { kShell, kDistinct };

std::string_view DeviceName(Device device);  // "auto", "cpu", "cuda"

// Selects the SSH client for logins on other hosts: libssh in this process, or OpenSSH's program.
enum class SshTransport { kLibssh, kSshClient };

// Locates a value in the command line: the last `bytes` of the word that `words_after` words
// follow.
struct ValuePosition {
  std::size_t words_after = 0;
  std::size_t bytes = 0;
};

struct LaunchFlags {
  // Selection of hosts and slots.
  std::optional<std::string> hostfile;
  std::string include;
  std::string exclude;
  std::optional<int> num_nodes;
  std::optional<int> num_gpus;
  std::optional<int> total_ranks;  // of the full job: the first slots of the hosts
  bool this_host_only = false;     // set by the user; contradicts a hostfile
  bool share_machine = false;      // several hosts of the hostfile may be one machine
  // Rendezvous. For "" and 0 the daemon on rank 0's host chooses.
  std::string master_addr;
  int master_port = 0;
  // The network interface or address for traffic between ranks of different hosts; "" = any.
  std::string interface;
  // Names of the job and its ranks in torchrun's variables.
  std::string run_id;  // "" = the job's own name
  std::string role = "default";
  // Access to other hosts.
  int ssh_port = 0;  // 0 = as in ~/.ssh/config, else 22
  SshTransport transport = SshTransport::kLibssh;
  double ssh_timeout = 20;
  double lease_seconds = 10;
  bool lease_decides = false;     // the user has set it: closed connections end no rank
  double start_timeout = 600;     // until every rank executes its program
  double collective_timeout = 0;  // in seconds; 0 = from the ranks' environment, else half an hour
  // Settings of each rank.
  Device device = Device::kAuto;
  bool one_device_per_rank = false;
  bool bind_cores_to_rank = false;
  std::string bind_core_list;
  std::string python = "python3";
  Engine engine = Engine::kOwn;
  bool module = false;
  bool no_python = false;
  bool pass_local_rank = false;
  std::vector<std::string> exports;  // NAME=VALUE, NAME or a pattern; see launch/environment.h
  std::vector<ValuePosition> export_values;  // positions of their values in this command line
  std::vector<std::string> env_files;        // in the order of application
  std::string workdir;                       // "" = dsrun's own; a host's workdir= overrides it
  std::optional<int> umask;                  // unset = dsrun's own
  std::vector<std::string> ulimits;          // NAME=SOFT[:HARD]; see process_settings.h
  // Settings of the job.
  std::string run_dir;  // "" = runs/<job>
  int max_restarts = 0;
  bool restart_from_scratch = false;
  double grace_seconds = 15;  // between SIGTERM and SIGKILL
  bool detach = false;        // dsrun leaves when the ranks have started
  bool quiet = false;
  std::string log_ranks;  // ranks to show on the console; "" = all
  bool errors_only = false;
  bool timestamps = false;
  std::uint64_t log_max_bytes = 0;   // of each log of a rank; 0 = no limit
  std::optional<int> log_max_files;  // per log, with the current one
  ExitCodes exit_codes = ExitCodes::kShell;
  std::string log_level;  // "" = from DSRUN_LOG_LEVEL
};

// Declares the launch flags and the flags of other launchers on `parser`, with their help and the
// check of each single value. Parsing writes into `flags`, which must outlive the parse.
void AddLaunchFlags(FlagParser* parser, LaunchFlags* flags);

// Checks combinations that single values cannot show: flags that exclude one another.
Status CheckLaunchFlags(const LaunchFlags& flags);

}  // namespace ds::cli
