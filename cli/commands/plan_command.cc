#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "cli/commands/command_table.h"
#include "cli/commands/train_command.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/flags/report_error.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/launch/environment.h"
#include "cli/launch/launch_plan.h"
#include "cli/launch/memory_policy.h"
#include "cli/launch/plan_drawings.h"
#include "cli/launch/scheduler.h"
#include "cli/launch/secrets.h"
#include "cli/train/find_model.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/number_list.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/file/config_text.h"
#include "runtime/plan/estimate/fit_degrees.h"
#include "runtime/plan/estimate/model_size.h"
#include "runtime/plan/estimate/predict_memory.h"
#include "runtime/plan/estimate/stage_plans.h"
#include "runtime/plan/memory/expert_rules.h"
#include "runtime/plan/mesh/degrees.h"
#include "runtime/plan/pipeline/schedule.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PlanFlags {
  bool json = false;
  std::string mesh;
  std::string model;
  std::string schedule = "1f1b";
  std::string partition = "parameters";
  int micro_batches = 0;  // 0 = twice the stages
  int chunks = 0;         // 0 = the minimum of the schedule
  std::string svg;
  std::string of_schedule;  // the first given flag among these five; "" = none
  bool fit = false;
  std::string memory;  // per rank, for `fit`
  std::optional<std::int64_t> seq_len;
  double expert_load = 1.0;      // see engine::JobShape
  std::string deepspeed_config;  // "" = bf16 and AdamW
};

StatusOr<config::ConfigText> ReadText(const PlanFlags& flags) {
  if (!flags.deepspeed_config.empty()) return config::ReadConfigText(flags.deepspeed_config);
  return config::ConfigText{
      .text = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
                                      "optimizer": {"type": "AdamW"}})",
      .name = "plan"};
}

// --fit searches for batch and degrees, so the config may be valid for all `ranks` or for one.
StatusOr<config::CheckResult> ReadFitConfig(const PlanFlags& flags, int ranks) {
  DS_ASSIGN_OR_RETURN(const config::ConfigText text, ReadText(flags));
  std::string first_error;
  for (const int world_size : {ranks, 1}) {
    config::CheckResult checked = config::CheckConfig(
        text.text, text.name, {.world_size = world_size, .steps_come_later = true});
    if (checked.ok) return checked;
    if (first_error.empty()) first_error = checked.errors.front().message;
  }
  return InvalidArgumentError(
      first_error + " (--fit searches for batch sizes and degrees; they may be left out)");
}

// Describes the model on the ranks of the plan, with samples of --seq_len tokens.
StatusOr<engine::JobShape> DescribeJobOf(const PlanFlags& flags, const WorldPlan& world) {
  engine::JobShape job;
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  DS_ASSIGN_OR_RETURN(const std::filesystem::path path, FindModel(flags.model, share));
  DS_ASSIGN_OR_RETURN(job.model, plan::ReadJobModel(path));
  int ranks_of_a_host = world.hosts.front().rank_count();
  for (const JobHost& host : world.hosts) {
    ranks_of_a_host = std::gcd(ranks_of_a_host, host.rank_count());
  }
  job.seq_len = flags.seq_len.value_or(256);
  job.expert_load = flags.expert_load;
  if (job.expert_load > 1.0 && job.model.experts == 0) {
    return InvalidArgumentError("--expert_load: --model " + flags.model + " has no experts");
  }
  DS_RETURN_IF_ERROR(CheckLengthFits(flags.model, job.seq_len, share));
  job.packs_documents = tokenizer::HasTokenizer(path);  // `train` packs tokenized texts
  job.setting = {.ranks = world.world_size(),
                 .ranks_of_host = ranks_of_a_host,
                 .on_gpu = !world.hosts.front().devices.empty()};
  return job;
}

