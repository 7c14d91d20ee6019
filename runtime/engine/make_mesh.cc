#include "runtime/engine/make_mesh.h"

#include <ATen/Parallel.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/agreement.h"
#include "runtime/comm/mesh_groups.h"
#include "runtime/plan/memory/engine_rules.h"

namespace ds::engine {

topology::Degrees DegreesOf(const config::DsConfig& config, int world_size) {
  const config::ParallelConfig& parallel = config.parallel;
  const config::ZeroConfig& zero = config.zero_optimization;
  topology::Degrees degrees{.pipeline = parallel.pipeline,
                            .sequence = parallel.sequence,
                            .tensor = parallel.tensor,
                            .expert = parallel.expert,
                            .data_before_expert = parallel.data_before_expert};
  const int data = static_cast<int>(world_size / parallel.ranks_of_a_sample());
  const int state = data * parallel.sequence;  // ranks that share a dense parameter
  // At stage 0, ranks along `shard` have their own experts, if there are any.
  const int replicas = parallel.expert > 1 ? data : 1;
  degrees.shard =
      zero.stage == 0 ? replicas : zero.mics_shard_size.value_or(state) / parallel.sequence;
  degrees.replicate = degrees.shard == 0 ? 0 : data / degrees.shard;
  return degrees;
}

StatusOr<topology::Mesh> MakeMesh(const std::optional<topology::Degrees>& wanted,
                                  const config::DsConfig& config, int world_size) {
  const config::ZeroConfig& zero = config.zero_optimization;
  const topology::Degrees degrees = wanted.value_or(DegreesOf(config, world_size));
  const int split = degrees.shard * degrees.sequence;
  if (zero.stage > 0 && zero.mics_shard_size && split != *zero.mics_shard_size) {
    return InvalidArgumentError("zero_optimization.mics_shard_size is " +
                                std::to_string(*zero.mics_shard_size) +
                                ", and the mesh's shard x sequence " + std::to_string(split));
  }
  const auto disagree = [](const std::string& key, int wanted, const std::string& axis, int got) {
    return InvalidArgumentError(key + " is " + std::to_string(wanted) + ", and the mesh's " + axis +
                                " " + std::to_string(got));
  };
  const config::ParallelConfig& parallel = config.parallel;
  if (degrees.pipeline != parallel.pipeline) {
    return disagree("pipeline.stages", parallel.pipeline, "pipeline", degrees.pipeline);
  }
  if (degrees.tensor != parallel.tensor) {
    return disagree("tensor_parallel.autotp_size", parallel.tensor, "tensor", degrees.tensor);
  }
  if (degrees.sequence != parallel.sequence) {
    return disagree("sequence_parallel_size", parallel.sequence, "sequence", degrees.sequence);
  }
  if (degrees.expert != parallel.expert) {
    return disagree("expert_parallel.autoep_size", parallel.expert, "expert", degrees.expert);
  }
  if (zero.stage == 0 && degrees.shard > 1 && degrees.expert == 1) {
    return InvalidArgumentError("ZeRO stage 0 shards nothing: the mesh's shard must be 1, not " +
                                std::to_string(degrees.shard) + "; replicate has the ranks");
  }
  return topology::Mesh::Create(degrees, world_size);
}

models::ModelRanks FindModelRanks(const topology::Mesh& mesh, comm::Communicator& world,
                                  sequence_parallel::SequenceKind kind, bool tensor_sums_overlap,
                                  std::int64_t sp_chunk) {
  models::ModelRanks ranks;
  if (auto* const tensor = FindTensorCommunicator(mesh, world); tensor != nullptr) {
    ranks.tensor = tensor_parallel::TensorGroup(*tensor, tensor_sums_overlap);
  }
  if (mesh.degrees().sequence > 1) {
    ranks.sequence = sequence_parallel::SequenceGroup(
        comm::GroupOver({topology::Axis::kSequence}, "model", mesh, world), kind);
  }
  ranks.sequence.SetChunk(sp_chunk);
  if (mesh.degrees().expert > 1) {
    ranks.experts = moe::ExpertGroup(FindExpertCommunicator(mesh, world));
  }
  return ranks;
}

std::string NameExpertGroup(const std::string& purpose, const topology::Mesh& mesh) {
  const topology::Degrees& degrees = mesh.degrees();
  std::string name = purpose + " of " + std::to_string(degrees.expert);
  if (degrees.data_before_expert) name += " far apart";
  for (const topology::Axis axis : degrees.order) {
    name += ", " + std::string(topology::NameOf(axis)) + " " + std::to_string(degrees.along(axis));
  }
  return name;
}

comm::Communicator& FindExpertCommunicator(const topology::Mesh& mesh, comm::Communicator& world) {
  const std::vector<int> members = mesh.ExpertGroupOf(world.rank());
  if (static_cast<int>(members.size()) == world.size()) return world;
  return world.Group(NameExpertGroup("experts", mesh), members);
}

comm::Communicator* FindTensorCommunicator(const topology::Mesh& mesh, comm::Communicator& world) {
  if (mesh.degrees().tensor == 1) return nullptr;
  return &comm::GroupOver({topology::Axis::kTensor}, "model", mesh, world);
}

Status CheckTensorRanksAreEqual(const topology::Mesh& mesh, comm::Communicator& world) {
  if (mesh.degrees().tensor == 1) return OkStatus();
  const auto threads = comm::GatherNumbers({static_cast<double>(at::get_num_threads())}, world);
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const auto first =
        static_cast<std::size_t>(mesh.GroupOf(rank, {topology::Axis::kTensor}).front());
    if (threads[static_cast<std::size_t>(rank)] == threads[first]) continue;
    return InvalidArgumentError("tensor ranks " + std::to_string(first) + " and " +
                                std::to_string(rank) +
                                " compute with different numbers of threads, and their replicated "
                                "values would drift apart: set OMP_NUM_THREADS equally for all");
  }
  return OkStatus();
}

