// Twenty steps of the golden Llama on ranks that have it between them give the losses of two real
// programs that cut it likewise: PyTorch's tensor parallelism by DTensor, and DeepSpeed's
// PipelineModule (scripts/goldens/make_parallel_goldens.py).

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "tests/numerics/golden_run.h"
#include "tests/places.h"

namespace ds::numerics {
namespace {

nlohmann::json PeerGolden(const std::string& peer) {
  const auto path = std::filesystem::path(DS_SOURCE_DIR) / "tests/numerics/goldens/parallel.json";
  return nlohmann::json::parse(ReadFile(path).value())[peer];
}

void ExpectPeers(const GoldenRunResult& ours, const nlohmann::json& peer) {
  ASSERT_EQ(ours.steps.size(), peer["losses"].size());
  for (std::size_t i = 0; i < ours.steps.size(); ++i) {
    const double loss = peer["losses"][i];
    EXPECT_NEAR(ours.steps[i].loss, loss, 1e-5 * loss) << "step " << i + 1;
    if (!peer.contains("grad_norms")) continue;
    const double norm = peer["grad_norms"][i];
    EXPECT_NEAR(ours.steps[i].grad_norm, norm, 1e-4 * norm) << "step " << i + 1;
  }
}

TEST(ParallelPeers, TensorRanksMatchDTensor) {
  const nlohmann::json peer = PeerGolden("dtensor");
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", " + std::to_string(ranks) + " ranks");
      ExpectPeers(
          Train(GoldenRun{.family = "llama", .world_size = ranks, .tensor = 2, .stage = stage}),
          peer);
    }
  }
}

TEST(ParallelPeers, StagesMatchDeepSpeedsPipelineModule) {
  const nlohmann::json peer = PeerGolden("pipeline");
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    ExpectPeers(Train(GoldenRun{.family = "llama",
                                .world_size = 2,
                                .pipeline = 2,
                                .stage = stage,
                                .accumulation = peer["micro_batches"],
                                .clips = false}),
                peer);
  }
}

}  // namespace
}  // namespace ds::numerics
