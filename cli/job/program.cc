#include "cli/job/program.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cli/launch/environment.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

bool IsExecutable(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// "" when it is no file that must be there.
std::string FindScript(const LaunchFlags& flags, const std::vector<std::string>& words) {
  const bool is_script = words[0].ends_with(".py") && !flags.module && !flags.no_python;
  return is_script ? words[0] : "";
}

}  // namespace

std::string FindInterpreter(const std::string& python, const Environment& exports,
                            const Shell& shell) {
  const std::string* path = FindRankVariable(exports, shell.environment, "PATH");
  if (path == nullptr || python.empty() || python.find('/') != std::string::npos) return python;
  const std::string_view search_path = *path;
  for (std::size_t start = 0; start <= search_path.size();) {
    const std::size_t end = std::min(search_path.find(':', start), search_path.size());
    // As in execvp, an empty folder is the working directory.
    const fs::path folder = shell.working_directory / search_path.substr(start, end - start);
    const fs::path candidate = (folder / python).lexically_normal();
    if (IsExecutable(candidate)) return candidate.string();
    start = end + 1;
  }
  return python;
}

bool IsPython(std::string_view program) {
  constexpr std::string_view kName = "python";
  const std::string_view name = program.substr(program.rfind('/') + 1);
  return name.starts_with(kName) &&
         name.find_first_not_of("0123456789.", kName.size()) == std::string_view::npos;
}

RankProgram MakeUserProgram(const LaunchFlags& flags, const std::vector<std::string>& words) {
  if (words.empty()) return {};
  RankProgram program{.script = FindScript(flags, words)};
  const bool is_native = flags.engine == Engine::kNative;
  program.has_interpreter = flags.module || !program.script.empty();
  if (program.has_interpreter) program.argv = {flags.python, "-u"};
  if (is_native) program.argv.insert(program.argv.end(), {"-m", "dsrun.compat"});
  if (flags.module) program.argv.push_back("-m");
  // --local_rank=N stands right behind the program, as deepspeed puts it.
  if (flags.pass_local_rank)
    program.local_rank_position = static_cast<int>(program.argv.size()) + 1;
  program.argv.insert(program.argv.end(), words.begin(), words.end());
  return program;
}

Status CheckEngine(const LaunchFlags& flags, const std::vector<std::string>& words) {
  if (flags.engine != Engine::kNative || flags.module || !FindScript(flags, words).empty()) {
    return OkStatus();
  }
  return InvalidArgumentError("--engine native is for Python programs (*.py, or -m MODULE), and '" +
                              words[0] + "' is none: leave the flag out");
}

}  // namespace ds::cli
