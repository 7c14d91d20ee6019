#include "runtime/engine/build_engine.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace ds::engine {
namespace {

using zero::FirstValues;

bool HasValues(const at::Tensor& parameter) {
  return parameter.numel() == 0 || parameter.storage().nbytes() > 0;
}

// Returns whether all of the unit's parameters have values: parameters of users' modules have
// values, parameters of built-in modules do not. Fails if only some have.
StatusOr<bool> HaveValues(const std::string& unit, const std::vector<at::Tensor>& parameters) {
  std::size_t count = 0;
  for (const at::Tensor& parameter : parameters) count += HasValues(parameter) ? 1 : 0;
  if (count == 0 || count == parameters.size()) return count != 0;
  return InvalidArgumentError(unit + ": " + std::to_string(count) + " of " +
                              std::to_string(parameters.size()) +
                              " parameters have values; give values to all of them or to none");
}

Status CheckOneMemoryEach(const std::string& unit, const std::vector<at::Tensor>& parameters) {
  std::set<const void*> seen;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.numel() == 0 || seen.insert(parameter.const_data_ptr()).second) continue;
    return InvalidArgumentError(unit +
                                ": two parameters of the block share memory, and would be "
                                "two from here on");
  }
  return OkStatus();
}

// Makes the block again and copies its values; returns false if it has none.
StatusOr<bool> TakeValues(const BlockList& model, int index, const zero::ParameterUnit& unit) {
  const std::shared_ptr<Block> fresh = model.factory(index)();
  if (fresh.get() == &model.block(index)) {
    return InvalidArgumentError(unit.name + ": its factory has given the same block twice");
  }
  DS_ASSIGN_OR_RETURN(const bool has_values, HaveValues(unit.name, fresh->parameters()));
  if (!has_values) return false;
  DS_RETURN_IF_ERROR(CheckOneMemoryEach(unit.name, fresh->parameters()));
  std::map<std::string, at::Tensor> values;
  for (const auto& item : fresh->named_parameters()) {
    values[fresh->FullName(item.key())] = item.value();
  }
  const c10::NoGradGuard no_grad;
  for (const zero::NamedParameter& parameter : unit.parameters) {
    const auto found = values.find(parameter.name);
    if (found == values.end() || found->second.sizes() != parameter.tensor.sizes()) {
      return InvalidArgumentError(unit.name + ": made a second time, the block has no " +
                                  parameter.name + " of the same shape");
    }
    parameter.tensor.copy_(found->second);
  }
  return true;
}

// Reads the elements of the full tensor that this rank's tensor holds.
Status ReadRange(const ValueReader& read, const zero::ParameterUnit& unit,
                 const zero::OwnRange& range) {
  const auto parameter =
      std::find_if(unit.parameters.begin(), unit.parameters.end(),
                   [&](const zero::NamedParameter& each) { return each.name == range.name; });
  const checkpoint::Placement& placement = parameter->placement;
  for (const checkpoint::Stretch& stretch : checkpoint::FindStretches(
           placement.global_shape, {placement.boxes, range.first, range.values.numel()})) {
    DS_RETURN_IF_ERROR(
        read(range.name, stretch.global, range.values.narrow(0, stretch.local, stretch.count)));
  }
  return OkStatus();
}

}  // namespace

StatusOr<zero::FillUnit> MakeFillUnit(const BlockList& model,
                                      const std::vector<zero::ParameterUnit>& units,
                                      const EngineOptions& options) {
  if (options.read_values) {
    return zero::FillUnit([&](int index, const auto& own) -> StatusOr<FirstValues> {
      const auto unit = static_cast<std::size_t>(index);
      for (const zero::OwnRange& range : own) {
        DS_RETURN_IF_ERROR(ReadRange(options.read_values, units[unit], range));
      }
      return FirstValues::kSameEverywhere;
    });
  }
  std::vector<bool> has_values;
  for (int i = 0; i < model.size(); ++i) {
    DS_ASSIGN_OR_RETURN(const bool all, HaveValues(units[static_cast<std::size_t>(i)].name,
                                                   model.block(i).parameters()));
    has_values.push_back(all);
  }
  return zero::FillUnit(
      [&, has_values, seed = options.seed](
          int index, const std::vector<zero::OwnRange>& own) -> StatusOr<FirstValues> {
        const auto unit = static_cast<std::size_t>(index);
        if (has_values[unit]) return FirstValues::kRankZeros;
        if (model.factory(index)) {
          DS_ASSIGN_OR_RETURN(const bool taken, TakeValues(model, index, units[unit]));
          if (taken) return FirstValues::kRankZeros;
        }
        for (const zero::OwnRange& range : own) {
          model.block(index).InitializeRange(range.name, seed, range.first, range.values);
        }
        return FirstValues::kSameEverywhere;
      });
}

}  // namespace ds::engine
