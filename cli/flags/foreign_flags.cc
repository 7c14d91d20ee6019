#include "cli/flags/foreign_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/flag_parser.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

constexpr int kMaxRanks = 1 << 24;

constexpr std::string_view kNoElasticMode = "there is no elastic mode; see --max_restarts";
constexpr std::string_view kStartsEveryHost =
    "dsrun starts every host itself; give it all hosts in --hostfile";
constexpr std::string_view kAlwaysLogged =
    "the output of every rank is always shown and kept in RUN_DIR/logs; --log_ranks RANKS and "
    "--errors_only filter it, --run_dir DIR sets the folder";
constexpr std::string_view kExports = "give ranks variables with -x NAME=VALUE";
constexpr std::string_view kFilter = "choose hosts and slots with --hostfile and --include";
constexpr std::string_view kCores = "see --bind_cores_to_rank and --bind_core_list";
constexpr std::string_view kPlan =
    "show the ranks and their hosts with: dsrun [flags] plan -- PROGRAM";

constexpr RefusedFlag kRefusedFlags[] = {
    // deepspeed
    {"min_elastic_nodes", kNoElasticMode},
    {"max_elastic_nodes", kNoElasticMode},
    {"elastic_training", kNoElasticMode},
    {"autotuning", "there is no tuner"},
    {"no_ssh", kStartsEveryHost},
    {"launcher_args", "dsrun uses no outside launcher"},
    {"force_multi", "a host is remote when it is not this machine, not by a flag"},
    {"save_pid", "a running job writes its pid to job.json in its run directory"},
    {"enable_each_rank_log", "every rank always has its log files in the run directory"},
    {"venv_script", "no shell is involved; name the interpreter with --python"},
    // torchrun
    {"rdzv_conf",
     "there is no rendezvous to wait for; --ssh_timeout SECONDS limits the connection to hosts, "
     "and the program sets the timeout between its ranks"},
    {"monitor_interval", "the end of a rank is seen at once; leave it out"},
    {"start_method", "every rank is a process of its own; leave it out"},
    {"event_log_handler", "events are in RUN_DIR/events.jsonl"},
    {"run_path", "name the script as PROGRAM: *.py is run by --python"},
    {"log_dir", "--run_dir DIR keeps the files of the job, its logs in DIR/logs"},
    {"redirects", kAlwaysLogged},
    {"r", kAlwaysLogged},
    {"tee", kAlwaysLogged},
    {"t", kAlwaysLogged},
    {"local_ranks_filter", "--log_ranks RANKS shows those ranks, numbered across the job"},
    {"duplicate_stdout_filters", kAlwaysLogged},
    {"duplicate_stderr_filters", kAlwaysLogged},
    {"logs_specs", kAlwaysLogged},
    {"local_addr", "address= in the hostfile sets the address at which others reach a host"},
    {"numa_binding", kCores},
    {"signals_to_handle",
     "SIGINT, SIGTERM and SIGHUP stop the ranks, SIGUSR1 and SIGUSR2 are forwarded to each rank"},
    {"virtual_local_rank", "--one_device_per_rank shows each rank only its own device"},
    // mpirun, of Open MPI and of MPICH
    {"N", "it is ranks per host to mpirun and hosts to srun; write --num_gpus N or --num_nodes N"},
    {"timeout", "put 'timeout SECONDS' in front of dsrun; its SIGTERM stops every rank"},
    {"host", kFilter},
    {"hosts", kFilter},
    {"machinefile", "--hostfile FILE, with 'HOST slots=N' a line"},
    {"bind_to", kCores},
    {"map_by", kCores},
    {"rank_by", "ranks go host by host in the order of the hostfile"},
    {"cpu_set", kCores},
    {"oversubscribe", "slots=N in the hostfile sets the number of ranks of a host"},
    {"mca", "there is no MPI here; leave it out"},
    {"genv", kExports},
    {"genvlist", kExports},
    {"genvall", "ranks on this host inherit its environment; leave it out"},
    {"envall", "ranks on this host inherit its environment; leave it out"},
    {"output_filename", kAlwaysLogged},
    {"merge_stderr_to_stdout", kAlwaysLogged},
    {"report_bindings", kPlan},
    {"display_map", kPlan},
    {"xterm", "every rank's output is in RUN_DIR/logs"},
};

