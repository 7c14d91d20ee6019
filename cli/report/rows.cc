#include "cli/report/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/printable.h"

namespace ds::cli {

std::string_view LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarn:
      return "warn";
    case Level::kFail:
      return "fail";
  }
  return "";
}

std::vector<ReportRow> JudgeHost(const HostFacts& facts, std::string_view dsrun_version) {
  return {JudgeDsrun(dsrun_version),
          JudgeDsrank(facts.dsrank, dsrun_version),
          JudgeLibTorch(facts.dsrank),
          JudgeCompiler(facts.dsrank),
          JudgeKernel(facts),
          JudgeProcessor(facts.processor),
          JudgeFeatures(facts.processor),
          JudgeAmx(facts),
          JudgeCores(facts.processor),
          JudgeNuma(facts.processor),
          JudgeMemory(facts.memory),
          JudgeSharedMemory(facts),
          JudgeLockedMemory(facts),
          JudgeOpenFiles(facts.limits),
          JudgeDisk(facts.run_directory),
          JudgeOffload(facts.offload),
          JudgeGpus(facts),
          JudgeDriver(facts),
          JudgeCuda(facts),
          JudgeNccl(facts),
          JudgeNetwork(facts)};
}

Level FindWorstLevel(const std::vector<ReportRow>& rows) {
  Level worst = Level::kOk;
  for (const ReportRow& row : rows) worst = std::max(worst, row.level);
  return worst;
}

namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kTextColumn = 18;  // "warn  GPU driver  "

std::string SumUp(const std::vector<ReportRow>& rows) {
  const auto count = [&](Level level) {
    return std::count_if(rows.begin(), rows.end(),
                         [&](const ReportRow& r) { return r.level == level; });
  };
  if (count(Level::kFail) > 0) {
    return fmt::format("{} would stop a job, {} to look at\n", count(Level::kFail),
                       count(Level::kWarn));
  }
  if (count(Level::kWarn) > 0) return fmt::format("ready; {} to look at\n", count(Level::kWarn));
  return "ready\n";
}

}  // namespace

std::vector<std::string> Wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    std::size_t end = text.rfind(' ', width);
    if (end == std::string_view::npos || end == 0) end = width;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ')));
  }
  if (!text.empty() || lines.empty()) lines.emplace_back(text);
  return lines;
}

std::string FormatReportTable(std::string_view host, const std::vector<ReportRow>& rows) {
  std::string table = fmt::format("report of host {}\n\n", Printable(host));
  for (const ReportRow& row : rows) {
    std::string head = fmt::format("{:<5} {:<11} ", LevelName(row.level), row.name);
    for (const std::string& line : Wrap(Printable(row.value), kWidth - kTextColumn)) {
      table += fmt::format("{}{}\n", head, line);
      head = std::string(kTextColumn, ' ');
    }
    if (row.hint.empty()) continue;
    std::string mark = "> ";
    for (const std::string& line : Wrap(Printable(row.hint), kWidth - kTextColumn - mark.size())) {
      table += fmt::format("{:{}}{}{}\n", "", kTextColumn, mark, line);
      mark = "  ";
    }
  }
  return table + "\n" + SumUp(rows);
}

nlohmann::ordered_json FormatReportJson(std::string_view host, const std::vector<ReportRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ReportRow& row : rows) {
    list.push_back({{"name", row.name},
                    {"value", row.value},
                    {"level", LevelName(row.level)},
                    {"hint", row.hint}});
  }
  return {{"host", host}, {"level", LevelName(FindWorstLevel(rows))}, {"rows", list}};
}

}  // namespace ds::cli
