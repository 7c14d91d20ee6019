#pragma once

// TrainModel: the model of a training job: its blocks, what of them is trained, and where their
// first values come from. ModelExport: where they are written.

#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/config/train_job.h"
#include "runtime/engine/engine.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lora.h"
#include "runtime/models/weights/adapter_folder.h"
#include "runtime/models/weights/derived_values.h"
#include "runtime/models/weights/model_config.h"
#include "runtime/models/weights/weights.h"

namespace ds::rank {

struct TrainModel {
  std::shared_ptr<BlockList> blocks;  // of this rank's stage
  // These two get no memory where they are not `blocks`; names and shapes are known by them. The
  // first has all stages' blocks and all ranks' experts, adapted, quantised and frozen as `blocks`
  // are; the second, all blocks with the weights that a folder has.
  std::shared_ptr<BlockList> alike, whole;
  std::optional<models::LoraSpec> lora;            // its targets filled in
  std::unique_ptr<models::WeightReader> weights;   // null: values are drawn
  std::unique_ptr<models::AdapterReader> adapter;  // null: adapters start anew
  std::unique_ptr<models::DerivedValues>
      derived;                      // null: all values are those of a folder, or drawn
  std::vector<std::string> unused;  // tensors of the folder that no block has

  // Gives first values as long as this lives; empty where all are drawn.
  engine::ValueReader MakeReader(std::uint64_t seed) const;
};

// Says which parameters have a rate or decay of their own, of a model of so many blocks.
optim::ParameterGrouper MakeGrouper(const config::TrainJob& job, int blocks);

// Refuses a folder that does not suit the model, and what cannot be frozen or adapted.
// `part`: of BuildModel.
StatusOr<TrainModel> OpenTrainModel(const config::TrainJob& job, const models::ModelConfig& config,
                                    const at::TensorOptions& options,
                                    const models::ModelRanks& ranks,
                                    const std::optional<models::StagePart>& part = {});

// Says how many tensors of the folder the model does not use. Requires one.
std::string DescribeUnused(const TrainModel& model, const models::ModelConfig& config);

// Writes --save_hf's folder: of a model that has adapters only them, unless they are to be merged.
class ModelExport {
 public:
  // Borrows all three.
  ModelExport(const config::TrainJob& job, const models::ModelConfig& config,
              const TrainModel& model)
      : job_(job), config_(config), model_(model) {}

  // Tells whether the folder can be written; leaves it. All ranks return the same status.
  Status Try(comm::Communicator& world) const;
  // Collective; rank 0 writes.
  Status Write(Engine& engine) const;

 private:
  Status WriteAdapters(Engine& engine) const;
  Status WriteWhole(Engine& engine) const;
  bool writes_adapters() const { return model_.lora.has_value() && !job_.lora_merge; }
  StatusOr<std::unique_ptr<models::AdapterWriter>> CreateAdapterWriter(
      comm::Communicator& world) const;
  StatusOr<std::unique_ptr<models::ModelWriter>> CreateModelWriter(comm::Communicator& world) const;

  const config::TrainJob& job_;
  const models::ModelConfig& config_;
  const TrainModel& model_;
};

}  // namespace ds::rank