// Names that users of mpirun write with a single dash.
constexpr std::string_view kOneDashNames[] = {"np",
                                              "npernode",
                                              "ppn",
                                              "perhost",
                                              "wdir",
                                              "wd",
                                              "host",
                                              "hosts",
                                              "hostfile",
                                              "machinefile",
                                              "mca",
                                              "genv",
                                              "genvlist",
                                              "genvall",
                                              "envall",
                                              "bind-to",
                                              "map-by",
                                              "rank-by",
                                              "timeout",
                                              "tag-output",
                                              "output-filename",
                                              "oversubscribe",
                                              "prepend-rank",
                                              "xterm"};

std::string BothSpellings(std::initializer_list<const char*> names) {
  std::string all;
  for (const char* name : names) all += (all.empty() ? "" : ",") + FlagNames(name);
  return all;
}

// Adds a flag; `take` applies its value.
template <typename Take>
CLI::Option* AddTaken(CLI::App& app, const std::string& names, const Take& take) {
  return app.add_option_function<std::string>(names, take)->group("");
}

[[noreturn]] void Refuse(const std::string& what, std::string_view instead) {
  throw CLI::ValidationError(what + " is not supported: " + std::string(instead));
}

int CountOf(const std::string& flag, const std::string& word) {
  const std::optional<int> count = ParseNumber<int>(word);
  if (count.value_or(0) >= 1) return *count;
  throw CLI::ValidationError(flag + ": " + word + " is not a whole number above 0");
}

void TakeNodes(const std::string& word, LaunchFlags* flags) {
  const std::size_t colon = word.find(':');
  const int first = CountOf("--nnodes", word.substr(0, colon));
  if (colon != std::string::npos && CountOf("--nnodes", word.substr(colon + 1)) != first) {
    Refuse("--nnodes " + word,
           "a job keeps the size it begins with: --num_nodes N, and --max_restarts with hosts "
           "marked spare in the hostfile for those that are lost");
  }
  flags->num_nodes = first;
}

void TakeProcesses(const std::string& word, LaunchFlags* flags) {
  if (word == "gpu") {
    flags->device = Device::kCuda;
    flags->num_gpus.reset();
  } else if (word == "auto" || word == "cpu" || word == "xpu") {
    Refuse("--nproc_per_node " + word,
           "leave it out for a rank on every GPU or slot, or give a number");
  } else {
    flags->num_gpus = CountOf("--nproc_per_node", word);
  }
}

void TakeBackend(const std::string& name) {
  if (name == "static" || name == "c10d") return;
  Refuse("--rdzv_backend " + name,
         "dsrun knows the hosts and sets the rendezvous of the ranks; leave it out");
}

// Parses HOST, HOST:PORT or [HOST]:PORT, the address of rank 0. Port 0 means any.
void TakeEndpoint(const std::string& word, LaunchFlags* flags) {
  const std::size_t bracket = word.starts_with('[') ? word.find(']') : std::string::npos;
  const std::size_t colon = word.find(':', bracket == std::string::npos ? 0 : bracket);
  std::string host = word.substr(0, colon);
  if (bracket != std::string::npos) host = word.substr(1, bracket - 1);
  std::optional<int> port = 0;
  if (colon != std::string::npos) port = ParseNumber<int>(word.substr(colon + 1));
  if (host.empty() || !port || *port < 0 || *port > kMaxPort) {
    throw CLI::ValidationError("--rdzv_endpoint " + word + ": expected HOST[:PORT]");
  }
  // For this host's loopback, dsrun may know a better address.
  if (host != "localhost" && host != "127.0.0.1") flags->master_addr = host;
  flags->master_port = *port;
}

