#pragma once

// The judgement of `dsrun report`: one pure function per row, facts to verdict.
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
  std::string hint;  // what to do; empty when ok
};

// software_rows.cc. `dsrun_version` is the version of the program that asks.
Row JudgeDsrun(std::string_view dsrun_version);
Row JudgeDsrank(const DsrankFacts& facts, std::string_view dsrun_version);
Row JudgeLibTorch(const DsrankFacts& facts);
Row JudgeKernel(const HostFacts& facts);
Row JudgeCompiler(const DsrankFacts& facts);

// machine_rows.cc
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

// device_rows.cc
Row JudgeGpus(const HostFacts& facts);
Row JudgeDriver(const HostFacts& facts);
Row JudgeCuda(const HostFacts& facts);
Row JudgeNccl(const HostFacts& facts);
Row JudgeNetwork(const HostFacts& facts);

// Judges all of them, in the order of the table.
std::vector<Row> JudgeHost(const HostFacts& facts, std::string_view dsrun_version);

// The worst level of all rows.
Level FindWorstLevel(const std::vector<Row>& rows);

// `dsrun report` as people and programs read it. Pure.

// Prints one row a line, 80 columns at most, longer texts wrapped; hints stand below their row. The
// last line sums up.
std::string FormatReportTable(std::string_view host, const std::vector<Row>& rows);

// {"host","level","rows":[{"name","value","level","hint"}]}
nlohmann::ordered_json FormatReportJson(std::string_view host, const std::vector<Row>& rows);

// Lines of at most `width` characters, broken at blanks; a longer word is cut.
std::vector<std::string> Wrap(std::string_view text, std::size_t width);

}  // namespace ds::cli
