#pragma once

// UnitPasses tells an engine of the passes through a model that its caller runs: an engine created
// from a UnitList, such as the one of a Python module.
//
//   passes.BeginForward({.samples = 8});
//   for each unit that the model reaches:
//     passes.Enter(unit); outputs = ...; outputs = passes.Leave(unit, outputs);
//   outputs = passes.EndForward(outputs);
//   engine.backward(loss), or loss.backward(); engine.step();
//
// A pipeline stage, or a single one, trains full steps through a ChunkRunner (Executor):
//
//   Bundle RunChunk(...) { passes.RunChunk([&] { as above, without backward and step }); }
//
// A pass may reach units in any order and number, one within another, and again while a backward
// pass recomputes them. Each pass is planned as the last one went; a pass that takes another path
// is right, but gathers nothing ahead after that. Under c10::NoGradGuard a pass only evaluates.
// Each call of step() ends a micro-batch, which may have any number of backward passes.
//
// Collective: with sharded parameters, all ranks reach the same units in the same order; otherwise
// the collectives fail with an error that names both units. Threads: as Engine. If a function
// or the model throws, the next BeginForward starts anew.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/module_buffers.h"

namespace ds::engine {

struct MicroBatchFacts {
  std::int64_t samples = 0;
  std::int64_t labels = 0;  // 0: unknown
};

class UnitPasses {
 public:
  // `engine` must outlive this object.
  explicit UnitPasses(Engine& engine);

  void BeginForward(const MicroBatchFacts& facts);
  // Gathers the unit's parameters, and those of the units that it also reads, before they are used.
  void Enter(int unit);
  // Makes the unit read the parameters of `other`, too, from its next Enter on: for reads that are
  // found while the model runs. Enter the unit again before the read.
  void ReadsAlso(int unit, int other);
  // Ends the use of the unit's parameters. The caller must continue with the returned tensors in
  // place of `outputs`, all tensors that were computed with the parameters: the backward pass finds
  // the unit by them. Throws if a parameter of the unit fails CheckMemory.
  std::vector<at::Tensor> Leave(int unit, std::vector<at::Tensor> outputs);
  // Ends the pass. The caller must continue with the returned tensors in place of the model's
  // `outputs`. A loss.backward() from them on is then a backward pass of this engine, with the
  // gradients divided by gradient_accumulation_steps. The step's loss is the first scalar among
  // `outputs`, NaN if there is none. fp16 needs engine.backward, which scales the loss.
  std::vector<at::Tensor> EndForward(std::vector<at::Tensor> outputs);
  // Runs `run`, a forward pass that an executor has begun: within, BeginForward counts no
  // micro-batch, and EndForward returns its tensors as they are.
  void RunChunk(const std::function<void()>& run);

  // Takes the model's buffers, in place of the UnitList's, from a caller that has assigned or
  // registered others since. The ranks pass the same names.
  Status SetBuffers(const std::vector<ModuleBuffers::Named>& buffers);

  // Returns the names of the parameters that have no values between passes on this rank.
  std::vector<std::string> ListSharded() const;

  // Fails if the caller has given a parameter other memory than the engine's: the values there
  // would be neither trained nor saved. Local.
  Status CheckMemory() const;

 private:
  void OnBackwardFromOutputs(const at::Tensor& loss);

  EngineComponents& engine_;
  // The visits of the latest passes, with and without gradients: the two often differ.
  std::vector<int> trained_, evaluated_;
  MicroBatchFacts facts_;  // of the forward pass in progress
  bool in_chunk_ = false;
  // The marks of EndForward refer to it weakly.
  std::shared_ptr<UnitPasses*> self_ = std::make_shared<UnitPasses*>(this);
};

}  // namespace ds::engine

namespace ds {
using engine::UnitPasses;
}  // namespace ds
