// The part of ShardedOptimizer that serves checkpoints and moves to the host.

#include "runtime/device/copy_streams.h"
#include "runtime/zero/optimizer/buckets.h"
#include "runtime/zero/optimizer/optimizer_shard.h"
#include "runtime/zero/optimizer/sharded_optimizer.h"
#include "runtime/zero/optimizer/zenflow.h"

namespace ds::zero {

void ShardedOptimizer::AddShards(std::vector<checkpoint::TensorShard>* shards) const {
  if (zenflow_) zenflow_->WriteBack();
  for (const auto& shard : shards_) shard->AddShards(shards);
  if (zenflow_) zenflow_->AddShards(shards);
  ForEachBucket(model_, [&](Bucket& bucket) {
    if (bucket.trainable()) return;
    const Context& context = bucket.context();
    FlatParameters& frozen = bucket.parameters();
    const FlatRange kept = frozen.kept_range();
    CheckpointedRange held{frozen.store(), kept, kept, "", context.sharding.parameters};
    if (frozen.keeps_quantized()) held.quantized_from = frozen.full().scalar_type();
    AddShardsOf(context, frozen, held, shards);
  });
}

std::string_view ShardedOptimizer::optimizer_name() const {
  if (zenflow_) return ZenFlow::kName;
  return model_.context().blockwise_state ? "Adam in 8 bits" : optimizer_->name();
}

nlohmann::json ShardedOptimizer::State() const {
  return zenflow_ ? zenflow_->State() : optimizer_->State();
}

Status ShardedOptimizer::CheckState(const nlohmann::json& state) const {
  return zenflow_ ? zenflow_->CheckState(state) : OkStatus();
}

void ShardedOptimizer::ExpectState(const nlohmann::json& state) {
  if (zenflow_) zenflow_->ExpectState(state);
}

void ShardedOptimizer::Settle() {
  if (!zenflow_) return;
  zenflow_->Settle();
  AwaitAndStow();
}

Status ShardedOptimizer::LoadState(const nlohmann::json& state) {
  optimizer_->StateWasLoaded();
  if (!zenflow_) DS_RETURN_IF_ERROR(optimizer_->LoadState(state, parameter_count_));
  PublishWeights();
  return OkStatus();
}

void ShardedOptimizer::MoveToHost(StateKind kind) {
  Settle();
  if (zenflow_) zenflow_->MoveToHost(kind);
  switch (kind) {
    case StateKind::kOptimStates:
      for (const auto& shard : shards_) shard->MoveStateToHost();
      break;
    case StateKind::kHpParams:
      for (const auto& shard : shards_) shard->MoveMastersToHost();
      break;
    case StateKind::kLpParams:
      model_.EvictAll();
      ForEachBucket(model_, [](Bucket& bucket) { bucket.parameters().MoveToHost(); });
      break;
    case StateKind::kLpGrads:
      break;
    case StateKind::kContiguousGradBuffer:
      model_.FreeBuffers();
      break;
  }
  // Tensors changed by the last update occupy the device until they are offloaded.
  if (model_.context().copies) model_.context().copies->FreeAll();
}

void ShardedOptimizer::MoveBack() {
  ForEachBucket(model_, [](Bucket& bucket) { bucket.parameters().MoveBack(); });
  for (const auto& shard : shards_) shard->MoveBack();
  if (zenflow_) zenflow_->MoveBack();
}

void ShardedOptimizer::PublishWeights() {
  model_.EvictAll();  // frozen values may have been written, too
  for (const auto& shard : shards_) shard->PublishWeights();
  if (zenflow_) zenflow_->WeightsWereWritten();
  ForEachBucket(model_, [](Bucket& bucket) {
    const bool was_cut = bucket.context().sharding.parameters;
    if (was_cut && !bucket.trainable()) bucket.parameters().Publish();
  });
  AwaitAndStow();
}

}  // namespace ds::zero
