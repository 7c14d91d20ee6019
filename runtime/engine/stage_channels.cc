#include "runtime/engine/stage_channels.h"

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

// In front of a message of activations: its tensors' names, types and shapes.
constexpr std::int64_t kHeaderBytes = 4096;

at::Tensor MakeHeader(const NamedTensors& tensors) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [name, tensor] : tensors) {
    rows.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.requires_grad(),
                    tensor.sizes().vec()});
  }
  const std::string text = rows.dump();
  TORCH_CHECK(static_cast<std::int64_t>(text.size()) < kHeaderBytes, "what a stage sends on, ",
              tensors.size(), " tensors, takes a longer header than there is");
  const at::Tensor header = at::zeros({kHeaderBytes}, at::kByte);
  std::memcpy(header.mutable_data_ptr(), text.data(), text.size());
  return header;
}

// Tensors without values, as the header says.
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

}  // namespace

comm::Communicator& StageChannels::ChannelBetween(int from, int to, const std::string& of) {
  const std::string name = of + " of stage " + std::to_string(from) + " to " + std::to_string(to);
  return stages_.Group(name, {std::min(from, to), std::max(from, to)});
}

void StageChannels::Send(comm::Communicator& channel, const at::Tensor& tensor,
                         const std::string& tag) {
  while (!sends_.empty() && sends_.front().done()) {
    sends_.front().wait();  // throws what it has failed with
    sends_.pop_front();
  }
  sends_.push_back(channel.SendAsync(tensor, 1 - channel.rank(), tag));
}

void StageChannels::SendActivations(int stage, const NamedTensors& tensors) {
  comm::Communicator& channel = ChannelBetween(stages_.rank(), stage, kActivations);
  Send(channel.control(), MakeHeader(tensors), "names and shapes");
  for (const auto& [name, tensor] : tensors) Send(channel, tensor.detach().contiguous(), name);
}

NamedTensors StageChannels::ReceiveActivations(int stage) {
  comm::Communicator& channel = ChannelBetween(stage, stages_.rank(), kActivations);
  const int sender = 1 - channel.rank();
  const at::Tensor header = at::empty({kHeaderBytes}, at::kByte);
  channel.control().Recv(header, sender, "names and shapes");
  NamedTensors tensors = MakeDescribed(header, stages_.device());
  for (const auto& [name, tensor] : tensors) channel.Recv(tensor.detach(), sender, name);
  return tensors;
}

void StageChannels::SendGradients(int stage, const NamedTensors& received) {
  comm::Communicator& channel = ChannelBetween(stages_.rank(), stage, kGradients);
  for (const auto& [name, tensor] : received) {
    if (!tensor.requires_grad()) continue;
    const at::Tensor& gradient = tensor.grad();
    Send(channel, gradient.defined() ? gradient.contiguous() : at::zeros_like(tensor), name);
  }
}

NamedTensors StageChannels::ReceiveGradients(int stage, const NamedTensors& sent) {
  comm::Communicator& channel = ChannelBetween(stage, stages_.rank(), kGradients);
  NamedTensors gradients;
  for (const auto& [name, tensor] : sent) {
    if (!tensor.requires_grad()) continue;
    const at::Tensor gradient = at::empty(tensor.sizes(), tensor.options().requires_grad(false));
    channel.Recv(gradient, 1 - channel.rank(), name);
    gradients[name] = gradient;
  }
  return gradients;
}

void StageChannels::AwaitSends() {
  for (comm::Work& work : sends_) work.wait();
  sends_.clear();
}

}  // namespace ds::engine
