#include "cli/flags/launch_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <functional>
#include <map>

#include "cli/flags/flag_parser.h"
#include "cli/flags/foreign_flags.h"
#include "cli/flags/process_settings.h"

namespace ds::cli {
namespace {

constexpr int kMaxRanksPerHost = 4096;
constexpr int kMaxHosts = 65536;

void AddHostFlags(CLI::App& app, LaunchFlags* flags) {
  BeginFlagGroup(app, "Launch: hosts and ranks");
  app.add_option(FlagNames("hostfile", "-H"), flags->hostfile,
                 "hosts and their slots, one 'HOST slots=N' per line (default: this host)")
      ->type_name("FILE");
  app.add_option(FlagNames("include", "-i"), flags->include,
                 "use only these: HOST[:SLOT,FIRST-LAST][@HOST...]")
      ->type_name("FILTER");
  app.add_option(FlagNames("exclude", "-e"), flags->exclude, "use all but these; same syntax")
      ->type_name("FILTER");
  app.add_option(FlagNames("num_nodes"), flags->num_nodes, "use the first N hosts")
      ->check(WholeNumber(1, kMaxHosts))
      ->type_name("N");
  app.add_option(FlagNames("num_gpus") + ",--num_accelerators,--num-accelerators", flags->num_gpus,
                 "use the first N slots of every host")
      ->check(WholeNumber(1, kMaxRanksPerHost))
      ->type_name("N");
}

void AddNetworkFlags(CLI::App& app, LaunchFlags* flags) {
  app.add_flag(FlagNames("share_machine"), flags->share_machine,
               "start ranks under each name of a machine that the hostfile has several names of; "
               "they share its devices and cores");
  BeginFlagGroup(app, "Launch: network");
  app.add_option(FlagNames("master_addr"), flags->master_addr,
                 "address of rank 0 for the other ranks (default: found by its daemon)")
      ->type_name("ADDR");
  app.add_option(FlagNames("master_port"), flags->master_port,
                 "port of rank 0 (default: any free one)")
      ->check(WholeNumber(0, kMaxPort))
      ->type_name("PORT");
  app.add_option(
         FlagNames("interface"), flags->interface,
         "network interface or address of each host for the traffic of CPU ranks between hosts, or "
         "several that share it: eth0,eth1 (default: $DSRUN_INTERFACE, else any with a route)")
      ->type_name("NAMES");
  app.add_option(FlagNames("ssh_port"), flags->ssh_port,
                 "SSH port of hosts without port= in the hostfile (default: as ~/.ssh/config says)")
      ->check(WholeNumber(0, kMaxPort))
      ->type_name("PORT");
}

// Adds to the group of AddNetworkFlags.
void AddTimeLimitFlags(CLI::App& app, LaunchFlags* flags) {
  app.add_option(FlagNames("ssh_timeout"), flags->ssh_timeout,
                 "timeout for reaching a host over SSH (default: 20)")
      ->check(NumberBetween(0.1, 3600.0))
      ->type_name("SECONDS");
  app.add_option(FlagNames("lease_seconds"), flags->lease_seconds,
                 "a host that sends nothing for this time is lost; its ranks stop when they "
                 "receive nothing from dsrun for this time, or, without this flag, 5 s after the "
                 "end of its connections (default: 10)")
      ->check(NumberBetween(1.0, 3600.0))
      ->each([flags](const std::string&) { flags->lease_decides = true; })
      ->type_name("SECONDS");
  app.add_option(FlagNames("start_timeout"), flags->start_timeout,
                 "time that ranks may take to execute their program, whose file system may be slow "
                 "(default: 600)")
      ->check(NumberBetween(1.0, 86400.0))
      ->type_name("SECONDS");
  app.add_option(FlagNames("collective_timeout"), flags->collective_timeout,
                 "time that ranks of dsrun train wait in a collective for a missing rank (default: "
                 "$DSRUN_COLLECTIVE_TIMEOUT, else the minutes of $DEEPSPEED_TIMEOUT, else 1800)")
      ->check(NumberBetween(1.0, 604800.0))
      ->type_name("SECONDS");
}

void AddRankFlags(CLI::App& app, LaunchFlags* flags) {
  BeginFlagGroup(app, "Launch: devices and cores");
  const std::map<std::string, Device> devices = {
      {"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}};
  TakeOneOf(app.add_option_function<std::string>(
                FlagNames("device"),
                [flags, devices](const std::string& name) { flags->device = devices.at(name); },
                "device of each rank; auto: a GPU if there is one"),
            {"auto", "cpu", "cuda"});
  app.add_flag(FlagNames("one_device_per_rank"), flags->one_device_per_rank,
               "show each rank only its own device");
  app.add_flag(FlagNames("bind_cores_to_rank"), flags->bind_cores_to_rank,
               "divide the host's cores among its ranks");
  app.add_option(FlagNames("bind_core_list"), flags->bind_core_list,
                 "the cores to divide, for example 0-13,28-41")
      ->type_name("CORES");
  BeginFlagGroup(app, "Launch: program");
  app.add_option(FlagNames("python"), flags->python, "interpreter of *.py programs")
      ->type_name("PATH");
  const std::map<std::string, Engine> engines = {{"own", Engine::kOwn},
                                                 {"native", Engine::kNative}};
  TakeOneOf(app.add_option_function<std::string>(
                FlagNames("engine"),
                [flags, engines](const std::string& name) { flags->engine = engines.at(name); },
                "engine of a Python program that imports deepspeed: its own, or dsrun's (native; "
                "needs the Python package dsrun) (default: own)"),
            {"own", "native"});
  app.add_flag(FlagNames("module", "-m"), flags->module, "PROGRAM is a Python module (python3 -m)");
  app.add_flag(FlagNames("no_python"), flags->no_python, "execute a *.py program directly");
  app.add_flag(FlagNames("pass_local_rank"), flags->pass_local_rank,
               "add --local_rank=N to the program's arguments");
}

// Adds a repeatable flag. `take` is called with every value as soon as it is read.
CLI::Option* AddRepeated(CLI::App& app, const std::string& names, const std::string& help,
                         const std::function<void(const std::string& value)>& take) {
  return app.add_option_function<std::string>(names, take, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->trigger_on_parse()
      ->allow_extra_args(false);
}

CLI::Option* AddRepeated(CLI::App& app, const std::string& names, std::vector<std::string>* values,
                         const std::string& help) {
  return AddRepeated(app, names, help,
                     [values](const std::string& value) { values->push_back(value); });
}

void AddExports(FlagParser* parser, LaunchFlags* flags) {
  BeginFlagGroup(parser->app(), "Launch: environment of the ranks");
  AddRepeated(parser->app(), FlagNames("export", "-x"),
              "give every rank NAME=VALUE, this shell's NAME, or its NCCL_* (repeatable)",
              [parser, flags](const std::string& word) {
                flags->exports.push_back(word);
                const std::size_t equals = word.find('=');
                if (equals == std::string::npos) return;
                flags->export_values.push_back(
                    {.words_after = parser->WordsAfter(), .bytes = word.size() - equals - 1});
              })
      ->type_name("NAME[=VALUE]");
}

void AddProcessFlags(CLI::App& app, LaunchFlags* flags) {
  AddRepeated(app, FlagNames("env_file"), &flags->env_files,
              "give every rank the NAME=VALUE lines of FILE (repeatable)")
      ->type_name("FILE");
  app.add_option(FlagNames("workdir"), flags->workdir,
                 "working directory of the ranks (default: this one)")
      ->type_name("DIR");
  app.add_option_function<std::string>(
         FlagNames("umask"),
         [flags](const std::string& word) {
           const StatusOr<int> mask = ParseUmask(word);
           if (!mask.ok()) throw CLI::ValidationError(mask.status().message());
           flags->umask = *mask;
         },
         "file mode mask of every rank, octal")
      ->type_name("MASK");
  AddRepeated(app, FlagNames("ulimit"), &flags->ulimits,
              "limit of every rank, for example nofile=65536 or memlock=unlimited (repeatable)")
      ->type_name("NAME=SOFT[:HARD]");
}

void AddJobFlags(CLI::App& app, LaunchFlags* flags) {
  BeginFlagGroup(app, "Launch: run directory and restarts");
  app.add_option(FlagNames("run_dir"), flags->run_dir,
                 "folder for the files of the job (default: runs/JOB)")
      ->type_name("DIR");
  app.add_option(FlagNames("max_restarts"), flags->max_restarts,
                 "restart a failed job from its newest good checkpoint up to N times")
      ->check(WholeNumber(0, 1000000))
      ->type_name("N");
  app.add_flag(FlagNames("restart_from_scratch"), flags->restart_from_scratch,
               "let a restart begin at step 0 when no checkpoint of the run is usable");
  app.add_option(FlagNames("grace_seconds"), flags->grace_seconds,
                 "time between SIGTERM and SIGKILL when ranks must stop (default: 15)")
      ->check(NumberBetween(0.0, 86400.0))
      ->type_name("SECONDS");
}

void AddOutputFlags(CLI::App& app, LaunchFlags* flags) {
  BeginFlagGroup(app, "Launch: output and exit status");
  app.add_flag(FlagNames("detach"), flags->detach,
               "leave when the ranks have started; the job goes on (see dsrun attach, logs, stop)");
  app.add_flag(FlagNames("quiet", "-q"), flags->quiet, "show only errors and the result");
  app.add_option(FlagNames("log_ranks"), flags->log_ranks,
                 "show the output of these ranks only, for example 0,2-3 (default: all)")
      ->type_name("RANKS");
  app.add_flag(FlagNames("errors_only"), flags->errors_only,
               "show only the ranks' standard error, and no progress");
  app.add_flag(FlagNames("timestamps"), flags->timestamps,
               "show the arrival time of each line of the ranks, in UTC");
  app.add_option_function<std::string>(
         FlagNames("log_max_size"),
         [flags](const std::string& word) {
           const StatusOr<std::uint64_t> bytes = ParseFileSize(word);
           if (!bytes.ok()) throw CLI::ValidationError(bytes.status().message());
           flags->log_max_bytes = *bytes;
         },
         "rotate each log of a rank in the run directory before it exceeds this size, for example "
         "100M (default: no limit)")
      ->type_name("SIZE");
  app.add_option(FlagNames("log_max_files"), flags->log_max_files,
                 "with --log_max_size: files kept per log, with the current one (default: 3)")
      ->check(WholeNumber(1, 1000))
      ->type_name("N");
  const std::map<std::string, ExitCodes> exit_codes = {{"shell", ExitCodes::kShell},
                                                       {"distinct", ExitCodes::kDistinct}};
  TakeOneOf(
      app.add_option_function<std::string>(
          FlagNames("exit_codes"),
          [flags, exit_codes](const std::string& name) { flags->exit_codes = exit_codes.at(name); },
          "distinct: dsrun's own statuses are 241 to 247 instead of 1 to 6 and 128+N, to "
          "distinguish them from a program's; see dsrun help (default: shell)"),
      {"shell", "distinct"});
  TakeOneOf(app.add_option(FlagNames("log_level"), flags->log_level, "log level of dsrun"),
            {"debug", "info", "warning", "error", "critical"});
}

}  // namespace

std::string_view DeviceName(Device device) {
  switch (device) {
    case Device::kAuto:
      return "auto";
    case Device::kCpu:
      return "cpu";
    case Device::kCuda:
      return "cuda";
  }
  return "";
}

std::string_view EngineName(Engine engine) { return engine == Engine::kNative ? "native" : "own"; }

void AddLaunchFlags(FlagParser* parser, LaunchFlags* flags) {
  CLI::App& app = parser->app();
  AddHostFlags(app, flags);
  AddNetworkFlags(app, flags);
  AddTimeLimitFlags(app, flags);
  AddRankFlags(app, flags);
  AddExports(parser, flags);
  AddProcessFlags(app, flags);
  AddJobFlags(app, flags);
  AddOutputFlags(app, flags);
  AddForeignFlags(parser, flags);
}

Status CheckLaunchFlags(const LaunchFlags& flags) {
  if (!flags.include.empty() && !flags.exclude.empty()) {
    return InvalidArgumentError("--include and --exclude exclude one another; give one of them");
  }
  if (!flags.bind_core_list.empty() && !flags.bind_cores_to_rank) {
    return InvalidArgumentError("--bind_core_list needs --bind_cores_to_rank");
  }
  if (flags.this_host_only && flags.hostfile.has_value()) {
    return InvalidArgumentError(
        "--standalone and --node_rank 0 mean this host and no other, --hostfile means its hosts; "
        "give one of them");
  }
  if (flags.total_ranks.has_value() && flags.num_gpus.has_value()) {
    return InvalidArgumentError(
        "-n counts the ranks of the whole job, --num_gpus those of each host; give one of them");
  }
  if (flags.module && flags.no_python) {
    return InvalidArgumentError("--module and --no_python exclude one another");
  }
  if (flags.engine == Engine::kNative && flags.no_python) {
    return InvalidArgumentError("--engine native and --no_python exclude one another");
  }
  for (const std::string& word : flags.exports) {
    if (word.empty() || word[0] == '=') {
      return InvalidArgumentError("-x " + word + ": expected NAME=VALUE, NAME or a pattern");
    }
  }
  if (flags.log_max_files.has_value() && flags.log_max_bytes == 0) {
    return InvalidArgumentError("--log_max_files needs --log_max_size");
  }
  for (const std::string& word : flags.ulimits) DS_RETURN_IF_ERROR(ParseLimit(word).status());
  return OkStatus();
}

}  // namespace ds::cli
