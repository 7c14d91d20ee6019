#include "tests/numerics/golden_run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <mutex>

#include "runtime/base/files.h"
#include "runtime/base/isa_probe.h"
#include "runtime/config/file/check_config.h"
#include "runtime/data/loader.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lora.h"
#include "runtime/models/weights/adapter_folder.h"
#include "runtime/models/weights/derived_values.h"
#include "runtime/models/weights/weights.h"
#include "tests/places.h"
#include "tests/support/rank_harness.h"

namespace ds::numerics {
namespace {

std::filesystem::path GoldenFolder() {
  return std::filesystem::path(DS_SOURCE_DIR) / "tests/numerics/goldens";
}

config::DsConfig ConfigOf(const GoldenRun& run) {
  auto json = nlohmann::json::parse(ReadFile(GoldenFolder() / "ds_config.json").value());
  json["train_batch_size"] = run.global_batch;
  json["gradient_accumulation_steps"] = run.accumulation;
  json["zero_optimization"]["stage"] = run.stage;
  json["bf16"]["enabled"] = run.bf16;
  json["tensor_parallel"]["autotp_size"] = run.tensor;
  json["pipeline"]["stages"] = run.pipeline;
  if (!run.clips) json["gradient_clipping"] = 0.0;
  const auto checked = config::CheckConfig(json.dump(), "ds_config.json", run.world_size);
  DS_CHECK_MSG(checked.ok, checked.errors.empty() ? "" : checked.errors[0].message);
  return checked.config;
}

data::Loader MakeLoader(const nlohmann::json& golden, const config::DsConfig& config,
                        const topology::Member& reader) {
  auto source = data::TokenSource::Open({(GoldenFolder() / "tokens.bin").string()},
                                        data::TokenWidth::kUint16);
  auto loader = data::Loader::Create(std::move(source).value(),
                                     {.micro_batch = config.batch.train_micro_batch_size_per_gpu,
                                      .seq_len = golden["seq_len"],
                                      .vocab_size = 320,
                                      .reader = {.index = reader.index, .count = reader.count},
                                      .order = {.shuffle = false}});
  return std::move(*std::move(loader).value());
}

GoldenRunResult TrainRank(const GoldenRun& run, comm::Communicator& world) {
  const auto golden =
      nlohmann::json::parse(ReadFile(GoldenFolder() / (run.family + ".json")).value());
  const config::DsConfig config = ConfigOf(run);
  const auto described = models::ReadModelConfig((GoldenFolder() / run.family).string()).value();
  const auto mesh = engine::MakeMesh({}, config, world.size()).value();
  const auto model = models::BuildModel(
      described, run.bf16 ? at::kBFloat16 : at::kFloat, engine::FindModelRanks(mesh, world),
      engine::FindStageBlocks(mesh, world.rank(), described.decoder, config).value());
  const auto weights = models::WeightReader::Open(described.folder).value();
  std::unique_ptr<models::AdapterReader> adapter;
  if (!run.adapter.empty()) {
    const auto folder = GoldenFolder() / "lora" / run.adapter;
    models::LoraSpec lora = models::ReadLoraSpec(folder).value();
    DS_CHECK(models::AddLora(*model, &lora).ok());
    adapter = models::AdapterReader::Open(folder).value();
    DS_CHECK(adapter->Check(*model, lora.copies).ok());
  }
  if (!run.quantized.empty()) {
    models::QuantizeBase(*model, models::ParseBaseFormat(run.quantized).value());
  }
  models::DerivedValues derived(*model);
  const engine::ValueReader read_base = [&](const std::string& name, std::int64_t first,
                                            const at::Tensor& values) {
    return weights->Read(name, first, values);
  };
  const engine::ValueReader read = [&](const std::string& name, std::int64_t first,
                                       const at::Tensor& values) {
    if (adapter != nullptr && adapter->Has(name)) return adapter->Read(name, first, values);
    if (!models::DerivedValues::Has(name)) return read_base(name, first, values);
    return derived.Read(name, first, values, read_base);
  };
  auto engine = Engine::create(model, config, {.world = &world, .read_values = read}).value();
  data::Loader loader =
      MakeLoader(golden, config, mesh.MemberOf(world.rank(), topology::kDataAxes));
  GoldenRunResult result;
  while (engine->finished_steps() < run.steps) {
    const auto next = [&]() -> StatusOr<Bundle> {
      DS_ASSIGN_OR_RETURN(data::TokenBatch batch, loader.Next());
      return Bundle{.batch = {{"tokens", batch.inputs}, {"labels", batch.labels}}};
    };
    result.steps.push_back(engine::TrainStep(*engine, next).value());
  }
  const Status exported =
      engine->ExportParameters([&](const std::string& name, const at::Tensor& value) {
        if (models::IsQuantizedParameter(name)) {
          result.parameters[models::DerivedValues::NameWeight(name)] = derived.Restore(name, value);
        } else {
          result.parameters[name] = value.clone();
        }
        return OkStatus();
      });
  DS_CHECK_MSG(exported.ok(), exported.message());
  return result;
}

}  // namespace

GoldenRunResult Train(const GoldenRun& run) {
  // Before the process's first bf16 product.
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  std::vector<GoldenRunResult> ranks(static_cast<std::size_t>(run.world_size));
  testing::RunRanks(run.world_size, [&](comm::Communicator& world) {
    ranks[static_cast<std::size_t>(world.rank())] = TrainRank(run, world);
  });
  for (const GoldenRunResult& rank : ranks) {
    for (std::size_t i = 0; i < rank.steps.size(); ++i) {
      EXPECT_EQ(rank.steps[i].loss, ranks[0].steps[i].loss);
      EXPECT_EQ(rank.steps[i].grad_norm, ranks[0].steps[i].grad_norm);
    }
  }
  return std::move(ranks[0]);
}

nlohmann::json GoldenOf(const std::string& family, std::int64_t global_batch) {
  const auto golden = nlohmann::json::parse(ReadFile(GoldenFolder() / (family + ".json")).value());
  for (const auto& run : golden["runs"]) {
    if (run["global_batch"] == global_batch) return run;
  }
  DS_CHECK_MSG(false, "no golden run of this global batch");
  return {};
}

}  // namespace ds::numerics
