#include "daemon/inspect/python_facts.h"

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string_view>

#include "daemon/inspect/bound_facts.h"
#include "daemon/inspect/child_output.h"
#include "daemon/inspect/find_program.h"

namespace ds::daemon {
namespace {

// Code of the environment (sitecustomize) may print, too.
constexpr std::string_view kMark = "dsrun-python ";

// find_spec locates a package by every rule of the interpreter (site-packages, .pth files, editable
// installations) and does not import it. The empty entry of sys.path is the working directory,
// which a script does not have there.
constexpr char kQuestion[] = R"(
import sys
torch = ''
try:
    import importlib.util, os
    sys.path[:] = [folder for folder in sys.path if folder]
    spec = importlib.util.find_spec('torch')
    if spec and spec.origin:
        with open(os.path.join(os.path.dirname(spec.origin), 'version.py')) as lines:
            for line in lines:
                if line.startswith('__version__'):
                    torch = line.split('=')[-1].strip().strip('"\'')
except Exception:
    pass
print('\ndsrun-python %d.%d.%d %s' % (sys.version_info[:3] + (torch,)))
)";

constexpr char kMissingHint[] =
    "Python programs cannot run here: install it, or name another with --python";
constexpr char kBrokenHint[] =
    "Python programs cannot run here: start it on this host by hand, or name another with --python";
constexpr char kSlowHint[] =
    "Python programs start slowly here: see the file systems of this host and their servers, or "
    "name another with --python";

using Variables = std::map<std::string, std::string>;

Variables MergeEnvironment(const v1::PrepareRequest& request,
                           const std::vector<std::string>& environment) {
  Variables variables;
  for (const std::string& entry : environment) {
    const std::size_t end = entry.find('=');
    if (end != std::string::npos) variables.emplace(entry.substr(0, end), entry.substr(end + 1));
  }
  for (const v1::EnvironmentVariable& variable : request.environment()) {
    variables[variable.name()] = variable.value();
  }
  return variables;
}

// Returns the complete line with the mark, without it; none if there is none.
std::optional<std::string> FindAnswer(std::string_view text) {
  const std::size_t mark = text.find("\n" + std::string(kMark));
  if (mark == std::string_view::npos) return std::nullopt;
  const std::size_t start = mark + 1 + kMark.size();
  const std::size_t end = text.find('\n', start);
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(text.substr(start, end - start));
}

v1::Python MakeProblem(const std::string& message, const std::string& hint) {
  v1::Python python;
  python.set_problem(message);
  python.set_hint(hint);
  BoundFacts(&python);
  return python;
}

// Returns what an interpreter that gave no answer was like.
v1::Python ExplainSilence(const std::string& program, const StatusOr<ChildOutput>& output,
                          std::chrono::nanoseconds time_limit) {
  if (output.ok()) {
    return MakeProblem(program + " " + DescribeEnd(*output) +
                           (output->exit_status == 0 ? ", without an answer" : ""),
                       kBrokenHint);
  }
  if (output.status().code() != StatusCode::kDeadlineExceeded) {
    return MakeProblem(program + " cannot be started: " + output.status().message(), kBrokenHint);
  }
  const std::chrono::duration<double> limit(time_limit);
  return MakeProblem(program + " did not answer within " + fmt::format("{:.2g} s", limit.count()),
                     kSlowHint);
}

}  // namespace

v1::Python DescribePython(const v1::PrepareRequest& request,
                          const std::vector<std::string>& environment,
                          std::chrono::nanoseconds time_limit) {
  const Variables variables = MergeEnvironment(request, environment);
  const auto path = variables.find("PATH");
  const auto executable =
      FindProgram(request.program(), path == variables.end() ? kDefaultSearchPath : path->second,
                  request.working_directory());
  if (executable.status().code() == StatusCode::kNotFound) {
    return MakeProblem(request.program() + " was not found", kMissingHint);
  }
  if (!executable.ok()) return MakeProblem(executable.status().message(), kMissingHint);
  ChildCommand command{
      .executable = *executable,
      .argv = {request.program(), "-c", kQuestion},
      .environment = std::vector<std::string>(),
      .working_directory = request.working_directory(),
      .is_complete = [](std::string_view text) { return FindAnswer(text).has_value(); }};
  for (const auto& [name, value] : variables) command.environment->push_back(name + "=" + value);
  const StatusOr<ChildOutput> output = RunAndRead(command, time_limit);
  const std::optional<std::string> answer = output.ok() ? FindAnswer(output->out) : std::nullopt;
  if (!answer) return ExplainSilence(request.program(), output, time_limit);
  v1::Python python;
  python.set_version(answer->substr(0, answer->find(' ')));
  python.set_torch(answer->substr(answer->find(' ') + 1));
  BoundFacts(&python);
  return python;
}

}  // namespace ds::daemon
