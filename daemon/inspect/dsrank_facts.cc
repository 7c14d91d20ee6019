#include "daemon/inspect/dsrank_facts.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "daemon/inspect/bound_facts.h"
#include "daemon/inspect/child_output.h"
#include "daemon/inspect/needed_libraries.h"

namespace ds::daemon {
namespace {

// Returns null if there is no such field.
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

// Sets the reason why the file cannot run, if there is one.
void FindProblem(const std::filesystem::path& dsrank, const std::string& library_path,
                 v1::DsrankFacts* facts) {
  constexpr std::array<std::string_view, 2> kPrefixes = {"libtorch", "libc10"};
  const std::string absent = "this host has no executable dsrank next to its dsrund";
  if (dsrank.empty()) return facts->set_problem(absent);
  if (::access(dsrank.c_str(), X_OK) != 0) {
    const int error = errno;
    const std::string reason = ErrnoError(error, dsrank.string()).message();
    const bool known = error == ENOENT || error == ENOTDIR || error == EACCES;
    return facts->set_problem(known ? absent + ": " + reason : reason);
  }
  const auto missing = FindMissingLibraries(dsrank, kPrefixes, library_path);
  if (!missing.ok()) return facts->set_problem(missing.status().message());
  if (missing->empty()) return;
  facts->set_problem(dsrank.string() + " does not find its " + missing->front());
  facts->set_hint(
      "install LibTorch where dsrank was built to find it, or put its lib folder into "
      "LD_LIBRARY_PATH");
}

}  // namespace

v1::DsrankFacts FindDsrank(const std::filesystem::path& dsrank, const std::string& library_path) {
  v1::DsrankFacts facts;
  facts.set_path(dsrank.string());
  FindProblem(dsrank, library_path, &facts);
  BoundFacts(&facts);
  return facts;
}

v1::DsrankFacts ParseDsrankFacts(std::string_view json_text) {
  const nlohmann::json json = nlohmann::json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  v1::DsrankFacts facts;
  if (!json.is_object()) {
    facts.set_problem("its answer is not a JSON object");
    return facts;
  }
  facts.set_version(TextAt(json, "/dsrun"));
  facts.set_libtorch(TextAt(json, "/libtorch"));
  facts.set_compiler(TextAt(json, "/compiler"));
  facts.set_cpu_capability(TextAt(json, "/cpu_capability"));
  facts.set_amx_faults(FlagAt(json, "/amx/faults"));
  facts.set_cuda_plugin(FlagAt(json, "/cuda/plugin"));
  facts.set_cuda_problem(TextAt(json, "/cuda/reason"));
  facts.set_cuda(TextAt(json, "/cuda/cuda"));
  facts.set_nccl(TextAt(json, "/cuda/nccl"));
  const nlohmann::json devices = FieldAt(json, "/cuda/devices");
  if (devices.is_number_unsigned()) facts.set_cuda_devices(devices.get<std::uint32_t>());
  return facts;
}

v1::DsrankFacts AskDsrank(const std::filesystem::path& dsrank,
                          std::chrono::nanoseconds time_limit) {
  if (dsrank.empty()) return FindDsrank(dsrank, "");
  v1::DsrankFacts facts;
  const StatusOr<ChildOutput> output =
      RunAndRead({.executable = dsrank.string(), .argv = {dsrank.string(), "facts"}}, time_limit);
  if (!output.ok()) {
    facts.set_problem(output.status().message());
  } else if (output->exit_status != 0) {
    facts.set_problem(dsrank.string() + " " + DescribeEnd(*output));
  } else {
    facts = ParseDsrankFacts(output->out);
  }
  facts.set_path(dsrank.string());
  BoundFacts(&facts);
  return facts;
}

}  // namespace ds::daemon