void AddFitFlags(FlagParser* parser, PlanFlags* flags) {
  BeginFlagGroup(parser->app(), "Parallel degrees that fit");
  parser->app().add_flag("--fit", flags->fit,
                         "propose ZeRO's stage, --tp, --sp, --ep and --pp for --model on these "
                         "ranks with --memory each; exit status 1 if nothing fits");
  parser->app()
      .add_option("--memory", flags->memory, "with --fit: memory available to each rank (80G)")
      ->type_name("BYTES");
  parser->app()
      .add_option("--seq_len", flags->seq_len,
                  "with --fit and --deepspeed_config: tokens per sample (default: 256)")
      ->check(WholeNumber(1))
      ->type_name("N");
  parser->app()
      .add_option("--expert_load", flags->expert_load,
                  "with --fit and --deepspeed_config: plan for ranks with experts that get FACTOR "
                  "times their even share of the tokens (default: 1)")
      ->check(NumberBetween(1, plan::kMostExpertLoad))
      ->type_name("FACTOR");
  parser->app()
      .add_option(
          "--deepspeed_config", flags->deepspeed_config,
          "with --fit: its precision and optimizer (default: bf16 and AdamW); with a mesh that has "
          "stages of --model: show their memory and the bytes that they send in a step")
      ->type_name("FILE");
}

void AddScheduleFlags(FlagParser* parser, PlanFlags* flags) {
  OfferValues(parser->app().add_option("--schedule", flags->schedule,
                                       "draw this schedule of the mesh's pipeline (default: 1f1b)"),
              pipeline::ScheduleNames());
  parser->app()
      .add_option("--micro_batches", flags->micro_batches,
                  "micro-batches per step in the drawing (default: twice the stages)")
      ->check(WholeNumber(1))
      ->type_name("N");
  parser->app()
      .add_option("--chunks", flags->chunks,
                  "virtual stages (runs of blocks) per stage in the drawing (default: the fewest "
                  "of the schedule)")
      ->check(WholeNumber(1))
      ->type_name("N");
  OfferValues(
      parser->app().add_option(
          "--partition", flags->partition,
          "partition of the blocks of --model among the stages: uniform (equal numbers of blocks), "
          "parameters (default), profile (computation), type:REGEX (equal numbers of blocks with a "
          "matching name), or, with --deepspeed_config, memory"),
      {"uniform", "parameters", "profile", "type:REGEX", "memory"});
  parser->app()
      .add_option("--svg", flags->svg, "write the drawing of the schedule to this file")
      ->type_name("FILE");
}

// Prints the parallel layouts of the model that fit into a rank's memory limit. Returns false if
// there is none.
StatusOr<bool> PrintFits(const PlanFlags& flags, const WorldPlan& world) {
  plan::FitQuestion question;
  DS_ASSIGN_OR_RETURN(question.job, DescribeJobOf(flags, world));
  DS_ASSIGN_OR_RETURN(config::CheckResult checked, ReadFitConfig(flags, world.world_size()));
  question.config = std::move(checked.config);
  DS_RETURN_IF_ERROR(engine::TakeMoeSection(question.config.moe, &question.job.model));
  question.job.efficiency = std::move(checked.data_efficiency);
  DS_ASSIGN_OR_RETURN(question.capacity, plan::ParseMemory(flags.memory));
  question.ranks_of_a_host = question.job.setting.ranks_of_host;
  DS_RETURN_IF_ERROR(plan::CheckFitIsKnown(question).WithContext("--fit"));
  const std::vector<plan::Fit> fits = plan::FitDegrees(question);
  if (flags.json) {
    std::cout << nlohmann::ordered_json{{"fits", ToJson(fits)}}.dump() << std::endl;
  } else {
    std::cout << Printable(ToText(fits, question)) << std::flush;
  }
  return !fits.empty();
}

// Reads --deepspeed_config, or its default, for `ranks` ranks of a mesh. `degrees` replace the
// degrees of the config. The returned result has no errors.
StatusOr<config::CheckResult> ReadMeshConfig(const PlanFlags& flags, int ranks,
                                             const topology::Degrees& degrees) {
  config::JobFacts facts{.world_size = ranks, .steps_come_later = true};
  facts.flags.tp = degrees.tensor;
  facts.flags.sp = degrees.sequence;
  facts.flags.pp = degrees.pipeline;
  if (degrees.expert > 1) facts.flags.ep = degrees.expert;
  DS_ASSIGN_OR_RETURN(const config::ConfigText text, ReadText(flags));
  config::CheckResult checked = config::CheckConfig(text.text, text.name, facts);
  if (!checked.ok) return InvalidArgumentError(checked.errors.front().message);
  return checked;
}

