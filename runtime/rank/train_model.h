#pragma once

// TrainModel: the model of a training job: its blocks, its trained parameters, and the source of
// their first values. ModelExport: writes the trained model.

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
  // These models define names and shapes; they get no memory unless they are `blocks`. `alike` has
  // all stages' blocks and all ranks' experts, adapted, quantised and frozen like `blocks`. `full`
  // has all blocks with the unquantised weights that a folder stores.
  std::shared_ptr<BlockList> alike, full;
  std::optional<models::LoraSpec> lora;            // with its targets filled in
  std::unique_ptr<models::WeightReader> weights;   // null: values are drawn
  std::unique_ptr<models::AdapterReader> adapter;  // null: new adapters
  std::unique_ptr<models::DerivedValues>
      derived;                      // null: all values are read from a folder or drawn
  std::vector<std::string> unused;  // tensors of the folder that belong to no block

  // Returns a reader of first values; empty if all values are drawn. This object must outlive it.
  engine::ValueReader MakeReader(std::uint64_t seed) const;
};

// Returns the grouper that assigns parameters their own rate or decay, for a model of `blocks`
// blocks.
optim::ParameterGrouper MakeGrouper(const config::TrainJob& job, int blocks);

// Opens the model's folder and builds the blocks. Rejects a folder that does not match the model,
// and parameters that cannot be frozen or adapted. `part` is passed to BuildModel.
StatusOr<TrainModel> OpenTrainModel(const config::TrainJob& job, const models::ModelConfig& config,
                                    const at::TensorOptions& options,
                                    const models::ModelRanks& ranks,
                                    const std::optional<models::StageBlocks>& part = {});

// Describes the tensors of the folder that the model does not use. Requires at least one.
std::string DescribeUnused(const TrainModel& model, const models::ModelConfig& config);

// ModelExport: writes the folder of --save_hf. If the model has adapters, writes only the adapters,
// unless they are merged.
class ModelExport {
 public:
  // All three objects must outlive this object.
  ModelExport(const config::TrainJob& job, const models::ModelConfig& config,
              const TrainModel& model)
      : job_(job), config_(config), model_(model) {}

  // Checks that the folder can be written, and leaves the folder in place. All ranks return the
  // same status.
  Status Try(comm::Communicator& world) const;
  // Writes the folder; rank 0 writes the files. Collective: all ranks call it.
  Status Write(Engine& engine) const;

 private:
  Status WriteAdapters(Engine& engine) const;
  Status WriteFullModel(Engine& engine) const;
  bool writes_adapters() const { return model_.lora.has_value() && !job_.lora_merge; }
  StatusOr<std::unique_ptr<models::AdapterWriter>> CreateAdapterWriter(
      comm::Communicator& world) const;
  StatusOr<std::unique_ptr<models::ModelWriter>> CreateModelWriter(comm::Communicator& world) const;

  const config::TrainJob& job_;
  const models::ModelConfig& config_;
  const TrainModel& model_;
};

}  // namespace ds::rank
