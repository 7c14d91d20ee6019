#include "daemon/inspect/python_facts.h"

#include <cstddef>
#include <map>
#include <string_view>

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

}  // namespace

std::optional<v1::Python> DescribePython(const v1::PrepareRequest& request,
                                         const std::vector<std::string>& environment) {
  const Variables variables = MergeEnvironment(request, environment);
  const auto path = variables.find("PATH");
  const auto executable =
      FindProgram(request.program(), path == variables.end() ? kDefaultSearchPath : path->second,
                  request.working_directory());
  if (!executable.ok()) return std::nullopt;
  ChildCommand command{
      .executable = *executable,
      .argv = {request.program(), "-c", kQuestion},
      .environment = std::vector<std::string>(),
      .working_directory = request.working_directory(),
      .is_complete = [](std::string_view text) { return FindAnswer(text).has_value(); }};
  for (const auto& [name, value] : variables) command.environment->push_back(name + "=" + value);
  const StatusOr<ChildOutput> output = RunAndRead(command, kPythonTimeout);
  if (!output.ok()) return std::nullopt;
  const std::optional<std::string> answer = FindAnswer(output->out);
  if (!answer) return std::nullopt;
  v1::Python python;
  python.set_version(answer->substr(0, answer->find(' ')));
  python.set_torch(answer->substr(answer->find(' ') + 1));
  return python;
}

}  // namespace ds::daemon