// Returns the stages of the schedule, on the mesh that `checked` was read for.
StatusOr<plan::StagePlans> PlanStagesOf(const PlanFlags& flags, config::CheckResult checked,
                                        const pipeline::PipelineSchedule& schedule,
                                        const topology::Degrees& degrees, const WorldPlan& world) {
  DS_ASSIGN_OR_RETURN(engine::JobShape job, DescribeJobOf(flags, world));
  if (job.expert_load > 1.0 && degrees.expert == 1) {
    return InvalidArgumentError("--expert_load needs expert parallelism: set expert=N in --mesh");
  }
  job.schedule = schedule.kind();
  job.chunks = schedule.shape().chunks;
  job.efficiency = std::move(checked.data_efficiency);
  config::DsConfig config = std::move(checked.config);
  DS_RETURN_IF_ERROR(engine::TakeMoeSection(config.moe, &job.model));
  config.parallel = {.pipeline = degrees.pipeline,
                     .sequence = degrees.sequence,
                     .tensor = degrees.tensor,
                     .expert = degrees.expert,
                     .data_before_expert = degrees.data_before_expert};
  config::BatchConfig& batch = config.batch;
  batch.train_batch_size /= batch.gradient_accumulation_steps;  // of one micro-batch on all ranks
  batch.gradient_accumulation_steps = schedule.shape().micro_batches;
  batch.train_batch_size *= batch.gradient_accumulation_steps;
  config.pipeline.partition = flags.partition;
  auto plans = plan::PlanStages(config, job);
  if (!plans.ok()) return plans.status().WithContext("the steps of the stages");
  return plans;
}

// Adds the flags of `dsrun plan` beyond the launch flags.
void AddPlanFlags(FlagParser* parser, PlanFlags* flags) {
  parser->app().add_flag("--json", flags->json, "print one JSON object");
  BeginFlagGroup(parser->app(), "Mesh and pipeline");
  parser->app()
      .add_option("--mesh", flags->mesh,
                  "draw these ranks as a mesh, outermost axis first, as in "
                  "pipeline=2,shard=4,tensor=2 (axes: "
                  "pipeline, replicate, shard, sequence, tensor; and expert); shard gets the "
                  "remaining ranks")
      ->type_name("MESH");
  OfferValues(parser->app().add_option(
                  "--model", flags->model,
                  "check the mesh against this model: a folder, a config.json or a preset"),
              {"DIR", "FILE", "PRESET"});
  AddScheduleFlags(parser, flags);
  AddFitFlags(parser, flags);
}

constexpr int kColumns = 80;  // width of a schedule drawing

struct PlannedJob {
  LaunchPlan plan;
  JobEnvironment environment;
  std::vector<std::string> argv;
  std::optional<MeshDrawing> mesh;          // if requested
  std::optional<ScheduleDrawing> schedule;  // if the mesh has stages
  std::optional<StageDrawing> stages;       // if a model is also given
  std::optional<plan::StagePlans> steps;    // if a ds_config is also given
};

// Replaces bytes that are not UTF-8 by U+FFFD, because JSON requires UTF-8.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json RankJson(const PlannedJob& job, const PlannedRank& rank) {
  Json environment = Json::object();
  for (const auto& [name, value] : ShowRankEnvironment(job.plan.world, rank, job.environment)) {
    environment[name] = value;
  }
  Json json = {{"rank", rank.rank},
               {"host", job.plan.world.host_of(rank).host},
               {"node_rank", rank.node_rank},
               {"local_rank", rank.local_rank},
               {"slot", rank.slot},
               {"cores", rank.cores},
               {"memory", ShowMemoryPolicy(rank.memory)},
               {"env", environment}};
  if (job.mesh) json["coordinates"] = job.mesh->CoordinatesJson(rank.rank);
  return json;
}

