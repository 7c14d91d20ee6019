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

struct Row {
  std::string name;
  std::string value;
  Level level = Level::kOk;
  std::string hint;  // the suggested action; empty when ok
};

// Rows in software_rows.cc. `dsrun_version` is the version of the calling program.
Row JudgeDsrun(std::string_view dsrun_version);
Row JudgeDsrank(const DsrankFacts& facts, std::string_view dsrun_version);
Row JudgeLibTorch(const DsrankFacts& facts);
Row JudgeKernel(const HostFacts& facts);
Row JudgeCompiler(const DsrankFacts& facts);

// Rows in machine_rows.cc.
Row JudgeProcessor(const ProcessorFacts& facts);
Row JudgeFeatures(const ProcessorFacts& facts);
Row JudgeAmx(const HostFacts& facts);
Row JudgeCores(const ProcessorFacts& facts);
Row JudgeNuma(const ProcessorFacts& facts);
Row JudgeMemory(const MemoryFacts& facts);
Row JudgeSharedMemory(const HostFacts& facts);
Row JudgeLockedMemory(const HostFacts& facts);
Row JudgeOpenFiles(const LimitFacts& facts);
Row JudgeDisk(const std::optional<SpaceFacts>& facts);
Row JudgeOffload(const OffloadFacts& facts);

// Rows in device_rows.cc.
Row JudgeGpus(const HostFacts& facts);
Row JudgeDriver(const HostFacts& facts);
Row JudgeCuda(const HostFacts& facts);
Row JudgeNccl(const HostFacts& facts);
Row JudgeNetwork(const HostFacts& facts);

// Evaluates all rows, in the order of the table.
std::vector<Row> JudgeHost(const HostFacts& facts, std::string_view dsrun_version);

// Returns the worst level of all rows.
Level FindWorstLevel(const std::vector<Row>& rows);

// Output of `dsrun report`, for people and for programs. Pure.

// Formats one row per line, at most 80 columns wide; longer texts are wrapped. Hints follow their
// row. The last line is a summary.
std::string FormatReportTable(std::string_view host, const std::vector<Row>& rows);

// {"host","level","rows":[{"name","value","level","hint"}]}
nlohmann::ordered_json FormatReportJson(std::string_view host, const std::vector<Row>& rows);

// Splits `text` at blanks into lines of at most `width` characters; longer words are split.
std::vector<std::string> Wrap(std::string_view text, std::size_t width);

}  // namespace ds::cli
