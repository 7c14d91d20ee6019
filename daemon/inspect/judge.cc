#include "daemon/inspect/judge.h"

#include <initializer_list>
#include <utility>

namespace ds::daemon {

v1::Finding MakeFinding(v1::Finding::Level level, std::string name, std::string message,
                        std::string hint) {
  v1::Finding finding;
  finding.set_level(level);
  finding.set_name(std::move(name));
  finding.set_message(std::move(message));
  finding.set_hint(std::move(hint));
  return finding;
}

v1::Finding Ok(std::string name, std::string message) {
  return MakeFinding(v1::Finding::OK, std::move(name), std::move(message));
}

v1::Finding Warn(std::string name, std::string message, std::string hint) {
  return MakeFinding(v1::Finding::WARN, std::move(name), std::move(message), std::move(hint));
}

v1::Finding Fail(std::string name, std::string message, std::string hint) {
  return MakeFinding(v1::Finding::FAIL, std::move(name), std::move(message), std::move(hint));
}

v1::Finding JudgeUnanswered(std::string message, std::string hint) {
  return Fail("no answer", std::move(message), std::move(hint));
}

std::vector<v1::Finding> JudgeHost(const v1::HostFacts& facts, std::uint32_t ranks) {
  std::vector<v1::Finding> findings;
  const auto add = [&](std::initializer_list<v1::Finding> some) {
    findings.insert(findings.end(), some.begin(), some.end());
  };
  for (const v1::UnansweredPart& part : facts.unanswered()) {
    add({JudgeUnanswered(part.message(), part.hint())});
  }
  add({JudgeDsrun(facts)});
  if (facts.has_dsrank()) {
    add({JudgeDsrank(facts.dsrank(), facts.dsrun_version()), JudgeLibTorch(facts.dsrank()),
         JudgeCompiler(facts.dsrank())});
  }
  if (facts.has_python()) add({JudgePython(facts.python())});
  if (facts.has_processor()) {
    add({JudgeKernel(facts), JudgeProcessor(facts.processor()), JudgeFeatures(facts.processor()),
         JudgeAmx(facts), JudgeCores(facts.processor()), JudgeNuma(facts.processor())});
  }
  if (facts.has_memory()) add({JudgeMemory(facts.memory())});
  if (facts.has_shared_memory()) add({JudgeSharedMemory(facts)});
  if (facts.has_limits()) {
    add({JudgeLockedMemory(facts), JudgeOpenFiles(facts.limits(), ranks)});
  }
  if (facts.has_run_directory()) add({JudgeDisk(facts.run_directory())});
  if (facts.has_working_directory()) add({JudgeWorkingDirectory(facts.working_directory())});
  if (facts.has_cache()) add({JudgeCache(facts.cache())});
  if (facts.has_offload()) add({JudgeOffload(facts.offload())});
  add({JudgeGpus(facts), JudgeDriver(facts), JudgeCuda(facts), JudgeNccl(facts)});
  if (!facts.gpus().empty() || !facts.gpu_problem().empty()) add({JudgeGpuUsers(facts)});
  if (facts.has_infiniband_devices()) add({JudgeNetwork(facts)});
  return findings;
}

}  // namespace ds::daemon