// The hostfile's settings of a host are under its name.
Json HostsJson(const std::vector<JobHost>& hosts) {
  Json json = Json::array();
  for (const JobHost& host : hosts) {
    Json described = {{"host", host.host}, {"slots", host.slots}};
    for (const auto& [key, value] : host.entry.keys) {
      if (key != "spare") described[key] = value;
    }
    json.push_back(std::move(described));
  }
  return json;
}

// Returns the address as far as it is known without contacting the hosts.
std::string MasterAddress(const LaunchFlags& flags, const LaunchPlan& plan) {
  if (!flags.master_addr.empty()) return flags.master_addr;
  const auto& keys = plan.world.hosts.front().entry.keys;
  const auto address = keys.find("address");
  if (plan.world.hosts.size() > 1 && address != keys.end()) return address->second;
  return ChooseMasterAddress(plan.world);
}

void PrintJson(const PlannedJob& job) {
  Json ranks = Json::array();
  for (const PlannedRank& rank : job.plan.world.ranks) ranks.push_back(RankJson(job, rank));
  Json json = {{"world_size", job.plan.world.world_size()},
               {"hosts", HostsJson(job.plan.world.hosts)},
               {"spares", HostsJson(job.plan.spares)},
               {"ranks", ranks},
               {"argv", job.argv}};
  if (job.mesh) json["mesh"] = job.mesh->ToJson();
  if (job.schedule) json["schedule"] = job.schedule->ToJson();
  if (job.stages) json["stages"] = job.stages->ToJson();
  if (job.steps) json["stage_steps"] = ToJson(*job.steps);
  std::cout << Dump(json) << std::endl;
}

// Prints the hostfile's settings for its hosts other than slots.
void PrintHosts(const LaunchPlan& plan) {
  const char* separator = "\n";
  for (const std::vector<JobHost>* hosts : {&plan.world.hosts, &plan.spares}) {
    for (const JobHost& host : *hosts) {
      std::string keys;
      for (const auto& [key, value] : host.entry.keys) {
        if (key != "spare") keys += " " + key + "=" + value;
      }
      if (keys.empty()) continue;
      std::cout << std::exchange(separator, "") << host.host << ":" << Printable(keys) << "\n";
    }
  }
}

// Prints rank 0's environment. Other ranks have other numbers; --json prints all.
void PrintEnvironment(const PlannedJob& job) {
  std::cout << "\nrank 0 gets, over its host's own environment (--json shows every rank):\n";
  const WorldPlan& world = job.plan.world;
  for (const auto& [name, value] :
       ShowRankEnvironment(world, world.ranks.front(), job.environment)) {
    std::cout << "  " << Printable(name) << "=" << Printable(value) << "\n";
  }
}

void PrintTable(const PlannedJob& job) {
  const WorldPlan& world = job.plan.world;
  std::cout << world.world_size() << (world.world_size() == 1 ? " rank on " : " ranks on ")
            << world.hosts.size() << (world.hosts.size() == 1 ? " host" : " hosts")
            << ", meeting at " << job.environment.master_addr << "\n\n"
            << " rank  node  local  slot  host\n";
  for (const PlannedRank& rank : world.ranks) {
    std::cout << std::setw(5) << rank.rank << std::setw(6) << rank.node_rank << std::setw(7)
              << rank.local_rank << std::setw(6) << rank.slot << "  " << world.host_of(rank).host;
    const std::vector<std::string>& devices = world.host_of(rank).devices;
    if (!devices.empty() && devices[rank.local_rank] != std::to_string(rank.slot)) {
      std::cout << "  device " << devices[rank.local_rank];
    }
    if (!rank.cores.empty()) {
      std::cout << "  cores " << FormatNumberList(rank.cores);
    }
    if (const std::string memory = ShowMemoryPolicy(rank.memory); !memory.empty()) {
      std::cout << "  memory " << memory;
    }
    if (job.mesh) std::cout << "  " << job.mesh->DescribeRank(rank.rank);
    std::cout << "\n";
  }
  for (const JobHost& spare : job.plan.spares) {
    std::cout << "spare, for a lost host with as many slots: " << spare.host << " ("
              << spare.slots.size() << (spare.slots.size() == 1 ? " slot" : " slots") << ")\n";
  }
  PrintHosts(job.plan);
  if (job.mesh) std::cout << "\n" << job.mesh->DrawGroups();
  if (job.stages) std::cout << "\n" << job.stages->DrawText();
  if (job.schedule) std::cout << "\n" << job.schedule->DrawText(kColumns);
  if (job.steps) std::cout << "\n" << ToText(*job.steps);
  if (!job.argv.empty()) std::cout << "\neach runs:";
  for (const std::string& word : job.argv) std::cout << " " << std::quoted(Printable(word), '\'');
  std::cout << (job.argv.empty() ? "" : "\n");
  PrintEnvironment(job);
  std::cout << std::flush;
}

