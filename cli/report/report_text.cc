#include "cli/report/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/report/compare_hosts.h"
#include "runtime/base/counted.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWidth = 80;
constexpr std::size_t kTextColumn = 18;  // "warn  GPU driver  "

std::string_view LevelName(v1::Finding::Level level) {
  switch (level) {
    case v1::Finding::WARN:
      return "warn";
    case v1::Finding::FAIL:
      return "fail";
    default:
      return "ok";
  }
}

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// Makes a text of a host safe for one line.
std::string MakeLine(std::string_view text) {
  std::string line = Printable(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

// Splits `text` at blanks into lines of at most `width` bytes; longer words are split.
std::vector<std::string> Wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    std::size_t end = text.rfind(' ', width);
    if (end == std::string_view::npos || end == 0) {
      end = width;
      while (end > 1 && IsContinuation(text[end])) --end;
    }
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ')));
  }
  if (!text.empty() || lines.empty()) lines.emplace_back(text);
  return lines;
}

// Formats `text` after `head`; further lines are indented by its width.
std::string FormatCell(std::string head, std::string_view text) {
  const std::size_t column = head.size();
  std::string cell;
  for (const std::string& line : Wrap(MakeLine(text), kWidth - column)) {
    cell += head + line + "\n";
    head = std::string(column, ' ');
  }
  return cell;
}

std::string FormatHint(const std::string& hint) {
  if (hint.empty()) return "";
  return FormatCell(std::string(kTextColumn, ' ') + "> ", hint);
}

// Returns the name of a fact in tables, which have little space. JSON has the full one.
std::string_view ShortName(std::string_view name) {
  return name == "working_directory" ? "workdir" : name;
}

std::string FormatFinding(const v1::Finding& finding, const std::string& text) {
  return FormatCell(
             fmt::format("{:<5} {:<11} ", LevelName(finding.level()), ShortName(finding.name())),
             text) +
         FormatHint(finding.hint());
}

std::string WithoutDigits(std::string text) {
  std::erase_if(text, [](char each) { return each >= '0' && each <= '9'; });
  return text;
}

// A finding that hosts share. Their messages may differ in numbers.
struct SharedFinding {
  v1::Finding finding;  // of the first host
  std::vector<std::string> hosts;
  bool same = true;  // all have the same message

  // Two findings of one host differ if their messages do, even in numbers alone.
  bool Fits(const std::string& host, const v1::Finding& other) const {
    return finding.name() == other.name() && finding.hint() == other.hint() &&
           (finding.message() == other.message() ||
            (hosts.back() != host &&
             WithoutDigits(finding.message()) == WithoutDigits(other.message())));
  }
};

std::vector<SharedFinding> GroupFindings(const std::vector<HostReport>& hosts,
                                         v1::Finding::Level level) {
  std::vector<SharedFinding> groups;
  for (const HostReport& host : hosts) {
    for (const v1::Finding& finding : host.findings) {
      if (finding.level() != level) continue;
      const auto group = std::find_if(groups.begin(), groups.end(), [&](const SharedFinding& each) {
        return each.Fits(host.host, finding);
      });
      if (group == groups.end()) {
        groups.push_back({.finding = finding, .hosts = {host.host}});
        continue;
      }
      if (group->hosts.back() != host.host) group->hosts.push_back(host.host);
      group->same = group->same && group->finding.message() == finding.message();
    }
  }
  return groups;
}

std::string FormatShared(const std::vector<SharedFinding>& groups) {
  std::string table;
  for (const SharedFinding& group : groups) {
    const std::string first = group.same ? "" : group.hosts.front() + ": ";
    table += FormatFinding(group.finding,
                           FormatHostList(group.hosts) + ": " + first + group.finding.message());
  }
  return table;
}

std::string FormatDifferences(const std::vector<FactDifference>& differences) {
  constexpr std::size_t kColumn = 14;
  std::string table;
  for (const FactDifference& difference : differences) {
    std::string head = fmt::format("  {:<11} ", ShortName(difference.name));
    for (const FactDifference::Group& group : difference.groups) {
      table += FormatCell(std::exchange(head, std::string(kColumn, ' ')),
                          group.value + ": " + FormatHostList(group.hosts));
    }
  }
  return table;
}

std::string FormatFailed(const std::vector<FailedHost>& failed) {
  std::string table;
  for (const FailedHost& each : failed) {
    table += FormatCell(fmt::format("fail  {:<11} ", FailureName(each.failure.kind)),
                        each.host + ": " + each.failure.message) +
             FormatHint(each.failure.hint);
  }
  return table;
}

