#include "cli/translate/sources.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <string_view>

#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

struct DeepspeedFlag {
  std::string_view name;
  char letter = 0;
  bool takes_value = true;
};

constexpr DeepspeedFlag kFlags[] = {
    {"hostfile", 'H'},
    {"include", 'i'},
    {"exclude", 'e'},
    {"num_nodes"},
    {"num_gpus"},
    {"num_accelerators"},
    {"min_elastic_nodes"},
    {"max_elastic_nodes"},
    {"master_port"},
    {"master_addr"},
    {"node_rank"},
    {"launcher"},
    {"launcher_args"},
    {"module", 0, false},
    {"no_python", 0, false},
    {"no_local_rank", 0, false},
    {"no_ssh", 0, false},
    {"no_ssh_check", 0, false},
    {"force_multi", 0, false},
    {"save_pid", 0, false},
    {"enable_each_rank_log"},
    {"autotuning"},
    {"elastic_training", 0, false},
    {"bind_cores_to_rank", 0, false},
    {"bind_core_list"},
    {"ssh_port"},
    {"venv_script"},
    {"log_level"},
    {"quiet", 'q', false},
};

// Flags that do not affect training results.
constexpr std::string_view kAsideFromTraining[] = {
    "save_pid", "enable_each_rank_log", "launcher",  "launcher_args",
    "no_ssh",   "force_multi",          "log_level", "venv_script"};

const DeepspeedFlag* FindFlag(const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  for (const DeepspeedFlag& flag : kFlags) {
    const bool is_letter = flag.letter != 0 && word.size() >= 2 && word[1] == flag.letter;
    if (word[1] == '-' ? name.substr(2) == flag.name : is_letter) return &flag;
  }
  return nullptr;
}

Status NoSuchFlag(const std::string& word) {
  std::vector<std::string> known;
  for (const DeepspeedFlag& flag : kFlags) known.push_back("--" + std::string(flag.name));
  const std::string name = word.substr(0, word.find('='));
  return InvalidArgumentError("deepspeed has no flag " + name + DidYouMean(name, known));
}

// Returns the reason why dsrun does not accept these words; "" if it does.
std::string Objection(const std::vector<std::string>& words) {
  LaunchFlags flags;
  FlagParser parser("", "");
  AddLaunchFlags(&parser, &flags);
  const auto parsed = parser.Parse(words, FlagParser::RemainingWords::kRefused);
  return parsed.ok() ? "" : parsed.status().message();
}

void TranslateFlag(const DeepspeedFlag& flag, const std::vector<std::string>& words,
                   Translation* translation) {
  const std::string name = "--" + std::string(flag.name);
  const std::string value = words.size() > 1 ? words[1] : "";
  if (flag.name == "launcher" && value == "pdsh") {
    return translation->Add(Mapping::kLeftOut, name, value, "");
  }
  const std::string objection = Objection(words);
  if (objection.empty()) {
    translation->launch.insert(translation->launch.end(), words.begin(), words.end());
    return translation->Add(Mapping::kExact, name, value, words[0]);
  }
  const bool is_aside = std::find(std::begin(kAsideFromTraining), std::end(kAsideFromTraining),
                                  flag.name) != std::end(kAsideFromTraining);
  translation->Add(is_aside ? Mapping::kLeftOut : Mapping::kMissing, name, value, objection);
}

}  // namespace

StatusOr<Translation> TranslateDeepspeedWords(const std::vector<std::string>& words) {
  Translation translation;
  bool adds_local_rank = true;
  std::size_t at = 0;
  for (; at < words.size() && IsFlag(words[at]); ++at) {
    const DeepspeedFlag* const flag = FindFlag(words[at]);
    if (flag == nullptr) return NoSuchFlag(words[at]);
    std::vector<std::string> given = {words[at]};
    const bool has_value =
        words[at].find('=') != std::string::npos || (words[at][1] != '-' && words[at].size() > 2);
    if (flag->takes_value && !has_value) {
      if (++at == words.size()) return InvalidArgumentError(given[0] + " has no value");
      given.push_back(words[at]);
    }
    if (flag->name == "no_local_rank" || flag->name == "no_python") adds_local_rank = false;
    TranslateFlag(*flag, given, &translation);
  }
  if (at == words.size()) return InvalidArgumentError("the deepspeed command line has no script");
  // deepspeed appends --local_rank to the script's arguments by default.
  if (adds_local_rank) {
    translation.launch.push_back("--pass_local_rank");
    translation.Add(Mapping::kExact, "deepspeed", "",
                    "--pass_local_rank, as deepspeed adds --local_rank");
  }
  translation.program.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  return translation;
}

}  // namespace ds::cli