// Draws the pipeline schedule if the mesh has several stages, and writes it to --svg if given.
StatusOr<std::optional<ScheduleDrawing>> DrawSchedule(const PlanFlags& flags, int stages) {
  using pipeline::ScheduleKind;
  if (stages < 2) {
    if (flags.of_schedule.empty()) return std::optional<ScheduleDrawing>();
    return InvalidArgumentError("plan: " + flags.of_schedule +
                                " is of the drawing of a pipeline: the --mesh needs a pipeline=N");
  }
  DS_ASSIGN_OR_RETURN(const ScheduleKind kind, pipeline::ParseScheduleKind(flags.schedule));
  const pipeline::PipelineShape shape{
      .stages = stages,
      .chunks = flags.chunks > 0 ? flags.chunks : pipeline::DefaultChunksOf(kind),
      .micro_batches = flags.micro_batches > 0 ? flags.micro_batches : 2 * stages};
  DS_ASSIGN_OR_RETURN(ScheduleDrawing drawing, ScheduleDrawing::Create(kind, shape));
  if (!flags.svg.empty()) {
    DS_RETURN_IF_ERROR(WriteFileAtomically(flags.svg, drawing.DrawSvg()).WithContext("--svg"));
  }
  return std::optional<ScheduleDrawing>(std::move(drawing));
}

// Draws the model's blocks on the stages, if there are several and a model is given. Uses the
// partition of the planned steps if there is one.
StatusOr<std::optional<StageDrawing>> DrawStages(const PlanFlags& flags,
                                                 const config::MoeConfig& moe,
                                                 const std::optional<ScheduleDrawing>& schedule,
                                                 const std::optional<plan::StagePlans>& steps) {
  if (!schedule || flags.model.empty()) return std::optional<StageDrawing>();
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  DS_ASSIGN_OR_RETURN(const std::filesystem::path model, FindModel(flags.model, share));
  DS_ASSIGN_OR_RETURN(std::vector<pipeline::WeighedBlock> blocks,
                      plan::ReadModelBlocks(model, moe, flags.seq_len.value_or(256)));
  if (steps) {
    return std::optional(StageDrawing(schedule->schedule(), steps->split, std::move(blocks)));
  }
  auto stages = StageDrawing::Create(schedule->schedule(), flags.partition, std::move(blocks));
  if (!stages.ok()) return stages.status().WithContext("--partition");
  return std::optional<StageDrawing>(*std::move(stages));
}

// Draws the requested mesh, and checks it against the model if one is given.
StatusOr<std::optional<MeshDrawing>> DrawMesh(const PlanFlags& flags, int world_size) {
  if (flags.mesh.empty()) {
    if (flags.model.empty()) return std::optional<MeshDrawing>();
    return InvalidArgumentError("plan: --model is checked against --mesh: give --mesh, too");
  }
  DS_ASSIGN_OR_RETURN(const topology::Degrees degrees,
                      topology::ParseDegrees(flags.mesh, world_size));
  DS_ASSIGN_OR_RETURN(topology::Mesh mesh, topology::Mesh::Create(degrees, world_size));
  if (!flags.model.empty()) {
    DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
    const config::ParallelConfig parallel{.pipeline = degrees.pipeline,
                                          .sequence = degrees.sequence,
                                          .tensor = degrees.tensor,
                                          .expert = degrees.expert};
    DS_RETURN_IF_ERROR(
        CheckDegreesFit(flags.model, parallel, share).WithContext("--mesh " + flags.mesh));
  }
  return std::optional<MeshDrawing>(mesh);
}

