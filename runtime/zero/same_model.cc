#include "runtime/zero/same_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "runtime/base/philox.h"
#include "runtime/comm/agreement.h"

namespace ds::zero {
namespace {

// Replaces the name of an expert's parameter: the name has the expert's index, and the ranks that
// share a layer's experts have different ones.
constexpr std::string_view kOfExpert = "parameter of an expert: ";

std::string DescribeParameter(const NamedParameter& parameter) {
  const optim::ParameterGroup& group = parameter.group;
  const std::string name = "parameter " + parameter.name + ": ";
  std::string text = fmt::format("{}[{}] {}, {}", parameter.placement.expert ? kOfExpert : name,
                                 fmt::join(parameter.placement.global_shape, ", "),
                                 c10::toString(parameter.tensor.scalar_type()),
                                 parameter.tensor.requires_grad() ? "trained" : "frozen");
  if (group != optim::ParameterGroup{}) {
    text += fmt::format(" with {} times the learning rate and {} times the weight decay",
                        group.lr_factor, group.weight_decay_factor);
    if (group.muon) text += " by Muon";
    if (group.schedule) text += fmt::format(" in schedule {}", *group.schedule);
  }
  if (parameter.reduction) {
    text += fmt::format(", reduced in {}", c10::toString(*parameter.reduction));
  }
  if (parameter.sparse_rows) text += ", reduced by rows";
  if (parameter.rounded) text += ", rounded";
  return text;
}

// Returns a line for each unit and each of its parameters; equal on all ranks with the same model.
std::vector<std::string> DescribeModel(const std::vector<ParameterUnit>& units) {
  std::vector<std::string> lines;
  for (const ParameterUnit& unit : units) {
    lines.push_back(fmt::format("unit {}", unit.name));
    if (!unit.also_reads.empty()) {
      lines.back() += fmt::format(" that also reads units {}", fmt::join(unit.also_reads, ", "));
    }
    if (!unit.backward_reads) lines.back() += " that reads nothing in its backward pass";
    for (const NamedParameter& parameter : unit.parameters) {
      lines.push_back(DescribeParameter(parameter));
    }
  }
  return lines;
}

std::uint64_t HashLines(const std::vector<std::string>& lines) {
  std::uint64_t hash = 0;
  for (const std::string& line : lines) hash = ExtendKey(hash, std::string_view(line));
  return hash;
}

// Removes the first line from `text`, in which every line ends with a newline, and returns it.
// Returns "nothing more" for an empty text: one model has fewer lines than the other.
std::string_view TakeLine(std::string_view* text) {
  if (text->empty()) return "nothing more";
  const std::string_view line = text->substr(0, text->find('\n'));
  text->remove_prefix(line.size() + 1);
  return line;
}

// Returns true if both lines describe parameters of experts. These usually differ because a user
// has frozen some experts of a layer, which are on one of the ranks.
bool AreOfExperts(std::string_view here, std::string_view there) {
  return here.starts_with(kOfExpert) && there.starts_with(kOfExpert);
}

Status CompareLines(std::string_view mine, std::string_view first_ranks) {
  while (!mine.empty() || !first_ranks.empty()) {
    const std::string_view here = TakeLine(&mine), there = TakeLine(&first_ranks);
    if (here == there) continue;
    return InvalidArgumentError(fmt::format(
        "its model has {} where rank 0 has {}: {}", here, there,
        AreOfExperts(here, there)
            ? "the experts of a layer must be alike on all ranks: freeze all experts of a layer or "
              "none"
            : "all ranks have to build the same model, with its blocks in the same order"));
  }
  return OkStatus();
}

}  // namespace

std::uint64_t HashModel(const std::vector<ParameterUnit>& units) {
  return HashLines(DescribeModel(units));
}

// Texts are sent only if the hashes differ.
Status CheckSameModel(const std::vector<ParameterUnit>& units, comm::Communicator& all) {
  const std::vector<std::string> lines = DescribeModel(units);
  const auto hashes = comm::GatherNumber(static_cast<std::int64_t>(HashLines(lines)), all);
  if (std::count(hashes.begin(), hashes.end(), hashes.front()) ==
      static_cast<std::ptrdiff_t>(hashes.size())) {
    return OkStatus();
  }
  const std::string mine = fmt::format("{}\n", fmt::join(lines, "\n"));
  return comm::AgreeOnStatus(CompareLines(mine, comm::BroadcastText(mine, 0, all)), all);
}

}  // namespace ds::zero
