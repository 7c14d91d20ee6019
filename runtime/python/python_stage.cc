#include "runtime/python/python_stage.h"

#include <ATen/ops/empty.h>

namespace ds::python {

Bundle PythonStage::RunChunk(engine::TrainedModel& /*model*/,
                             const engine::RankTopology& /*topology*/, Bundle bundle,
                             int /*chunk*/) {
  passes_.RunChunk([&] {
    auto [sent, loss] = run_(bundle.extras);
    bundle.extras = std::move(sent);
    bundle.loss = loss.value_or(at::Tensor());
  });
  return bundle;
}

engine::BatchSource MakeBatchSource(const ReadBatch& read) {
  return [&read]() -> StatusOr<Bundle> {
    const std::int64_t samples = read();
    return Bundle{.batch = {{"samples", at::empty({samples}, at::kByte)}}};
  };
}

}  // namespace ds::python
