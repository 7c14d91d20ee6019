#pragma once

// The checks of `dsrun report`: one pure function per row, from facts to a level.
//
//   ok    nothing to do
//   warn  jobs run; something is slow, small or missing
//   fail  a job would not start, or would stop

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/host_facts.h"

namespace ds::cli {

enum class Level { kOk, kWarn, kFail };

std::string_view LevelName(Level level);  // "ok", "warn", "fail"

struct ReportRow {
  std::string name;
  std::string value;
  Level level = Level::kOk;
  std::string hint;  // the suggested action; empty when ok
};

// Rows in software_rows.cc. `dsrun_version` is the version of the calling program.
ReportRow JudgeDsrun(std::string_view dsrun_version);
ReportRow JudgeDsrank(const DsrankFacts& facts, std::string_view dsrun_version);
ReportRow JudgeLibTorch(const DsrankFacts& facts);
ReportRow JudgeKernel(const HostFacts& facts);
ReportRow JudgeCompiler(const DsrankFacts& facts);

// Rows in machine_rows.cc.
ReportRow JudgeProcessor(const ProcessorFacts& facts);
ReportRow JudgeFeatures(const ProcessorFacts& facts);
ReportRow JudgeAmx(const HostFacts& facts);
ReportRow JudgeCores(const ProcessorFacts& facts);
ReportRow JudgeNuma(const ProcessorFacts& facts);
ReportRow JudgeMemory(const MemoryFacts& facts);
ReportRow JudgeSharedMemory(const HostFacts& facts);
ReportRow JudgeLockedMemory(const HostFacts& facts);
ReportRow JudgeOpenFiles(const LimitFacts& facts);
ReportRow JudgeDisk(const std::optional<SpaceFacts>& facts);
ReportRow JudgeOffload(const OffloadFacts& facts);

// Rows in device_rows.cc.
ReportRow JudgeGpus(const HostFacts& facts);
ReportRow JudgeDriver(const HostFacts& facts);
ReportRow JudgeCuda(const HostFacts& facts);
ReportRow JudgeNccl(const HostFacts& facts);
ReportRow JudgeNetwork(const HostFacts& facts);

// Evaluates all rows, in the order of the table.
std::vector<ReportRow> JudgeHost(const HostFacts& facts, std::string_view dsrun_version);

// Returns the worst level of all rows.
Level FindWorstLevel(const std::vector<ReportRow>& rows);

// Output of `dsrun report`, for people and for programs. Pure.

// Formats one row per line, at most 80 columns wide; longer texts are wrapped. Hints follow their
// row. The last line is a summary.
std::string FormatReportTable(std::string_view host, const std::vector<ReportRow>& rows);

// {"host","level","rows":[{"name","value","level","hint"}]}
nlohmann::ordered_json FormatReportJson(std::string_view host, const std::vector<ReportRow>& rows);

// Splits `text` at blanks into lines of at most `width` characters; longer words are split.
std::vector<std::string> Wrap(std::string_view text, std::size_t width);

}  // namespace ds::cli