// Returns the first given flag; "" if none is given.
std::string FindGiven(const CLI::App& app, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (app.count(name) > 0) return name;
  }
  return "";
}

// Draws the mesh that --mesh requests. Micro-batches and the partition come from the ds_config
// unless flags override them.
Status DrawParallel(const CLI::App& app, PlanFlags flags, PlannedJob* job) {
  const WorldPlan& world = job->plan.world;
  DS_ASSIGN_OR_RETURN(job->mesh, DrawMesh(flags, world.world_size()));
  std::optional<config::CheckResult> checked;
  config::MoeConfig moe;
  if (job->mesh && (!flags.deepspeed_config.empty() || flags.seq_len)) {
    DS_ASSIGN_OR_RETURN(checked, ReadMeshConfig(flags, world.world_size(), job->mesh->degrees()));
    const config::DsConfig& config = checked->config;
    moe = config.moe;
    const auto steps = static_cast<int>(config.batch.gradient_accumulation_steps);
    if (!flags.deepspeed_config.empty() && flags.micro_batches == 0) flags.micro_batches = steps;
    if (app.count("--partition") == 0) flags.partition = config.pipeline.partition;
  }
  DS_ASSIGN_OR_RETURN(job->schedule,
                      DrawSchedule(flags, job->mesh ? job->mesh->degrees().pipeline : 1));
  if (checked && !job->schedule) {
    return InvalidArgumentError(
        "plan: --deepspeed_config and --seq_len are of the steps of stages: the --mesh needs a "
        "pipeline=N (or ask --fit)");
  }
  if (checked) {
    DS_ASSIGN_OR_RETURN(job->steps,
                        PlanStagesOf(flags, *std::move(checked), job->schedule->schedule(),
                                     job->mesh->degrees(), world));
  }
  DS_ASSIGN_OR_RETURN(job->stages, DrawStages(flags, moe, job->schedule, job->steps));
  return OkStatus();
}

// Checks that --fit has its inputs, and that no flag is without an effect.
Status CheckFlagsCount(const CLI::App& app, const PlanFlags& flags) {
  const std::string of_fit = FindGiven(app, {"--memory"});
  const std::string of_steps = FindGiven(app, {"--seq_len", "--deepspeed_config", "--expert_load"});
  const std::string& of_schedule = flags.of_schedule;
  if (!flags.fit) {
    if (!of_fit.empty()) return InvalidArgumentError("plan: " + of_fit + " needs --fit, too");
    if (!of_steps.empty() && (flags.mesh.empty() || flags.model.empty())) {
      return InvalidArgumentError("plan: " + of_steps +
                                  " needs --fit, or --mesh pipeline=N and --model, too");
    }
    if (of_schedule.empty() || !flags.mesh.empty()) return OkStatus();
    return InvalidArgumentError("plan: " + of_schedule +
                                " is of the drawing of a pipeline: give --mesh pipeline=N, too");
  }
  if (!flags.mesh.empty() || !of_schedule.empty()) {
    return InvalidArgumentError("plan: --fit looks for a mesh, and draws none: leave " +
                                (flags.mesh.empty() ? of_schedule : "--mesh") + " out");
  }
  if (!flags.model.empty() && !flags.memory.empty()) return OkStatus();
  return InvalidArgumentError(
      "plan: --fit needs both --model and --memory, the limit of each rank (80G)");
}

