#pragma once

// StageChannels: what the stages of a pipeline send each other: activations on the way forward,
// their gradients on the way back.
//
// From each stage to each of its neighbours lead two channels, one for either. A channel keeps the
// order; between two channels there is none, so that nobody waits for a message behind another's. A
// message of activations says what its tensors are, whose shapes may differ from micro-batch to
// micro-batch; gradients are of what the receiver has sent before.
//
// Tensor ranks of a stage hold the same: what is cut goes in parts, one from each of them to its
// peer, and those of the other stage gather what their peers have sent (DeepSpeed's
// PartitionedTensor). So a link between stages carries a tensor once, and all arrive at its bits.
//
// Channels are groups of two ranks, made when they are first used. On CPU ranks a sending end has a
// thread of its own. Threads: one thread at a time. Errors: those of the groups, c10::Error.

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/work.h"

namespace ds::engine {

using NamedTensors = std::map<std::string, at::Tensor>;

// ChannelCut says what ranks send parts of. It is the same on all ranks of all stages.
struct ChannelCut {
  comm::Communicator* tensor = nullptr;  // this stage's ranks that hold the same; null: none does
  bool activations = true, gradients = true;
};

class StageChannels {
 public:
  // `stages`: a rank of each stage, in their order, this one among them. It and the cut's ranks
  // outlive this.
  explicit StageChannels(comm::Communicator& stages, const ChannelCut& cut = {});

  // Sends do not wait for their receiver. The tensors stay as they are until AwaitSends. Tensor
  // ranks send and receive together.
  void SendActivations(int stage, const NamedTensors& tensors);
  // Those that were sent, on this rank's device: leaves, which take gradients if the sender's do.
  NamedTensors ReceiveActivations(int stage);

  // The same between two ranks alone, whole.
  void SendWhole(int stage, const NamedTensors& tensors);
  NamedTensors ReceiveWhole(int stage);

  // The gradients of what has been received and takes some; 0 where nothing has come of it.
  void SendGradients(int stage, const NamedTensors& received);
  // By name: of what has been sent and takes gradients.
  NamedTensors ReceiveGradients(int stage, const NamedTensors& sent);

  // Waits for the end of all that this stage has sent.
  void AwaitSends();

 private:
  comm::Communicator& ChannelBetween(int from, int to, const std::string& of);
  void Send(comm::Communicator& channel, const at::Tensor& tensor, const std::string& tag);
  // Without ranks to cut it among, all of it goes.
  void SendPart(comm::Communicator& channel, const at::Tensor& tensor, comm::Communicator* among,
                const std::string& tag);
  void SendMessage(int stage, const NamedTensors& tensors, comm::Communicator* among);
  NamedTensors ReceiveMessage(int stage, comm::Communicator* among);

  comm::Communicator& stages_;
  // Ranks among which either is cut; null: none.
  comm::Communicator* const activations_among_;
  comm::Communicator* const gradients_among_;
  std::deque<comm::Work> sends_;
};

}  // namespace ds::engine
