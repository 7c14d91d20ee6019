#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>

#include "cli/commands/command_flags.h"
#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

constexpr std::string_view kBash =
    R"bash(# bash completion for dsrun: eval "$(dsrun completion bash)"
_dsrun() {
  local answer=() more word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]/#\~/$HOME} line
  mapfile -t answer < <("$program" completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  more=${answer[0]}
  COMPREPLY=()
  for line in "${answer[@]:1}"; do COMPREPLY+=("${line%%$'\t'*}"); done
  [[ $word == = ]] && word=
  case $more in
    files) compopt -o filenames
           mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word") ;;
    folders) compopt -o filenames
             mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$word") ;;
    program) compopt -o filenames
             mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word"
               [[ -n $word && $word != */* ]] && compgen -c -- "$word") ;;
  esac
}
complete -F _dsrun dsrun
)bash";

constexpr std::string_view kZsh = R"zsh(#compdef dsrun
# zsh completion for dsrun: eval "$(dsrun completion zsh)", or a file _dsrun in $fpath
_dsrun() {
  local -a answer choices
  local line
  answer=("${(@f)$(${~words[1]} completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  for line in "${(@)answer[2,-1]}"; do
    choices+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  (( $#choices )) && _describe dsrun choices
  case $answer[1] in
    files) _files ;;
    folders) _files -/ ;;
    program) _files; [[ $PREFIX == */* ]] || _command_names -e ;;
  esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _dsrun "$@"; else compdef _dsrun dsrun; fi
)zsh";

constexpr std::string_view kFish =
    R"fish(# fish completion for dsrun: dsrun completion fish | source
function __dsrun_complete
  set -l words (commandline -opc)
  set -l word (commandline -ct)
  set -l answer ($words[1] completion words $words[2..-1] $word 2>/dev/null)
  string join \n -- $answer[2..-1]
  switch "$answer[1]"
    case files
      __fish_complete_path $word
    case folders
      __fish_complete_directories $word
    case program
      __fish_complete_path $word
      string match -q '*/*' -- $word; or __fish_complete_command
  end
end
complete -c dsrun -f -a '(__dsrun_complete)'
)fish";

std::string_view NameOf(Completion::More more) {
  switch (more) {
    case Completion::More::kNothing:
      return "nothing";
    case Completion::More::kFiles:
      return "files";
    case Completion::More::kFolders:
      return "folders";
    case Completion::More::kProgram:
      return "program";
  }
  return "";
}

void PrintWords(const std::vector<std::string>& words) {
  const Completion completion = CompleteWords(words);
  std::cout << NameOf(completion.more) << "\n";
  for (const auto& [word, meaning] : completion.words) std::cout << word << "\t" << meaning << "\n";
  std::cout << std::flush;
}

}  // namespace

// `dsrun completion bash|zsh|fish` prints a script for a shell. For each completion the script runs
// `dsrun completion words WORD...`. The output is the kind of candidates that the shell adds by
// itself (nothing, files, folders or program), then one line per word with its meaning after a tab.
StatusOr<int> CompletionCommand(const Invocation& invocation) {
  if (!invocation.arguments.empty() && invocation.arguments[0] == "words") {
    PrintWords({invocation.arguments.begin() + 1, invocation.arguments.end()});
    return kExitOk;
  }
  std::string shell;
  FlagParser parser("completion bash|zsh|fish",
                    "Print the script that completes dsrun's commands and flags in a shell: eval "
                    "\"$(dsrun completion bash)\" in ~/.bashrc; the same with zsh; in fish, dsrun "
                    "completion fish | source.");
  parser.app().add_option("SHELL", shell, "bash, zsh or fish");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  const std::string known[] = {"bash", "zsh", "fish"};
  if (shell.empty()) {
    return InvalidArgumentError("completion: no SHELL given; write bash, zsh or fish");
  }
  const std::string_view scripts[] = {kBash, kZsh, kFish};
  for (std::size_t i = 0; i < std::size(known); ++i) {
    if (shell != known[i]) continue;
    std::cout << scripts[i] << std::flush;
    return kExitOk;
  }
  return InvalidArgumentError("completion: no script for '" + shell +
                              "', only for bash, zsh and fish" + DidYouMean(shell, known));
}

}  // namespace ds::cli
