#include "runtime/comm/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

namespace ds::comm {
namespace {

// Returns `text`, padded with zeros to `size` bytes, on the device of the group.
at::Tensor ToBytes(std::string_view text, std::int64_t size, const Communicator& control) {
  const at::Tensor bytes = at::zeros({size}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes.to(control.device());
}

std::string ToText(const at::Tensor& bytes, std::int64_t size) {
  const at::Tensor host = bytes.cpu();
  return {static_cast<const char*>(host.const_data_ptr()), static_cast<std::size_t>(size)};
}

// Returns every rank's number. `tag` names the subject, so that ranks with different subjects get
// an error.
std::vector<std::int64_t> GatherEach(std::int64_t mine, std::string_view tag, Communicator& world) {
  Communicator& control = world.control();
  if (control.size() == 1) return {mine};
  const auto options = at::TensorOptions(control.device()).dtype(at::kLong);
  const at::Tensor all = at::empty({control.size()}, options);
  control.AllGather(all, at::full({1}, mine, options), tag);
  const at::Tensor host = all.cpu();
  const std::span<const std::int64_t> numbers(host.const_data_ptr<std::int64_t>(),
                                              static_cast<std::size_t>(control.size()));
  return {numbers.begin(), numbers.end()};
}

}  // namespace

std::vector<std::int64_t> GatherNumber(std::int64_t mine, Communicator& world) {
  return GatherEach(mine, "each rank's number", world);
}

std::string BroadcastText(std::string_view text, int root, Communicator& world) {
  constexpr std::string_view kTag = "one rank's text";
  const auto sizes = GatherEach(static_cast<std::int64_t>(text.size()), kTag, world);
  const std::int64_t size = sizes[static_cast<std::size_t>(root)];
  Communicator& control = world.control();
  const at::Tensor bytes = ToBytes(control.rank() == root ? text : "", size, control);
  control.Broadcast(bytes, root, kTag);
  return ToText(bytes, size);
}

Status AgreeOnStatus(const Status& mine, Communicator& world) {
  const auto codes = GatherEach(static_cast<std::int64_t>(mine.code()), "the status", world);
  const auto failing =
      std::find_if(codes.begin(), codes.end(), [](std::int64_t c) { return c != 0; });
  if (failing == codes.end()) return OkStatus();
  const int rank = static_cast<int>(failing - codes.begin());
  if (world.size() == 1) return mine;
  const std::string message = BroadcastText(mine.message(), rank, world);
  return {static_cast<StatusCode>(*failing), fmt::format("rank {}: {}", rank, message)};
}

std::int64_t SumOverRanks(std::int64_t mine, Communicator& world) {
  const auto numbers = GatherNumber(mine, world);
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

std::vector<std::vector<double>> GatherNumbers(const std::vector<double>& mine,
                                               Communicator& world) {
  const auto count = static_cast<std::int64_t>(mine.size());
  // Sent as 64-bit integers: every backend moves them, and none changes the bits.
  const at::Tensor own = at::empty({count}, at::kLong);
  std::memcpy(own.mutable_data_ptr(), mine.data(), mine.size() * sizeof(double));
  Communicator& control = world.control();
  const at::Tensor all =
      at::empty({control.size() * count}, at::TensorOptions(control.device()).dtype(at::kLong));
  control.AllGather(all, own.to(control.device()), "each rank's numbers");
  const at::Tensor host = all.cpu();
  std::vector<std::vector<double>> table(static_cast<std::size_t>(world.size()), mine);
  for (int rank = 0; rank < world.size(); ++rank) {
    std::memcpy(table[static_cast<std::size_t>(rank)].data(),
                host.const_data_ptr<std::int64_t>() + rank * count, mine.size() * sizeof(double));
  }
  return table;
}

std::vector<std::string> GatherTexts(std::string_view mine, Communicator& world) {
  constexpr std::string_view kTag = "each rank's text";
  const auto sizes = GatherEach(static_cast<std::int64_t>(mine.size()), kTag, world);
  const std::int64_t longest =
      std::max<std::int64_t>(1, *std::max_element(sizes.begin(), sizes.end()));
  Communicator& control = world.control();
  std::vector<at::Tensor> gathered;
  for (int rank = 0; control.rank() == 0 && rank < control.size(); ++rank) {
    gathered.push_back(ToBytes("", longest, control));
  }
  control.Gather(gathered, ToBytes(mine, longest, control), 0, kTag);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
    texts.push_back(ToText(gathered[rank], sizes[rank]));
  }
  return texts;
}

}  // namespace ds::comm