std::string SumUp(std::ptrdiff_t fails, std::ptrdiff_t warnings) {
  if (fails > 0) return fmt::format("{} would stop a job, {} to look at\n", fails, warnings);
  if (warnings > 0) return fmt::format("ready; {} to look at\n", warnings);
  return "ready\n";
}

// JSON has no bytes that are not UTF-8.
std::string MakeText(std::string_view bytes) { return Printable(bytes); }

}  // namespace

v1::Finding::Level FindWorstLevel(const std::vector<v1::Finding>& findings) {
  v1::Finding::Level worst = v1::Finding::OK;
  for (const v1::Finding& finding : findings) worst = std::max(worst, finding.level());
  return worst;
}

v1::Finding::Level FindWorstLevel(const std::vector<HostReport>& hosts,
                                  const std::vector<FailedHost>& failed) {
  v1::Finding::Level worst = failed.empty() ? v1::Finding::OK : v1::Finding::FAIL;
  for (const HostReport& host : hosts) worst = std::max(worst, FindWorstLevel(host.findings));
  return worst;
}

std::string FormatReportTable(const HostReport& host) {
  std::string table = fmt::format("report of host {}\n\n", MakeLine(host.host));
  for (const v1::Finding& finding : host.findings) {
    table += FormatFinding(finding, finding.message());
  }
  const auto count = [&](v1::Finding::Level level) {
    return std::count_if(host.findings.begin(), host.findings.end(),
                         [&](const v1::Finding& each) { return each.level() == level; });
  };
  return table + "\n" + SumUp(count(v1::Finding::FAIL), count(v1::Finding::WARN));
}

Json FormatReportJson(const HostReport& host) {
  Json rows = Json::array();
  for (const v1::Finding& finding : host.findings) {
    rows.push_back({{"name", MakeText(finding.name())},
                    {"value", MakeText(finding.message())},
                    {"level", LevelName(finding.level())},
                    {"hint", MakeText(finding.hint())}});
  }
  return {{"host", MakeText(host.host)},
          {"level", LevelName(FindWorstLevel(host.findings))},
          {"rows", rows}};
}

std::string FormatHostsTable(const std::vector<HostReport>& hosts,
                             const std::vector<FailedHost>& failed) {
  const std::size_t count = hosts.size() + failed.size();
  std::string table = fmt::format("report of {}\n", Counted(count, "host"));
  if (hosts.size() > 1) {
    const std::string differences = FormatDifferences(CompareHosts(hosts));
    table += differences.empty() ? "\nnothing differs\n" : "\nwhat differs\n" + differences;
  }
  const auto fails = GroupFindings(hosts, v1::Finding::FAIL);
  const auto warnings = GroupFindings(hosts, v1::Finding::WARN);
  if (!fails.empty()) table += "\nwhat would stop a job\n" + FormatShared(fails);
  if (!warnings.empty()) table += "\nwhat to look at\n" + FormatShared(warnings);
  if (!failed.empty()) table += "\nhosts that cannot be used\n" + FormatFailed(failed);
  return table + "\n" + SumUp(std::ssize(fails) + std::ssize(failed), std::ssize(warnings));
}

Json FormatHostsJson(const std::vector<HostReport>& hosts, const std::vector<FailedHost>& failed) {
  Json differences = Json::array();
  for (const FactDifference& difference : CompareHosts(hosts)) {
    Json values = Json::array();
    for (const FactDifference::Group& group : difference.groups) {
      Json names = Json::array();
      for (const std::string& host : group.hosts) names.push_back(MakeText(host));
      values.push_back({{"value", MakeText(group.value)}, {"hosts", std::move(names)}});
    }
    differences.push_back({{"name", difference.name}, {"values", std::move(values)}});
  }
  Json reports = Json::array();
  for (const HostReport& host : hosts) reports.push_back(FormatReportJson(host));
  Json absent = Json::array();
  for (const FailedHost& each : failed) {
    absent.push_back({{"host", MakeText(each.host)},
                      {"kind", FailureName(each.failure.kind)},
                      {"message", MakeText(each.failure.message)},
                      {"hint", MakeText(each.failure.hint)}});
  }
  return {{"level", LevelName(FindWorstLevel(hosts, failed))},
          {"differences", std::move(differences)},
          {"hosts", std::move(reports)},
          {"failed", std::move(absent)}};
}

}  // namespace ds::cli
