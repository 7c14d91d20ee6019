#include "runtime/engine/stage_channels.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

namespace ds::engine {
namespace {

constexpr char kActivations[] = "activations", kGradients[] = "gradients";

// The size of the header before a message of activations: its tensors' names, types and shapes.
constexpr std::int64_t kHeaderBytes = 4096;

at::Tensor MakeHeader(const NamedTensors& tensors) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [name, tensor] : tensors) {
    rows.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.requires_grad(),
                    tensor.sizes().vec()});
  }
  const std::string text = rows.dump();
  TORCH_CHECK(static_cast<std::int64_t>(text.size()) < kHeaderBytes, "the output of a stage, ",
              tensors.size(), " tensors, needs a longer header");
  const at::Tensor header = at::zeros({kHeaderBytes}, at::kByte);
  std::memcpy(header.mutable_data_ptr(), text.data(), text.size());
  return header;
}

// Makes uninitialized tensors as the header describes.
NamedTensors MakeDescribed(const at::Tensor& header, c10::Device device) {
  const auto* const text = static_cast<const char*>(header.const_data_ptr());
  NamedTensors tensors;
  for (const auto& row : nlohmann::json::parse(text)) {
    const auto options = at::TensorOptions(row[1].get<c10::ScalarType>()).device(device);
    at::Tensor tensor = at::empty(row[3].get<std::vector<std::int64_t>>(), options);
    tensors[row[0].get<std::string>()] = tensor.set_requires_grad(row[2].get<bool>());
  }
  return tensors;
}

// A flat tensor in `ranks` equal parts. Each rank sends its own part; all send the few remaining
// values.
struct SplitTensor {
  SplitTensor(const at::Tensor& tensor, const comm::Communicator& ranks)
      : full(tensor.view({-1})), part(full.numel() / ranks.size()), rank(ranks.rank()) {
    const std::int64_t split_numel = part * ranks.size();
    parts = full.narrow(0, 0, split_numel);
    rest = full.narrow(0, split_numel, full.numel() - split_numel);
  }
  at::Tensor own() const { return parts.narrow(0, rank * part, part); }

  at::Tensor full;
  std::int64_t part;  // number of values
  std::int64_t rank;
  at::Tensor parts, rest;
};

void ReceiveParts(comm::Communicator& channel, const at::Tensor& tensor, comm::Communicator* among,
                  const std::string& tag) {
  const int sender = 1 - channel.rank();
  if (among == nullptr) return channel.Recv(tensor, sender, tag);
  const SplitTensor row(tensor, *among);
  if (row.rest.numel() == 0) {
    channel.Recv(row.own(), sender, tag);
  } else {
    const at::Tensor message = at::empty({row.part + row.rest.numel()}, tensor.options());
    channel.Recv(message, sender, tag);
    row.own().copy_(message.narrow(0, 0, row.part));
    row.rest.copy_(message.narrow(0, row.part, row.rest.numel()));
  }
  if (row.part > 0) among->AllGather(row.parts, row.own(), tag);
}

}  // namespace

StageChannels::StageChannels(comm::Communicator& stages, const ChannelSharding& sharding)
    : stages_(stages),
      activations_among_(sharding.activations ? sharding.tensor : nullptr),
      gradients_among_(sharding.gradients ? sharding.tensor : nullptr) {}

comm::Communicator& StageChannels::ChannelBetween(int from, int to, const std::string& of) {
  const std::string name = of + " of stage " + std::to_string(from) + " to " + std::to_string(to);
  return stages_.Group(name, {std::min(from, to), std::max(from, to)});
}

void StageChannels::Send(comm::Communicator& channel, const at::Tensor& tensor,
                         const std::string& tag) {
  while (!sends_.empty() && sends_.front().done()) {
    sends_.front().wait();  // rethrows its error
    sends_.pop_front();
  }
  sends_.push_back(channel.SendAsync(tensor, 1 - channel.rank(), tag));
}

void StageChannels::SendPart(comm::Communicator& channel, const at::Tensor& tensor,
                             comm::Communicator* among, const std::string& tag) {
  const at::Tensor full = tensor.contiguous();
  if (among == nullptr) return Send(channel, full, tag);
  const SplitTensor row(full, *among);
  Send(channel, row.rest.numel() == 0 ? row.own() : at::cat({row.own(), row.rest}), tag);
}

void StageChannels::SendMessage(int stage, const NamedTensors& tensors, comm::Communicator* among) {
  comm::Communicator& channel = ChannelBetween(stages_.rank(), stage, kActivations);
  Send(channel.control(), MakeHeader(tensors), "names and shapes");
  for (const auto& [name, tensor] : tensors) SendPart(channel, tensor.detach(), among, name);
}

NamedTensors StageChannels::ReceiveMessage(int stage, comm::Communicator* among) {
  comm::Communicator& channel = ChannelBetween(stage, stages_.rank(), kActivations);
  const at::Tensor header = at::empty({kHeaderBytes}, at::kByte);
  channel.control().Recv(header, 1 - channel.rank(), "names and shapes");
  NamedTensors tensors = MakeDescribed(header, stages_.device());
  for (const auto& [name, tensor] : tensors) ReceiveParts(channel, tensor.detach(), among, name);
  return tensors;
}

void StageChannels::SendActivations(int stage, const NamedTensors& tensors) {
  SendMessage(stage, tensors, activations_among_);
}

NamedTensors StageChannels::ReceiveActivations(int stage) {
  return ReceiveMessage(stage, activations_among_);
}

void StageChannels::SendFull(int stage, const NamedTensors& tensors) {
  SendMessage(stage, tensors, /*among=*/nullptr);
}

NamedTensors StageChannels::ReceiveFull(int stage) {
  return ReceiveMessage(stage, /*among=*/nullptr);
}

void StageChannels::SendGradients(int stage, const NamedTensors& received) {
  comm::Communicator& channel = ChannelBetween(stages_.rank(), stage, kGradients);
  for (const auto& [name, tensor] : received) {
    if (!tensor.requires_grad()) continue;
    const at::Tensor& gradient = tensor.grad();
    SendPart(channel, gradient.defined() ? gradient : at::zeros_like(tensor), gradients_among_,
             name);
  }
}

NamedTensors StageChannels::ReceiveGradients(int stage, const NamedTensors& sent) {
  comm::Communicator& channel = ChannelBetween(stage, stages_.rank(), kGradients);
  NamedTensors gradients;
  for (const auto& [name, tensor] : sent) {
    if (!tensor.requires_grad()) continue;
    const at::Tensor gradient = at::empty(tensor.sizes(), tensor.options().requires_grad(false));
    ReceiveParts(channel, gradient, gradients_among_, name);
    gradients[name] = gradient;
  }
  return gradients;
}

void StageChannels::AwaitSends() {
  for (comm::Work& work : sends_) work.wait();
  sends_.clear();
}

}  // namespace ds::engine
