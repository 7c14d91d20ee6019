#pragma once

// RunPasses: two micro-batches, an update and another forward pass of the tiny model through
// ShardedModel, without an engine: for tests of what is present when, and what goes beside it.

#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/zero/sharded_model.h"
#include "tests/ranks/tiny_model.h"

namespace ds::tests {

struct PassResult {
  std::vector<at::Tensor> gradients;  // this rank's shards of two micro-batches' sum
  std::vector<at::Tensor> weights;    // its shards of the weights behind their update
  // These count shards of parameters beside those that stay where they rest: the most at once, and
  // behind that.
  std::int64_t most_fetched_bytes = 0, fetched_bytes = 0;
  int gathers_in_forward = 0;  // of the second micro-batch
  int gathers = 0;             // in that micro-batch
  int gathers_of_update = 0;   // while it is published
  int reductions = 0;          // in that micro-batch
  float loss = 0.0F;           // of the updated weights, as they are wherever they are whole
};

struct Passes {
  int stage = 3;
  zero::ResidencyBudgets budgets = {};
  bool offloads_to_host = false;  // of a device whose copies come as late as they may
  Precision precision = Precision::kFp32;
  optim::ParameterGrouper groups = optim::OneGroup;
  bool overlap = false;
  // The micro-batches that are said to be the last of the step.
  std::vector<int> last = {};
  TinyShape shape = {};
  std::vector<std::string>* log = nullptr;  // of the second micro-batch: begins, waits, blocks
  bool plus_plus = false;                   // all of ZeRO++, second shards among two ranks
  bool table_reads_backward = true;         // as any block, if it does not say something else
  std::optional<std::int64_t> publish_elements = {};
  bool updates = false;  // the second micro-batch's backward pass, and has no gradients then
};

PassResult RunPasses(comm::Communicator& host, const Passes& passes);
void ExpectSameBits(const PassResult& a, const PassResult& b);

}  // namespace ds::tests
