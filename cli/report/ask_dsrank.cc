#include "cli/report/ask_dsrank.h"

#include <nlohmann/json.hpp>

#include "cli/report/child_output.h"

namespace ds::cli {
namespace {

// LibTorch with its CUDA libraries from a cold disk.
constexpr std::chrono::seconds kTimeLimit{60};

// Null when there is no such field.
nlohmann::json FieldAt(const nlohmann::json& json, const char* pointer) {
  const nlohmann::json::json_pointer where(pointer);
  return json.contains(where) ? json.at(where) : nlohmann::json();
}

std::string TextAt(const nlohmann::json& json, const char* pointer) {
  const nlohmann::json field = FieldAt(json, pointer);
  if (field.is_string()) return field.get<std::string>();
  return field.is_number() ? field.dump() : "";
}

bool FlagAt(const nlohmann::json& json, const char* pointer) {
  const nlohmann::json field = FieldAt(json, pointer);
  return field.is_boolean() && field.get<bool>();
}

// The last line that says something: where a failing program says why.
std::string LastFilledLine(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "";
  const std::size_t newline = text.rfind('\n', end);
  const std::size_t start = newline == std::string::npos ? 0 : newline + 1;
  return text.substr(start, end - start + 1);
}

}  // namespace

DsrankFacts ParseDsrankFacts(std::string_view json_text) {
  const nlohmann::json json = nlohmann::json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  DsrankFacts facts;
  if (!json.is_object()) {
    facts.problem = "its answer is not a JSON object";
    return facts;
  }
  facts.version = TextAt(json, "/dsrun");
  facts.libtorch = TextAt(json, "/libtorch");
  facts.compiler = TextAt(json, "/compiler");
  facts.cpu_capability = TextAt(json, "/cpu_capability");
  facts.amx_faults = FlagAt(json, "/amx/faults");
  facts.cuda_plugin = FlagAt(json, "/cuda/plugin");
  facts.cuda_problem = TextAt(json, "/cuda/reason");
  facts.cuda = TextAt(json, "/cuda/cuda");
  facts.nccl = TextAt(json, "/cuda/nccl");
  const nlohmann::json devices = FieldAt(json, "/cuda/devices");
  if (devices.is_number_unsigned()) facts.cuda_devices = devices.get<int>();
  return facts;
}

DsrankFacts AskDsrank(const std::filesystem::path& dsrank) {
  DsrankFacts facts;
  const StatusOr<ChildOutput> output = RunAndRead({dsrank.string(), "facts"}, kTimeLimit);
  if (!output.ok()) {
    facts.problem = output.status().message();
  } else if (output->exit_status != 0) {
    facts.problem = dsrank.string() + " ended with status " + std::to_string(output->exit_status);
    const std::string why = LastFilledLine(output->err);
    if (!why.empty()) facts.problem += ": " + why;
  } else {
    facts = ParseDsrankFacts(output->out);
  }
  facts.path = dsrank;
  return facts;
}

}  // namespace ds::cli
