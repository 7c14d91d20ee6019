#include "cli/commands/job_state.h"

#include <string>
#include <utility>

#include "cli/front/agent_client.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Reads a JSON object; null if the file does not exist.
StatusOr<Json> ReadObject(const fs::path& path) {
  const StatusOr<std::string> text = ReadFile(path);
  if (text.status().code() == StatusCode::kNotFound) return Json(nullptr);
  if (!text.ok()) return text.status();
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return DataLossError(path.string() + " is damaged: it is no JSON object");
  return json;
}

// The state of a job without an agent, from its run folder: "ended", or "lost" if it has no
// outcome.
StatusOr<Json> ReadState(const fs::path& run) {
  DS_ASSIGN_OR_RETURN(const Json job, ReadObject(run / "job.json"));
  DS_ASSIGN_OR_RETURN(Json verdict, ReadObject(run / "verdict.json"));
  DS_ASSIGN_OR_RETURN(const Json agent, ReadObject(run / "agent.json"));
  Json state = {{"job", job.value("job_id", run.filename().string())},
                {"run_directory", run.string()},
                {"state", agent.is_null() ? "ended" : "lost"}};
  state["verdict"] = std::move(verdict);
  return state;
}

StatusOr<Json> AskAgent(const fs::path& run) {
  DS_ASSIGN_OR_RETURN(const auto client, AgentClient::Connect(run));
  return client->AskStatus();
}

}  // namespace

StatusOr<Json> FindJobState(const fs::path& run) {
  // An agent that ends closes its connections, then those that it has not accepted, and then it is
  // not found.
  StatusOr<Json> state = AskAgent(run);
  for (int i = 0; i < 2 && state.status().code() == StatusCode::kUnavailable; ++i) {
    state = AskAgent(run);
  }
  return state.status().code() == StatusCode::kNotFound ? ReadState(run) : state;
}

}  // namespace ds::cli
