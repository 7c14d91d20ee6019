#include "cli/job/program.h"

namespace ds::cli {
namespace {

// "" when it is no file that must be there.
std::string FindScript(const LaunchFlags& flags, const std::vector<std::string>& words) {
  const bool is_script = words[0].ends_with(".py") && !flags.module && !flags.no_python;
  return is_script ? words[0] : "";
}

}  // namespace

RankProgram MakeUserProgram(const LaunchFlags& flags, const std::vector<std::string>& words) {
  if (words.empty()) return {};
  RankProgram program{.script = FindScript(flags, words)};
  const bool is_native = flags.engine == Engine::kNative;
  if (flags.module || !program.script.empty()) program.argv = {flags.python, "-u"};
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
