#pragma once

// MakeMesh decides how the ranks of a training job are split along the axes of a mesh.
// FindModelRanks finds the ranks that share a model and samples with this rank. FindStageBlocks
// finds the part of a decoder that a rank builds.

#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/config/ds_config.h"
#include "runtime/models/block.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/plan/memory/stage_partition.h"
#include "runtime/plan/mesh/mesh.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::engine {

// Returns the degrees for a config: pipeline, sequence, tensor and expert as configured. Of the
// remaining ranks, those that ZeRO shards state among are along `shard`, the others along
// `replicate`. At stage 0, which shards nothing, all are along `replicate`, unless ranks have their
// own experts: then they are along `shard` at every stage.
topology::Degrees DegreesOf(const config::DsConfig& config, int world_size);

// Returns the mesh with the degrees `wanted`, or the config's. Fails if the degrees contradict the
// config or do not multiply to the number of ranks.
StatusOr<topology::Mesh> MakeMesh(const std::optional<topology::Degrees>& wanted,
                                  const config::DsConfig& config, int world_size);

// Returns the ranks for models::BuildModel. `world` connects the mesh's ranks and must outlive the
// model. `kind` applies to the ranks along the sequence axis; tensor_sums_overlap lets tensor
// ranks' sums overlap matrix products (tensor_parallel::TensorGroup). Attention processes
// `sp_chunk` tokens of a sample at a time (an FPDT chunk; 0: all), also on a single rank.
// Collective of the groups that it finds.
models::ModelRanks FindModelRanks(
    const topology::Mesh& mesh, comm::Communicator& world,
    sequence_parallel::SequenceKind kind = sequence_parallel::SequenceKind::kUlysses,
    bool tensor_sums_overlap = false, std::int64_t sp_chunk = 0);
// Returns the name of a group of ranks that depends on how the mesh divides experts. Engines of one
// world may divide them in different ways.
std::string NameExpertGroup(const std::string& purpose, const topology::Mesh& mesh);
// Returns the ranks that share a layer's experts, in the order of the experts.
comm::Communicator& FindExpertCommunicator(const topology::Mesh& mesh, comm::Communicator& world);
// Returns this rank's tensor ranks; null if the mesh has a single one.
comm::Communicator* FindTensorCommunicator(const topology::Mesh& mesh, comm::Communicator& world);

// Fails if tensor ranks compute with different numbers of threads. Sums may then differ in their
// last bits, and replicated parameters would drift apart. Collective of `world`.
Status CheckTensorRanksAreEqual(const topology::Mesh& mesh, comm::Communicator& world);

// Fails if the model is not this rank's pipeline stage. Not collective.
Status CheckPipelineSupport(const topology::Mesh& mesh, const BlockList& model, int rank);

// Returns the blocks of this rank's stage, for models::BuildModel; nullopt if the mesh has one
// stage. Fails if PartitionStages does.
StatusOr<std::optional<models::StageBlocks>> FindStageBlocks(const topology::Mesh& mesh, int rank,
                                                             const models::DecoderSpec& model,
                                                             const config::DsConfig& config,
                                                             const StageOrder& order = {});

// Fails if ranks have parts of parameters or of the layers; `what` names an operation that needs
// all. Ranks may have different experts.
Status CheckLayersAreUnsplit(const topology::Mesh& mesh, const std::string& what);

}  // namespace ds::engine
