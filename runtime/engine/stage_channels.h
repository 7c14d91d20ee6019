#pragma once

// StageChannels sends tensors between the stages of a pipeline: activations in forward passes,
// their gradients in backward passes.
//
// Two channels lead from each stage to each neighbour, one for activations and one for gradients. A
// channel preserves order; different channels are independent, so that no message waits for one of
// another channel. A message with activations describes its tensors; shapes may change from
// micro-batch to micro-batch. Gradients have the shapes of the activations that their receiver
// sent.
//
// Tensor ranks of a stage hold equal tensors. A partitioned message is sent in parts: each rank
// sends one part to its peer, and the ranks of the other stage gather the parts (DeepSpeed's
// PartitionedTensor). So a link between stages carries a tensor once, and all ranks receive the
// same bits.
//
// Channels are groups of two ranks, made on first use. On CPU ranks a sending end has its own
// thread. Not thread-safe. Errors: c10::Error, as in the groups.

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/work.h"

namespace ds::engine {

using NamedTensors = std::map<std::string, at::Tensor>;

// ChannelSharding selects the messages that are partitioned among tensor ranks. It is the same on
// all ranks of all stages.
struct ChannelSharding {
  comm::Communicator* tensor = nullptr;  // this stage's ranks with equal tensors; null: none
  bool activations = true, gradients = true;
};

class StageChannels {
 public:
  // `stages` has one rank of each stage, in stage order, including this rank. It and the ranks in
  // `sharding` must outlive this object.
  explicit StageChannels(comm::Communicator& stages, const ChannelSharding& sharding = {});

  // Does not wait for the receiver. Do not modify the tensors until AwaitSends. Tensor ranks send
  // and receive together.
  void SendActivations(int stage, const NamedTensors& tensors);
  // Returns the sent tensors on this rank's device, as leaves. They require gradients if the
  // sender's do.
  NamedTensors ReceiveActivations(int stage);

  // Send and receive between two ranks only, without partitioning.
  void SendFull(int stage, const NamedTensors& tensors);
  NamedTensors ReceiveFull(int stage);

  // Sends the gradients of the received tensors that require them; 0 if a tensor has none.
  void SendGradients(int stage, const NamedTensors& received);
  // Returns, by name, the gradients of the sent tensors that require them.
  NamedTensors ReceiveGradients(int stage, const NamedTensors& sent);

  // Waits for all sends of this stage.
  void AwaitSends();

 private:
  comm::Communicator& ChannelBetween(int from, int to, const std::string& of);
  void Send(comm::Communicator& channel, const at::Tensor& tensor, const std::string& tag);
  // Sends the full tensor if `among` is null.
  void SendPart(comm::Communicator& channel, const at::Tensor& tensor, comm::Communicator* among,
                const std::string& tag);
  void SendMessage(int stage, const NamedTensors& tensors, comm::Communicator* among);
  NamedTensors ReceiveMessage(int stage, comm::Communicator* among);

  comm::Communicator& stages_;
  // The ranks that messages are partitioned among; null: not partitioned.
  comm::Communicator* const activations_among_;
  comm::Communicator* const gradients_among_;
  std::deque<comm::Work> sends_;
};

}  // namespace ds::engine
