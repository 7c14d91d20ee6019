#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>

#include "cli/commands/command_table.h"
#include "cli/commands/translate_file.h"
#include "cli/flags/flag_parser.h"
#include "cli/translate/sources.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/printable.h"
#include "runtime/base/shell_quote.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TranslateFlags {
  std::optional<std::int64_t> steps;
  std::string out;
  bool partial = false;
  bool json = false;
  std::vector<std::string> rest;  // FILE, or a deepspeed command line
  bool help_shown = false;
};

StatusOr<TranslateFlags> ParseWords(const std::vector<std::string>& words) {
  TranslateFlags flags;
  FlagParser parser("translate [flags] FILE | deepspeed ...",
                    "Convert arguments of transformers' Trainer (.json), a config of Accelerate "
                    "(.yaml, .json) or a command line of deepspeed to dsrun: the command line, the "
                    "ds_config, and the settings without an equivalent.");
  CLI::App& app = parser.app();
  app.add_option(FlagNames("steps"), flags.steps,
                 "total number of optimizer steps, for learning rates that fall until the end; "
                 "overrides max_steps")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("out"), flags.out,
                 "write the ds_config to FILE (default: print it, under the name ds_config.json)")
      ->type_name("FILE");
  app.add_flag(FlagNames("partial"), flags.partial,
               "exit status 0 even if a setting that changes training has no equivalent");
  app.add_flag("--json", flags.json, "print one JSON object: command, ds_config, remarks");
  DS_ASSIGN_OR_RETURN(FlagParser::Result parsed,
                      parser.Parse(words, FlagParser::RemainingWords::kProgram));
  flags.help_shown = parsed.help_shown;
  flags.rest = std::move(parsed.rest);
  if (!flags.rest.empty() && flags.rest[0] == "--") flags.rest.erase(flags.rest.begin());
  return flags;
}

bool IsDeepspeed(const std::vector<std::string>& words) {
  return !words.empty() && (words[0] == "deepspeed" || words[0] == "ds");
}

// Flags may precede and follow FILE; everything after "deepspeed" is its command line.
StatusOr<TranslateFlags> ParseFlags(const std::vector<std::string>& words) {
  DS_ASSIGN_OR_RETURN(TranslateFlags flags, ParseWords(words));
  if (flags.rest.size() < 2 || IsDeepspeed(flags.rest)) return flags;
  const auto after = words.end() - static_cast<std::ptrdiff_t>(flags.rest.size());
  std::vector<std::string> turned = words;
  std::rotate(turned.end() - (words.end() - after), turned.end() - (words.end() - after) + 1,
              turned.end());
  return ParseWords(turned);
}

const char* NameOf(Mapping mapping) {
  switch (mapping) {
    case Mapping::kExact:
      return "maps";
    case Mapping::kNearly:
      return "nearly";
    case Mapping::kLeftOut:
      return "left out";
    case Mapping::kMissing:
      return "missing";
  }
  return "";
}

// Ignored arguments without a remark share one line.
void PrintRemarks(const Translation& translation) {
  std::string left_out;
  for (const Remark& remark : translation.remarks) {
    if (remark.mapping == Mapping::kLeftOut && remark.text.empty()) {
      left_out += (left_out.empty() ? "left out  " : ", ") + remark.name;
      continue;
    }
    std::string line = NameOf(remark.mapping);
    line += std::string(10 - line.size(), ' ') + remark.name;
    if (!remark.value.empty()) line += " " + remark.value;
    if (!remark.text.empty()) line += ": " + remark.text;
    std::cerr << Printable(line) << "\n";
  }
  if (!left_out.empty()) std::cerr << Printable(left_out) << "\n";
  std::cerr << std::flush;
}

void PrintJson(const Translation& translation, const std::vector<std::string>& words) {
  Json remarks = Json::array();
  for (const Remark& remark : translation.remarks) {
    remarks.push_back({{"mapping", NameOf(remark.mapping)},
                       {"name", remark.name},
                       {"value", remark.value},
                       {"text", remark.text}});
  }
  const Json all = {{"command", words}, {"ds_config", translation.ds_config}, {"remarks", remarks}};
  std::cout << all.dump(2, ' ', false, Json::error_handler_t::replace) << std::endl;
}

StatusOr<Translation> Translate(const TranslateFlags& flags) {
  if (flags.rest.empty()) {
    return InvalidArgumentError("translate: no FILE given; see dsrun translate --help");
  }
  if (IsDeepspeed(flags.rest)) {
    return TranslateDeepspeedWords({flags.rest.begin() + 1, flags.rest.end()});
  }
  if (flags.rest.size() == 1) return TranslateFile(flags.rest[0], flags.steps);
  // FILE is the last word, because ParseFlags has rotated the words.
  return InvalidArgumentError("unexpected argument '" + flags.rest[0] + "'");
}

// Prints the translation; writes its config to --out, or prints it.
Status PrintTranslation(const TranslateFlags& flags, const Translation& translation) {
  const bool has_config = !translation.ds_config.empty();
  if (!has_config && !flags.out.empty()) {
    return InvalidArgumentError(
        "--out " + flags.out +
        ": no ds_config results that could be written there; leave --out out");
  }
  const std::string config = translation.ds_config.dump(2) + "\n";
  const std::string name = flags.out.empty() ? "ds_config.json" : flags.out;
  if (has_config && !flags.out.empty()) {
    const Status written = WriteFileAtomically(flags.out, config);
    if (!written.ok()) return written.WithContext("--out");
  }
  const std::vector<std::string> words = CommandWords(translation, has_config ? name : "");
  if (flags.json) {
    PrintJson(translation, words);
    return OkStatus();
  }
  PrintRemarks(translation);
  std::cout << ShellLine(words) << "\n";
  if (has_config && flags.out.empty()) std::cout << config;
  std::cout << std::flush;
  return OkStatus();
}

}  // namespace

StatusOr<int> TranslateCommand(const Invocation& invocation) {
  DS_ASSIGN_OR_RETURN(const TranslateFlags flags, ParseFlags(invocation.arguments));
  if (flags.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(const Translation translation, Translate(flags));
  DS_RETURN_IF_ERROR(PrintTranslation(flags, translation));
  if (translation.is_complete() || flags.partial) return kExitOk;
  std::cerr << "dsrun: the arguments marked missing change the training; --partial accepts that"
            << std::endl;
  return kExitUsage;
}

}  // namespace ds::cli
