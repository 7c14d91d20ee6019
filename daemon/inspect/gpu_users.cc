#include "daemon/inspect/gpu_users.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/inspect/child_output.h"
#include "daemon/inspect/find_program.h"
#include "daemon/inspect/text_file.h"
#include "runtime/base/parse_number.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

using Fields = std::array<std::string, 4>;

// Splits "a, b, c, d". The last field may contain commas.
std::optional<Fields> SplitLine(std::string_view line) {
  constexpr std::string_view kSeparator = ", ";
  Fields fields;
  for (std::size_t i = 0; i + 1 < fields.size(); ++i) {
    const std::size_t end = line.find(kSeparator);
    if (end == std::string_view::npos) return std::nullopt;
    fields[i] = line.substr(0, end);
    line.remove_prefix(end + kSeparator.size());
  }
  fields.back() = line;
  return fields;
}

std::vector<Fields> SplitLines(std::string_view csv) {
  std::vector<Fields> lines;
  while (!csv.empty()) {
    const std::size_t end = std::min(csv.find('\n'), csv.size());
    std::string_view line = csv.substr(0, end);
    csv.remove_prefix(std::min(end + 1, csv.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (auto fields = SplitLine(line)) lines.push_back(*std::move(fields));
  }
  return lines;
}

// Parses a number of MiB. "[N/A]" and others are unknown.
std::optional<std::uint64_t> ParseMebibytes(const std::string& text) {
  const auto number = ParseNumber<std::uint64_t>(text);
  if (!number || *number > (UINT64_MAX >> 20)) return std::nullopt;
  return *number << 20;
}

// Returns the name of the user who runs a process, or the user's number; "" if it has ended.
std::string FindUser(std::uint32_t pid, const fs::path& root) {
  const auto ids =
      SplitAtBlanks(FindValue(ReadLines(root / "proc" / std::to_string(pid) / "status"), "Uid"));
  if (ids.empty()) return "";
  for (const std::string& line : ReadLines(root / "etc/passwd")) {
    const std::size_t name_end = line.find(':');
    const std::size_t id_start = line.find(':', name_end + 1);
    if (name_end == std::string::npos || id_start == std::string::npos) continue;
    const std::string_view rest = std::string_view(line).substr(id_start + 1);
    if (rest.substr(0, rest.find(':')) == ids[0]) return line.substr(0, name_end);
  }
  return ids[0];
}

StatusOr<std::string> Ask(const std::string& program, std::string_view query,
                          std::chrono::nanoseconds time_limit) {
  const std::vector<std::string> argv = {program, std::string(query),
                                         "--format=csv,noheader,nounits"};
  DS_ASSIGN_OR_RETURN(const ChildOutput output,
                      RunAndRead({.executable = program, .argv = argv}, time_limit));
  if (output.exit_status == 0) return output.out;
  // It reports errors on standard output.
  const std::string& text = output.out.empty() ? output.err : output.out;
  return UnavailableError(program + " ended with status " + std::to_string(output.exit_status) +
                          (text.empty() ? "" : ": " + text.substr(0, text.find('\n'))));
}

Status ReadGpusAndUsers(std::string_view search_path, std::chrono::nanoseconds time_limit,
                        v1::HostFacts* facts) {
  DS_ASSIGN_OR_RETURN(const std::string program, FindProgram("nvidia-smi", search_path, "/"));
  DS_ASSIGN_OR_RETURN(const std::string gpus, Ask(program, kGpuQuery, time_limit / 2));
  ParseGpus(gpus, facts);
  DS_ASSIGN_OR_RETURN(const std::string users, Ask(program, kGpuUserQuery, time_limit / 2));
  ParseGpuUsers(users, "/", facts);
  return OkStatus();
}

}  // namespace

void ParseGpus(std::string_view csv, v1::HostFacts* facts) {
  for (const Fields& fields : SplitLines(csv)) {
    v1::GpuFacts* gpu = facts->add_gpus();
    gpu->set_uuid(fields[0]);
    if (const auto bytes = ParseMebibytes(fields[1])) gpu->set_memory(*bytes);
    if (const auto bytes = ParseMebibytes(fields[2])) gpu->set_used_memory(*bytes);
    gpu->set_model(fields[3]);
  }
}

void ParseGpuUsers(std::string_view csv, const fs::path& root, v1::HostFacts* facts) {
  for (const Fields& fields : SplitLines(csv)) {
    const auto pid = ParseNumber<std::uint32_t>(fields[1]);
    if (!pid) continue;
    for (v1::GpuFacts& gpu : *facts->mutable_gpus()) {
      if (gpu.uuid() != fields[0]) continue;
      v1::GpuUser* user = gpu.add_users();
      user->set_pid(*pid);
      if (const auto bytes = ParseMebibytes(fields[2])) user->set_memory(*bytes);
      user->set_program(fields[3]);
      user->set_user(FindUser(*pid, root));
    }
  }
}

void CompleteGpus(v1::HostFacts* facts) {
  if (facts->gpus().empty() && !facts->driver_gpus().empty()) {
    facts->mutable_gpus()->Swap(facts->mutable_driver_gpus());
    if (facts->gpu_problem().empty()) facts->set_gpu_problem("nvidia-smi has listed no GPU");
  }
  facts->clear_driver_gpus();
}

void AskNvidiaSmi(std::string_view search_path, std::chrono::nanoseconds time_limit,
                  v1::HostFacts* facts) {
  const Status asked = ReadGpusAndUsers(search_path, time_limit, facts);
  if (!asked.ok()) facts->set_gpu_problem(asked.message());
}

}  // namespace ds::daemon
