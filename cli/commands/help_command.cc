#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <sstream>

#include "cli/commands/command_flags.h"
#include "cli/commands/command_table.h"
#include "cli/commands/fit_page.h"
#include "cli/commands/foreign_commands.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/flags/wrap_text.h"
#include "cli/train/share_folder.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

// Returns the first line of a page without its mark: "data: files that train reads".
std::string SummaryOf(const std::string& page) {
  const std::string line = page.substr(0, page.find('\n'));
  const std::size_t colon = line.find(": ");
  return colon == std::string::npos ? "" : line.substr(colon + 2);
}

// Returns the page without comments, which are separate lines. They mark commands for a test.
std::string WithoutComments(const std::string& page) {
  std::istringstream lines(page);
  std::string text;
  bool after_comment = false;
  for (std::string line; std::getline(lines, line);) {
    const bool comment = line.starts_with("<!--");
    if (!comment && !(after_comment && line.empty())) text += line + "\n";
    after_comment = comment;
  }
  return text;
}

// Returns a row of a list; the lines of `text` begin in one column.
std::string FormatRow(const std::string& name, std::string_view text) {
  return WrapText(name + std::string(text), kHelpColumns, name.size()) + "\n";
}

// Returns the manual's pages with their summaries; empty if they are not installed.
std::string PageList() {
  const StatusOr<ShareFolder> share = ShareFolder::OfThisProgram();
  if (!share.ok()) return "";
  std::ostringstream text;
  for (const std::string& name : share->ManualPages()) {
    const StatusOr<std::string> page = ReadFile(share->manual_page(name));
    if (!page.ok()) continue;
    text << FormatRow(fmt::format("  {:<12}", name), SummaryOf(*page));
  }
  return text.str().empty() ? "" : "\nPages (dsrun help PAGE):\n" + text.str();
}

std::string Overview() {
  std::ostringstream text;
  text << "Start and train on many ranks, on one host or many.\n\nCommands:\n";
  for (const Command& command : Commands()) {
    text << FormatRow(fmt::format("  {:<12}", command.name), command.summary);
  }
  text << PageList();
  text << "\nEverything after COMMAND or PROGRAM is passed to it. A program that has a command's "
          "name is started with: dsrun [launch flags] run -- PROGRAM\n";
  text << "\nExit status: a failing rank's own, 128 + N when signal N killed it, or (with "
          "--exit_codes "
          "distinct):\n";
  for (const ExitStatusRow& row : ExitStatusTable()) {
    text << FormatRow(
        fmt::format("  {:<4}{:<6}", row.status, "(" + std::to_string(row.distinct_status) + ")"),
        row.meaning);
  }
  text << "A program's own 240 to 247 is 240 then.\n";
  return text.str();
}

void PrintOverview() {
  LaunchFlags flags;
  FlagParser parser("[launch flags] COMMAND|PROGRAM [arguments]", Overview());
  AddLaunchFlags(&parser, &flags);
  std::cout << parser.app().help() << std::flush;
}

StatusOr<int> PrintPage(const std::string& name) {
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  const std::vector<std::string> names = share.ManualPages();
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    DS_ASSIGN_OR_RETURN(const std::string page, ReadFile(share.manual_page(name)));
    std::cout << FitPage(WithoutComments(page), kHelpColumns) << std::flush;
    return kExitOk;
  }
  return InvalidArgumentError("no command or page '" + name + "'" + SuggestCommand(name, names));
}

}  // namespace

// `dsrun help [COMMAND|PAGE]` prints a page; --man instead prints the manual page.
StatusOr<int> HelpCommand(const Invocation& invocation) {
  if (invocation.arguments.empty() || invocation.arguments[0] == "help") {
    PrintOverview();
    return kExitOk;
  }
  const std::string& name = invocation.arguments[0];
  if (name == "--man") {
    std::cout << ManualPage() << std::flush;
    return kExitOk;
  }
  const Command* command = FindCommand(name);
  if (command != nullptr) return command->run(Invocation{.arguments = {"--help"}});
  StatusOr<int> printed = PrintPage(name);
  if (!printed.ok()) DS_RETURN_IF_ERROR(RefuseForeignCommand(name));
  return printed;
}

}  // namespace ds::cli