void AddTorchrunFlags(CLI::App& app, LaunchFlags* flags) {
  AddTaken(app, FlagNames("nnodes"), [flags](const std::string& w) { TakeNodes(w, flags); });
  AddTaken(app, FlagNames("nproc_per_node"),
           [flags](const std::string& w) { TakeProcesses(w, flags); });
  AddTaken(app, FlagNames("node_rank"), [flags](const std::string& word) {
    if (word != "0") Refuse("--node_rank", kStartsEveryHost);
    flags->this_host_only = true;
  });
  AddTaken(app, FlagNames("rdzv_backend"), TakeBackend);
  AddTaken(app, FlagNames("rdzv_endpoint"),
           [flags](const std::string& w) { TakeEndpoint(w, flags); });
  app.add_option(FlagNames("rdzv_id"), flags->run_id)->group("");
  app.add_option(FlagNames("role"), flags->role)->group("");
  app.add_flag(FlagNames("standalone"), flags->this_host_only)->group("");
}

void AddMpirunFlags(CLI::App& app, LaunchFlags* flags) {
  AddTaken(app, BothSpellings({"npernode", "ppn", "perhost"}),
           [flags](const std::string& word) { flags->num_gpus = CountOf("--npernode", word); });
  app.add_option(BothSpellings({"wdir", "wd"}), flags->workdir)->group("");
  app.add_flag(FlagNames("timestamp_output"), flags->timestamps)->group("");
  for (const char* anyway : {"tag_output", "prepend_rank", "allow_run_as_root"}) {
    app.add_flag(FlagNames(anyway))->group("");
  }
}

const std::vector<std::string>& SshClients() {
  static const std::vector<std::string> kNames = {"libssh", "ssh-client"};
  return kNames;
}

// Parses --launcher. DeepSpeed's own SSH launchers map to libssh.
SshTransport TransportOf(const std::string& name) {
  if (name == "ssh-client") return SshTransport::kSshClient;
  if (name == "libssh" || name == "pdsh" || name == "ssh") return SshTransport::kLibssh;
  Refuse("--launcher " + name,
         "dsrun starts its own daemon on every host; drop the flag, or choose the SSH client, "
         "libssh or ssh-client" +
             DidYouMean(name, SshClients()));
}

void AddDeepSpeedFlags(CLI::App& app, LaunchFlags* flags) {
  app.add_flag(FlagNames("no_local_rank"))->group("");
  app.add_flag(FlagNames("no_ssh_check"))->group("");
  BeginFlagGroup(app, "Launch: network");
  OfferValues(
      app.add_option_function<std::string>(
          FlagNames("launcher"),
          [flags](const std::string& name) { flags->transport = TransportOf(name); },
          "SSH client for other hosts: the built-in libssh, or this machine's OpenSSH with all its "
          "features (certificates, Kerberos, hardware keys, ControlMaster), which takes twice the "
          "time (default: libssh)"),
      SshClients());
}

}  // namespace

void AddForeignFlags(FlagParser* parser, LaunchFlags* flags) {
  CLI::App& app = parser->app();
  BeginFlagGroup(app, "Launch: hosts and ranks");
  app.add_option("-n,--np,--n", flags->total_ranks,
                 "start N ranks in total, on the first slots of the hosts")
      ->check(WholeNumber(1, kMaxRanks))
      ->type_name("N");
  AddTorchrunFlags(app, flags);
  AddMpirunFlags(app, flags);
  AddDeepSpeedFlags(app, flags);
  parser->SetTheSame("nnodes", "num_nodes");
  parser->SetTheSame("nproc_per_node", "num_gpus");
  parser->SetTheSame("npernode", "num_gpus");
  parser->SetTheSame("wdir", "workdir");
  parser->Refuse(kRefusedFlags);
  parser->TakeWithOneDash(kOneDashNames);
}

}  // namespace ds::cli
