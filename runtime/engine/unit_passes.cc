#include "runtime/engine/unit_passes.h"

#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/engine/engine_components.h"
#include "runtime/engine/executor.h"
#include "runtime/zero/backward_entry.h"

namespace ds::engine {
namespace {

// Returns whether the parameter still is a view of the engine's buffer, or waits for its values.
bool HasItsMemory(const zero::FlatParameters& parameters, int i) {
  const at::Tensor& tensor = parameters.parameter(i).tensor;
  const zero::FlatRange& range = parameters.layout().parameter(i);
  if (tensor.storage_offset() != range.start || tensor.numel() != range.count ||
      !tensor.is_contiguous()) {
    return false;
  }
  if (zero::IsReleased(tensor)) return true;
  // is_alias_of would read the buffer, which may be released.
  const at::Tensor& full = parameters.full();
  return full.defined() && tensor.scalar_type() == full.scalar_type() &&
         tensor.storage().unsafeGetStorageImpl() == full.storage().unsafeGetStorageImpl();
}

Status CheckMemoryOf(const zero::Unit& unit) {
  for (const auto& bucket : unit.buckets()) {
    const zero::FlatParameters& parameters = bucket->parameters();
    for (int i = 0; i < parameters.layout().size(); ++i) {
      if (HasItsMemory(parameters, i)) continue;
      return FailedPreconditionError(
          "parameter " + parameters.parameter(i).name +
          " has been given other memory than the engine's, as by p.data = x: its values would be "
          "neither trained nor saved. Write them in place, within GatheredParameters(p, "
          "modifier_rank=0): p.data.copy_(x). Change shapes and dtypes before the engine is made");
    }
  }
  return OkStatus();
}

bool IsLoss(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() == 1 && tensor.requires_grad();
}

// Returns the value of the first loss among the outputs of a model; NaN if there is none.
at::Tensor FindLoss(const std::vector<at::Tensor>& outputs) {
  const auto found = std::find_if(outputs.begin(), outputs.end(), IsLoss);
  if (found != outputs.end()) return found->detach();
  return at::full({}, std::numeric_limits<double>::quiet_NaN());
}

// Returns whether the running pass computes the gradients of all leaves, as loss.backward() does;
// autograd::grad lists the nodes to execute.
bool IsForAllLeaves() {
  const auto* some_nodes = torch::autograd::get_current_graph_task_exec_info();
  return some_nodes != nullptr && some_nodes->empty();
}

}  // namespace

UnitPasses::UnitPasses(Engine& engine) : engine_(*engine.components_) {
  engine_.step.micro_batch_end = MicroBatchEnd::kStep;
  trained_.resize(engine_.model.sharded->units().size());
  std::iota(trained_.begin(), trained_.end(), 0);
  evaluated_ = trained_;
}

void UnitPasses::BeginForward(const MicroBatchFacts& facts) {
  const bool trains = c10::GradMode::is_enabled();
  if (!in_chunk_) {
    Executor executor(engine_);
    if (trains) engine_.reporter.phases.EndMicroBatch();
    executor.BeginForwardPass();
    facts_ = facts;
  }
  engine_.model.sharded->BeginForward(trains ? trained_ : evaluated_);
}

void UnitPasses::Enter(int unit) { engine_.model.sharded->Enter(unit); }

void UnitPasses::ReadsAlso(int unit, int other) { engine_.model.sharded->AddReads(unit, other); }

std::vector<at::Tensor> UnitPasses::Leave(int unit, std::vector<at::Tensor> outputs) {
  // The parameters may lose that memory now.
  const Status status =
      CheckMemoryOf(*engine_.model.sharded->units().at(static_cast<std::size_t>(unit)));
  TORCH_CHECK(status.ok(), status.message());
  return engine_.model.sharded->LeaveForward(unit, std::move(outputs));
}

std::vector<at::Tensor> UnitPasses::EndForward(std::vector<at::Tensor> outputs) {
  zero::ShardedModel& sharded = *engine_.model.sharded;
  const bool trains = c10::GradMode::is_enabled();
  (trains ? trained_ : evaluated_) = sharded.visits();
  sharded.EndForward();
  if (in_chunk_) return outputs;
  Executor executor(engine_);
  executor.EndForwardPass();
  if (!trains) return outputs;
  executor.CountSamples(facts_.samples, facts_.labels);  // not those of a pass that has thrown
  const at::Tensor loss = FindLoss(outputs);
  return zero::MarkBackwardEntry(std::move(outputs), [self = std::weak_ptr(self_), loss] {
    const std::shared_ptr<UnitPasses*> passes = self.lock();
    TORCH_CHECK(passes != nullptr,
                "a backward pass goes through a model whose engine has been destroyed: keep the "
                "engine until the pass has ended");
    (*passes)->OnBackwardFromOutputs(loss);
  });
}

void UnitPasses::RunChunk(const std::function<void()>& run) {
  in_chunk_ = true;
  const auto leave = c10::make_scope_exit([this] { in_chunk_ = false; });
  run();
}

Status UnitPasses::SetBuffers(const std::vector<ModuleBuffers::Named>& buffers) {
  DS_ASSIGN_OR_RETURN(engine_.model.buffers,
                      ModuleBuffers::Take(buffers, engine_.model.sharded->context().device));
  return OkStatus();
}

std::vector<std::string> UnitPasses::ListSharded() const {
  std::vector<std::string> names;
  for (const auto& unit : engine_.model.sharded->units()) {
    for (const auto& bucket : unit->buckets()) {
      if (!bucket->context().sharding.parameters) continue;
      for (int i = 0; i < bucket->parameters().layout().size(); ++i) {
        names.push_back(bucket->parameters().parameter(i).name);
      }
    }
  }
  return names;
}

Status UnitPasses::CheckMemory() const {
  for (const auto& unit : engine_.model.sharded->units()) {
    DS_RETURN_IF_ERROR(CheckMemoryOf(*unit));
  }
  return OkStatus();
}

void UnitPasses::OnBackwardFromOutputs(const at::Tensor& loss) {
  // In a pass of the engine, or one through several forward passes, it has begun.
  if (engine_.model.sharded->accepts_gradients() || !IsForAllLeaves()) return;
  Executor(engine_).BeginUserBackward(loss);
  torch::autograd::Engine::get_default_engine().queue_callback([self = std::weak_ptr(self_)] {
    const std::shared_ptr<UnitPasses*> passes = self.lock();
    if (passes != nullptr) Executor((*passes)->engine_).EndUserBackward();
  });
}

}  // namespace ds::engine
