#pragma once

// MakeMesh decides how the ranks of a training job are cut; FindModelRanks, with whom a rank has
// one model and the same samples.

#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/config/ds_config.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/plan/mesh/mesh.h"

namespace ds::engine {

// The degrees that a config asks for: pipeline, sequence, tensor and expert as it says; of the
// ranks that are left as many as ZeRO cuts the state among lie along `shard`, the others along
// `replicate`: at stage 0, which cuts nothing, all of them, unless ranks have experts of their own,
// who lie along `shard` at every stage.
topology::Degrees DegreesOf(const config::DsConfig& config, int world_size);

// The mesh of `wanted` degrees, or of the config's. Refuses degrees that the config contradicts, or
// that make another number of ranks.
StatusOr<topology::Mesh> MakeMesh(const std::optional<topology::Degrees>& wanted,
                                  const config::DsConfig& config, int world_size);

// For models::BuildModel. `world`, which outlives the model, connects the mesh's ranks; those along
// the sequence axis are of this kind, tensor ranks' sums go on under products or not
// (tensor_parallel::Group), and attention takes `portion` tokens of a sample at a time (0: all of
// them), of one rank, too. Collective of those that are found.
models::ModelRanks FindModelRanks(
    const topology::Mesh& mesh, comm::Communicator& world,
    sequence_parallel::SequenceKind kind = sequence_parallel::SequenceKind::kUlysses,
    bool tensor_sums_overlap = false, std::int64_t portion = 0);
// The ranks that have a layer's experts between them, in the order of the experts.
comm::Communicator& FindExpertCommunicator(const topology::Mesh& mesh, comm::Communicator& world);
// Its tensor ranks; null where the mesh has no more than one of them.
comm::Communicator* FindTensorCommunicator(const topology::Mesh& mesh, comm::Communicator& world);

// Refuses tensor ranks that compute with different numbers of threads, by which the bits of sums
// may differ: what all of them have would drift apart. Collective of `world`.
Status CheckTensorRanksAreAlike(const topology::Mesh& mesh, comm::Communicator& world);

// Refuses a model that is not the part of this rank's stage. Not collective.
Status CheckSuitsStages(const topology::Mesh& mesh, const BlockList& model, int rank);

// Refuses `what`, which knows whole models only, where ranks have parts of them.
Status CheckModelIsNotCut(const topology::Mesh& mesh, const std::string& what);

}  // namespace ds::engine
