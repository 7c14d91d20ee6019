#include "tests/unit/models/golden_folder.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>

#include "runtime/base/files.h"
#include "runtime/models/build_model.h"
#include "runtime/models/weights.h"

namespace ds::models {

nlohmann::json ReadGolden(const std::string& family) {
  return nlohmann::json::parse(ReadFile(GoldenFolder() / (family + ".json")).value());
}

Bundle GoldenBatch(const nlohmann::json& golden, std::int64_t samples) {
  std::string bytes = ReadFile(GoldenFolder() / "tokens.bin").value();
  const std::int64_t tokens = golden["seq_len"];
  const at::Tensor all =
      at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size()) / 2}, at::kShort)
          .to(at::kLong);
  std::vector<at::Tensor> inputs, labels;
  for (std::int64_t i = 0; i < samples; ++i) {
    inputs.push_back(all.narrow(0, i * tokens, tokens));
    labels.push_back(all.narrow(0, i * tokens + 1, tokens));
  }
  return {.batch = {{"tokens", at::stack(inputs)}, {"labels", at::stack(labels)}}};
}

void LoadWeights(const WeightReader& reader, Block& block) {
  AllocateParameters(block);
  for (const auto& item : block.named_parameters()) {
    const Status status = reader.Read(block.FullName(item.key()), 0, item.value());
    DS_CHECK_MSG(status.ok(), status.message());
  }
}

std::shared_ptr<BlockList> LoadGoldenModel(const std::string& family, at::ScalarType dtype) {
  const ModelConfig config = ReadModelConfig((GoldenFolder() / family).string()).value();
  std::shared_ptr<BlockList> model = BuildModel(config, dtype);
  const auto reader = WeightReader::Open(config.folder).value();
  for (const auto& block : model->blocks()) LoadWeights(*reader, *block);
  return model;
}

}  // namespace ds::models