// Adds the command and environment of the ranks. Returns notices for the user.
StatusOr<std::vector<std::string>> CompleteJob(const LaunchFlags& flags, const ThisHost& this_host,
                                               const std::vector<std::string>& words,
                                               PlannedJob* job) {
  const Shell shell{.environment = ReadShellEnvironment(),
                    .working_directory = std::filesystem::current_path()};
  DS_ASSIGN_OR_RETURN(const GatheredExports exports,
                      GatherExports(flags, shell.environment, shell.working_directory));
  PlaceHosts(this_host, &job->plan);
  DS_RETURN_IF_ERROR(CheckNamesOfThisHost(flags, job->plan));
  for (JobHost& host : job->plan.world.hosts) {
    CompleteHost(flags, exports.environment, shell, &host);
  }
  LaunchFlags found = flags;
  found.python = FindInterpreter(flags.python, exports.environment, shell);
  job->argv = MakeUserProgram(found, words).argv;
  job->environment = MakeJobEnvironment(flags);
  job->environment.master_addr = MasterAddress(flags, job->plan);
  job->environment.master_port = flags.master_port;
  std::vector<std::string> notices =
      DescribeAllocation(shell.environment, flags.hostfile.has_value());
  notices.insert(notices.end(), exports.notices.begin(), exports.notices.end());
  return notices;
}

// Checks words that name a command of dsrun instead of a program. A `train` job is checked as train
// does, which takes launch flags of its own and returns notices; other commands are rejected.
StatusOr<std::optional<PlannedTraining>> CheckCommandWords(const Invocation& invocation,
                                                           const LaunchFlags& flags,
                                                           const std::vector<std::string>& words) {
  const bool names_command = !words.empty() && !flags.module && FindCommand(words[0]) != nullptr;
  if (!words.empty() && !names_command) DS_RETURN_IF_ERROR(CheckEngine(flags, words));
  if (!names_command) return std::optional(PlannedTraining{.launch = flags, .notices = {}});
  if (words[0] == "train") {
    return PlanTraining({.launch = flags,
                         .arguments = {words.begin() + 1, words.end()},
                         .command_line = invocation.command_line});
  }
  return InvalidArgumentError("plan: '" + words[0] +
                              "' is a command of dsrun, which plan does not show: give `train` and "
                              "its flags, or a program (one of that name by its path); `dsrun "
                              "check` and `dsrun estimate` judge a config and a model");
}

}  // namespace

StatusOr<int> PlanCommand(const Invocation& invocation) {
  LaunchFlags flags = invocation.launch;
  PlanFlags own;
  FlagParser parser("[launch flags] plan [flags] [--json] -- PROGRAM [arguments]",
                    "Show which ranks would run on which hosts and devices, with which "
                    "environment. Starts and contacts nothing. 'train' and its flags in place of "
                    "PROGRAM: check that job as train does.");
  AddPlanFlags(&parser, &own);
  AddLaunchFlags(&parser, &flags);
  DS_ASSIGN_OR_RETURN(FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kProgram));
  if (parsed.help_shown) return kExitOk;
  DS_RETURN_IF_ERROR(CheckLaunchFlags(flags));
  own.of_schedule = FindGiven(
      parser.app(), {"--schedule", "--micro_batches", "--chunks", "--partition", "--svg"});
  DS_RETURN_IF_ERROR(CheckFlagsCount(parser.app(), own));
  if (!parsed.rest.empty() && parsed.rest[0] == "--") parsed.rest.erase(parsed.rest.begin());
  DS_ASSIGN_OR_RETURN(std::optional<PlannedTraining> training,
                      CheckCommandWords(invocation, flags, parsed.rest));
  if (!training) return kExitOk;
  flags = std::move(training->launch);

  PlannedJob job;
  const ThisHost this_host = ProbeThisHost(ChooseProbe(flags));
  DS_ASSIGN_OR_RETURN(job.plan,
                      MakeLaunchPlan(flags, this_host, std::getenv("CUDA_VISIBLE_DEVICES")));
  const bool prints_json = own.json;
  if (own.fit) {
    DS_ASSIGN_OR_RETURN(const bool fits, PrintFits(own, job.plan.world));
    return fits ? kExitOk : kExitFailure;
  }
  DS_RETURN_IF_ERROR(DrawParallel(parser.app(), std::move(own), &job));
  DS_ASSIGN_OR_RETURN(std::vector<std::string> notices,
                      CompleteJob(flags, this_host, parsed.rest, &job));
  notices.insert(notices.end(), training->notices.begin(), training->notices.end());
  prints_json ? PrintJson(job) : PrintTable(job);
  ReportNotices(notices);
  return kExitOk;
}

}  // namespace ds::cli
