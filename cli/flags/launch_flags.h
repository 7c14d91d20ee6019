#pragma once

// The flags that say where and how ranks run. They stand before COMMAND or PROGRAM; our own
// commands take them behind their name as well, where they override. Names are DeepSpeed's, each in
// `_` and `-` spelling.
//
// Those of other launchers are in foreign_flags.h.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

class FlagParser;

enum class Device { kAuto, kCpu, kCuda };

// They say which statuses dsrun ends with for reasons of its own: see exit_codes.h.
enum class ExitCodes { kShell, kDistinct };

std::string_view DeviceName(Device device);  // "auto", "cpu", "cuda"

// It logs in on other hosts: libssh in this process, or OpenSSH's own client.
enum class SshTransport { kLibssh, kSshClient };

// The last `bytes` of a word of the command line that has `words_behind` others behind it.
struct ValuePlace {
  std::size_t words_behind = 0;
  std::size_t bytes = 0;
};

struct LaunchFlags {
  // The choice of hosts and slots.
  std::optional<std::string> hostfile;
  std::string include;
  std::string exclude;
  std::optional<int> num_nodes;
  std::optional<int> num_gpus;
  std::optional<int> total_ranks;  // of the whole job: the first slots of the hosts
  bool this_host_only = false;     // so the user said; contradicts a hostfile
  // Rendezvous: "" and 0 = chosen by the daemon of rank 0's host.
  std::string master_addr;
  int master_port = 0;
  // The network interface, or address, for what ranks of several hosts tell each other; "" = any.
  std::string interface;
  // Torchrun's variables name the job and its ranks so.
  std::string run_id;  // "" = the job's own name
  std::string role = "default";
  // Reaching other hosts.
  int ssh_port = 0;  // 0 = as ~/.ssh/config says, else 22
  SshTransport transport = SshTransport::kLibssh;
  double ssh_timeout = 20;
  double lease_seconds = 10;
  double collective_timeout = 0;  // 0 = as the ranks' environment says, else half an hour
  // The settings of a rank's run.
  Device device = Device::kAuto;
  bool one_device_per_rank = false;
  bool bind_cores_to_rank = false;
  std::string bind_core_list;
  std::string python = "python3";
  bool module = false;
  bool no_python = false;
  bool pass_local_rank = false;
  std::vector<std::string> exports;       // NAME=VALUE, NAME or a pattern; see plan/exports.h
  std::vector<ValuePlace> export_values;  // where their values stand; of this command line only
  std::vector<std::string> env_files;     // in the order in which they are applied
  std::string workdir;                    // "" = dsrun's own; a host's workdir= comes first
  std::optional<int> umask;               // none = dsrun's own
  std::vector<std::string> ulimits;       // NAME=SOFT[:HARD]; see process_settings.h
  // The job as a whole.
  std::string run_dir;  // "" = runs/<job>
  int max_restarts = 0;
  bool restart_from_scratch = false;
  double grace_seconds = 15;  // between SIGTERM and SIGKILL
  bool quiet = false;
  std::string log_ranks;  // of which ranks the console shows the output; "" = all
  bool errors_only = false;
  bool timestamps = false;
  ExitCodes exit_codes = ExitCodes::kShell;
  std::string log_level;  // "" = as DSRUN_LOG_LEVEL says
};

// Declares the flags to a parser, writing into `flags` (which outlives the parse), and those of
// other launchers: the words, their help and what a single value may be.
void AddLaunchFlags(FlagParser* parser, LaunchFlags* flags);

// Checks what single values cannot show: flags that exclude one another.
Status CheckLaunchFlags(const LaunchFlags& flags);

}  // namespace ds::cli
