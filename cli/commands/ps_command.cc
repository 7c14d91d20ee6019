#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/agent/job_registry.h"
#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/front/agent_client.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// Returns the state of a registered job. An agent that does not reply has the state "unknown".
Json Describe(const RegisteredJob& job) {
  Json state = {{"job", job.job_id}, {"run_directory", job.run_directory.string()}};
  const auto client = AgentClient::Connect(job.run_directory);
  StatusOr<Json> json = client.ok() ? (*client)->AskStatus() : client.status();
  if (json.ok()) return *std::move(json);
  state["state"] = "unknown";
  state["message"] = json.status().message();
  return state;
}

std::string Text(const Json& job, const char* name) {
  return job.contains(name) && job[name].is_string() ? job[name].get<std::string>() : "";
}

void PrintTable(const std::vector<Json>& jobs) {
  std::size_t width = 3;
  for (const Json& job : jobs) width = std::max(width, Text(job, "job").size());
  std::cout << fmt::format("{:<{}}  {:<9}{:>6}  RUN FOLDER\n", "JOB", width, "STATE", "RANKS");
  for (const Json& job : jobs) {
    const std::string ranks = job.contains("world_size") ? job["world_size"].dump() : "";
    std::cout << fmt::format("{:<{}}  {:<9}{:>6}  {}\n", Printable(Text(job, "job")), width,
                             Text(job, "state"), ranks,
                             Printable(ShortenPath(Text(job, "run_directory"))));
    const std::string more = job.contains("message") ? Text(job, "message") : Text(job, "progress");
    if (!more.empty()) std::cout << "  " << Printable(more) << "\n";
  }
}

}  // namespace

// `dsrun ps [--json]` lists the jobs of this user whose agents run on this machine.
StatusOr<int> PsCommand(const Invocation& invocation) {
  bool as_json = false;
  FlagParser parser("ps [--json]", "List your jobs that run on this machine.");
  parser.app().add_flag("--json", as_json, "print one JSON document instead of the table");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(const std::vector<RegisteredJob> registered, ListRegisteredJobs());
  std::vector<Json> jobs;
  for (const RegisteredJob& job : registered) jobs.push_back(Describe(job));
  if (as_json) {
    std::cout << Json(jobs).dump() << std::endl;
  } else if (jobs.empty()) {
    std::cout << "no job of yours runs on this machine" << std::endl;
  } else {
    PrintTable(jobs);
  }
  return kExitOk;
}

}  // namespace ds::cli
