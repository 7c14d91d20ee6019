#include "cli/report/rows.h"

#include <algorithm>

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

std::vector<Row> JudgeHost(const HostFacts& facts, std::string_view dsrun_version) {
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

Level FindWorstLevel(const std::vector<Row>& rows) {
  Level worst = Level::kOk;
  for (const Row& row : rows) worst = std::max(worst, row.level);
  return worst;
}

}  // namespace ds::cli