Status CheckPipelineSupport(const topology::Mesh& mesh, const BlockList& model, int rank) {
  const int stages = mesh.degrees().pipeline;
  const models::StageBlocks part = model.part().value_or(models::StageBlocks());
  const int stage = mesh.MemberOf(rank, {topology::Axis::kPipeline}).index;
  if (part.stages != stages || part.stage != stage) {
    return InvalidArgumentError(
        "the model is stage " + std::to_string(part.stage) + " of " + std::to_string(part.stages) +
        ", and rank " + std::to_string(rank) + " is of stage " + std::to_string(stage) + " of " +
        std::to_string(stages) + ": build each stage's blocks alone (BlockList::SetPart)");
  }
  if (stages == 1) return OkStatus();
  int blocks = 0;
  for (const models::BlockRange& range : part.chunks) blocks += range.size();
  if (blocks == model.size()) return OkStatus();
  return InvalidArgumentError("the model has " + std::to_string(model.size()) +
                              " blocks, and the chunks of its part " + std::to_string(blocks) +
                              " (BlockList::SetPart)");
}

StatusOr<std::optional<models::StageBlocks>> FindStageBlocks(const topology::Mesh& mesh, int rank,
                                                             const models::DecoderSpec& model,
                                                             const config::DsConfig& config,
                                                             const StageOrder& order) {
  const int stages = mesh.degrees().pipeline;
  if (stages == 1) return std::optional<models::StageBlocks>();
  DS_ASSIGN_OR_RETURN(const std::vector<int> split, PartitionStages(model, config, order));
  const pipeline::VirtualStages virtual_stages{order.kind, stages, order.chunks};
  models::StageBlocks part{.stage = mesh.MemberOf(rank, {topology::Axis::kPipeline}).index,
                           .stages = stages,
                           .all = split.back()};
  for (int chunk = 0; chunk < order.chunks; ++chunk) {
    const auto index = static_cast<std::size_t>(virtual_stages.At({part.stage, chunk}));
    part.chunks.push_back({split[index], split[index + 1]});
  }
  return std::optional(std::move(part));
}

Status CheckLayersAreUnsplit(const topology::Mesh& mesh, const std::string& what) {
  const topology::Degrees& degrees = mesh.degrees();
  return CheckModelIsUnsplit(
      config::ParallelConfig{.pipeline = degrees.pipeline, .tensor = degrees.tensor}, what);
}

}  // namespace ds::engine
