#include "cli/commands/command_flags.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "cli/job/final_status.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {
namespace {

constexpr ExitStatusRow Own(ExitStatus status, std::string_view meaning) {
  return {status, status == kExitOk ? status : kDistinctBase + status, meaning};
}

constexpr ExitStatusRow kRows[] = {
    Own(kExitOk, "every rank succeeded"),
    Own(kExitFailure, "dsrun itself failed"),
    Own(kExitUsage, "command line, hostfile, config, model or data; nothing was started"),
    Own(kExitPreflight, "a host rejected the job, or lacks memory for it, before any rank started"),
    Own(kExitHostLost, "a host or its daemon stopped answering"),
    Own(kExitStall, "a rank was stopped while the others waited for it"),
    Own(kExitCheckpoint, "the requested or required checkpoint is not usable"),
    {ExitStatusOfSignal(SIGINT), kDistinctUserStop,
     "the user stopped the job: Ctrl-C; 143 for SIGTERM"},
};

// Escapes text for literal display in troff.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else if ((c == '.' || c == '\'') && (escaped.empty() || escaped.back() == '\n')) {
      escaped += std::string("\\&") + c;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string Bold(std::string_view text) { return "\\fB" + Escaped(text) + "\\fR"; }

std::string Paragraph(const std::string& head, std::string_view text) {
  return ".TP\n" + head + "\n" + Escaped(text) + "\n";
}

std::string FlagParagraph(const FlagDescription& flag) {
  std::string head;
  for (const std::string& name : flag.names) head += (head.empty() ? "" : ", ") + Bold(name);
  if (!flag.value.empty()) head += " \\fI" + Escaped(flag.value) + "\\fR";
  return Paragraph(head, flag.help);
}

// Returns the flags, with a heading where the next group begins. The first group has none.
std::string FlagParagraphs(const std::vector<FlagDescription>& flags, std::string group) {
  std::string all;
  for (const FlagDescription& flag : flags) {
    if (flag.group != group) all += ".PP\n\\fI" + Escaped(flag.group) + "\\fR\n";
    group = flag.group;
    all += FlagParagraph(flag);
  }
  return all;
}

std::string CommandList() {
  std::string list;
  for (const Command& command : Commands()) {
    list += Paragraph(Bold(std::string(command.name)) + " " + Escaped(command.arguments),
                      command.summary);
  }
  return list;
}

// Returns the flags of every command except launch flags.
std::string CommandFlags(const FlagDescriptions& launch) {
  std::set<std::string> known;
  for (const FlagDescription& flag : launch.flags) known.insert(flag.names.front());
  std::string all;
  for (const Command& command : Commands()) {
    if (command.name == "help" || command.name == "version") continue;
    const FlagDescriptions described = DescribeCommand(command);
    all += ".SS " + std::string(command.name) + "\n" + Bold("dsrun " + described.usage) +
           "\n.PP\n" + Escaped(described.description) + "\n";
    std::vector<FlagDescription> own;
    std::copy_if(described.flags.begin(), described.flags.end(), std::back_inserter(own),
                 [&](const FlagDescription& flag) {
                   const std::string& name = flag.names.front();
                   return name != "--help" && !known.contains(name);
                 });
    all += FlagParagraphs(own, described.flags.front().group);
  }
  return all;
}

std::string ExitStatuses() {
  std::string text =
      "If a rank fails, the job ends with the rank\\(aqs own status, or 128 + N when signal N "
      "killed "
      "it. Otherwise, followed by the status with \\fB\\-\\-exit_codes distinct\\fR:\n";
  for (const ExitStatusRow& row : ExitStatusTable()) {
    std::string head = Bold(std::to_string(row.status));
    if (row.distinct_status != row.status) head += ", " + std::to_string(row.distinct_status);
    text += Paragraph(head, row.meaning);
  }
  return text +
         ".PP\nWith \\fB\\-\\-exit_codes distinct\\fR a program\\(aqs own status of 240 to 247 "
         "becomes 240.\n";
}

}  // namespace

std::string ManualPage() {
  const FlagDescriptions launch = DescribeLaunchFlags();
  std::string page =
      std::string(".TH DSRUN 1 \"\" \"dsrun ") + DS_VERSION +
      "\" \"User Commands\"\n.SH NAME\ndsrun \\- start and train on many ranks, on "
      "one host or many\n.SH SYNOPSIS\n.B dsrun\n[launch flags] COMMAND|PROGRAM "
      "[arguments]\n.SH DESCRIPTION\nEverything after COMMAND or PROGRAM is passed to "
      "it. A program that has a command\\(aqs name is started with \\fBdsrun run "
      "\\-\\- PROGRAM\\fR.\n";
  page += ".SH COMMANDS\n" + CommandList();
  page += ".SH LAUNCH FLAGS\nEach may be written with \\(aq\\-\\(aq for \\(aq_\\(aq.\n";
  page += FlagParagraphs(launch.flags, launch.flags.front().group);
  page += ".SH FLAGS OF COMMANDS\n" + CommandFlags(launch);
  page += ".SH EXIT STATUS\n" + ExitStatuses();
  page +=
      ".SH FILES\n.TP\n.I runs/JOB\nthe files of a job: logs, events, metrics, checkpoints, "
      "verdict.json\n.TP\n.I ~/.deepspeed_env\nvariables for every rank\n";
  return page;
}

std::span<const ExitStatusRow> ExitStatusTable() { return kRows; }

}  // namespace ds::cli
