#include "runtime/engine/parameter_units.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "runtime/checkpoint/placement.h"
#include "runtime/zero/flat_parameters.h"

namespace ds::engine {
namespace {

// PyTorch's class name, and the name of the equivalent class here.
constexpr std::pair<std::string_view, std::string_view> kClasses[] = {
    {"torch.nn.Linear", "ds::models::Linear"},
    {"torch.nn.Linear", "torch::nn::LinearImpl"},
    {"torch.nn.Conv1d", "torch::nn::Conv1dImpl"},
    {"torch.nn.Conv2d", "torch::nn::Conv2dImpl"},
    {"torch.nn.Conv3d", "torch::nn::Conv3dImpl"},
    {"torch.nn.Embedding", "ds::models::Embedding"},
    {"torch.nn.Embedding", "torch::nn::EmbeddingImpl"},
    {"transformers.pytorch_utils.Conv1D", "ds::models::Conv1d"}};

bool IsOneOf(const std::vector<std::string>& classes, const std::string& name) {
  return std::any_of(std::begin(kClasses), std::end(kClasses), [&](const auto& pair) {
    return pair.second == name &&
           std::find(classes.begin(), classes.end(), pair.first) != classes.end();
  });
}

// Calls visit(parameter) for the parameters registered by modules of these classes in `block`.
template <typename Visit>
void ForEachParameterOf(const std::vector<std::string>& classes, const Block& block,
                        zero::ParameterUnit& unit, Visit visit) {
  std::set<const void*> chosen;
  for (const auto& module : block.modules(/*include_self=*/false)) {
    if (!IsOneOf(classes, module->name())) continue;
    for (const at::Tensor& parameter : module->parameters(/*recurse=*/false)) {
      chosen.insert(parameter.unsafeGetTensorImpl());
    }
  }
  for (zero::NamedParameter& parameter : unit.parameters) {
    if (chosen.contains(parameter.tensor.unsafeGetTensorImpl())) visit(parameter);
  }
}

}  // namespace

std::vector<zero::ParameterUnit> BuildUnits(const BlockList& model,
                                            const optim::ParameterGrouper& group_of,
                                            const config::RecomputeChoice& recompute) {
  std::vector<zero::ParameterUnit> units;
  for (int i = 0; i < model.size(); ++i) {
    const Block& block = model.block(i);
    const int index = model.index_in_model(i);
    zero::ParameterUnit unit{
        .name = "block " + std::to_string(index),
        .also_reads = model.also_reads(i),
        .backward_reads = block.backward_reads_parameters() ||
                          config::IsRecomputed(recompute, index, model.model_size())};
    if (!block.prefix().empty()) unit.name += " (" + block.prefix() + ")";
    for (const auto& item : block.named_parameters()) {
      const std::string name = block.FullName(item.key());
      // Outside the braces: the call may throw, and GCC 12 destroys completed members twice then.
      const checkpoint::Placement placement = block.DescribePlacement(item.key(), item.value());
      // Parameters that several stages hold belong to the first block, as with one stage.
      const int owner = placement.stages.empty() ? index : 0;
      const optim::ParameterGroup group = group_of(owner, name, item.value());
      unit.parameters.push_back(
          {.name = name, .tensor = item.value(), .placement = placement, .group = group});
    }
    units.push_back(std::move(unit));
  }
  return units;
}

std::vector<zero::ParameterUnit> BuildUnits(const UnitList& model,
                                            const optim::ParameterGrouper& group_of) {
  std::vector<zero::ParameterUnit> units;
  for (const UnitDescription& described : model.units) {
    zero::ParameterUnit unit{.name = described.name, .also_reads = described.also_reads};
    for (const UnitParameter& parameter : described.parameters) {
      const auto owner = static_cast<int>(units.size());
      const optim::ParameterGroup group = group_of(owner, parameter.name, parameter.tensor);
      unit.parameters.push_back({.name = parameter.name,
                                 .tensor = parameter.tensor,
                                 .placement = {.global_shape = parameter.tensor.sizes().vec(),
                                               .expert = parameter.expert,
                                               .stages = parameter.stages},
                                 .group = group});
    }
    units.push_back(std::move(unit));
  }
  return units;
}

void ReduceModulesIn(at::ScalarType dtype, const std::vector<std::string>& classes,
                     const BlockList& model, std::vector<zero::ParameterUnit>* units) {
  for (int i = 0; i < model.size(); ++i) {
    ForEachParameterOf(classes, model.block(i), units->at(static_cast<std::size_t>(i)),
                       [&](zero::NamedParameter& parameter) { parameter.reduction = dtype; });
  }
}

void ReduceEmbeddingsByRows(const BlockList& model, std::vector<zero::ParameterUnit>* units) {
  std::set<int> read_by_others;
  for (int i = 0; i < model.size(); ++i) {
    read_by_others.insert(model.also_reads(i).begin(), model.also_reads(i).end());
  }
  for (int i = 0; i < model.size(); ++i) {
    if (read_by_others.contains(i)) continue;
    ForEachParameterOf({"torch.nn.Embedding"}, model.block(i),
                       units->at(static_cast<std::size_t>(i)),
                       [](zero::NamedParameter& parameter) { parameter.sparse_rows = true; });
  }
}

namespace {

// Calls visit(parameter) for the parameters of modules of these classes in the list's unit `index`.
template <typename Visit>
void ForEachParameterOf(const std::vector<std::string>& classes, const UnitDescription& described,
                        zero::ParameterUnit& unit, Visit visit) {
  for (std::size_t i = 0; i < described.parameters.size(); ++i) {
    const std::string& module_class = described.parameters[i].module_class;
    if (std::find(classes.begin(), classes.end(), module_class) == classes.end()) continue;
    visit(unit.parameters[i]);
  }
}

}  // namespace

void ReduceModulesIn(at::ScalarType dtype, const std::vector<std::string>& classes,
                     const UnitList& model, std::vector<zero::ParameterUnit>* units) {
  for (std::size_t i = 0; i < units->size(); ++i) {
    ForEachParameterOf(classes, model.units[i], (*units)[i],
                       [&](zero::NamedParameter& parameter) { parameter.reduction = dtype; });
  }
}

void ReduceEmbeddingsByRows(const UnitList& model, std::vector<zero::ParameterUnit>* units) {
  std::set<int> read_by_others;
  for (const UnitDescription& unit : model.units) {
    read_by_others.insert(unit.also_reads.begin(), unit.also_reads.end());
  }
  for (std::size_t i = 0; i < units->size(); ++i) {
    if (read_by_others.contains(static_cast<int>(i))) continue;
    ForEachParameterOf({"torch.nn.Embedding"}, model.units[i], (*units)[i],
                       [](zero::NamedParameter& parameter) { parameter.sparse_rows = true; });
  }
}

void RoundMatrices(const RoundedMatrices& which, std::vector<zero::ParameterUnit>* units) {
  for (zero::ParameterUnit& unit : *units) {
    for (zero::NamedParameter& parameter : unit.parameters) {
      const at::Tensor& tensor = parameter.tensor;
      parameter.rounded = (tensor.requires_grad() ? which.trained : which.frozen) &&
                          tensor.dim() > 1 && at::isFloatingType(tensor.scalar_type());
    }
  }
}

zero::StepWindows ChooseWindows(const config::DsConfig& config, const zero::Context& context,
                                const std::vector<zero::ParameterUnit>& units) {
  zero::SteppedStage stage{.stages = context.mesh.degrees().pipeline,
                           .micro_batches = config.batch.gradient_accumulation_steps};
  for (const zero::ParameterUnit& unit : units) {
    for (const zero::NamedParameter& parameter : unit.parameters) {
      stage.parameters += parameter.tensor.numel();
      if (parameter.tensor.requires_grad()) stage.trained += parameter.tensor.numel();
    }
  }
  return zero::ChooseStepWindows(config.zero_optimization, context.sharding, stage);
}

namespace {

struct FirstOfGroup {
  optim::ParameterGroup group;
  std::string parameter;
};

template <typename Visit>
void ForEachTrained(std::vector<zero::ParameterUnit>& units, Visit visit) {
  for (zero::ParameterUnit& unit : units) {
    for (zero::NamedParameter& parameter : unit.parameters) {
      if (parameter.tensor.requires_grad()) visit(parameter);
    }
  }
}

auto Find(const std::vector<FirstOfGroup>& groups, const optim::ParameterGroup& group) {
  return std::find_if(groups.begin(), groups.end(),
                      [&](const FirstOfGroup& first) { return first.group == group; });
}

std::vector<FirstOfGroup> GroupsOf(std::vector<zero::ParameterUnit>& units) {
  std::vector<FirstOfGroup> groups;
  ForEachTrained(units, [&](const zero::NamedParameter& parameter) {
    if (Find(groups, parameter.group) != groups.end()) return;
    groups.push_back({parameter.group, parameter.name});
  });
  std::stable_partition(groups.begin(), groups.end(),
                        [](const FirstOfGroup& first) { return first.group.muon; });
  return groups;
}

Status CheckCount(std::size_t numbers, const std::vector<FirstOfGroup>& groups) {
  if (numbers == groups.size()) return OkStatus();
  std::string text = "scheduler.params has lists of " + std::to_string(numbers) +
                     " numbers, one for each parameter group, and the model has " +
                     std::to_string(groups.size()) + ":";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    text += (i == 0 ? " that of " : ", ") + groups[i].parameter;
  }
  return InvalidArgumentError(text);
}

// Returns the rate of the group's half of Muon, or the single rate of other optimizers.
double RateOf(const config::OptimizerConfig& optimizer, const optim::ParameterGroup& group) {
  const auto* const muon = std::get_if<config::MuonConfig>(&optimizer.algorithm);
  return muon == nullptr || group.muon ? optimizer.lr : muon->adam_lr;
}

// Lets Muon's halves follow the same schedule, each from its own rate.
std::vector<double> FollowByHalves(const config::DsConfig& config,
                                   std::vector<zero::ParameterUnit>* units) {
  const auto* const muon = std::get_if<config::MuonConfig>(&config.optimizer.algorithm);
  if (muon == nullptr) return {};
  ForEachTrained(*units, [](zero::NamedParameter& parameter) {
    parameter.group.schedule = parameter.group.muon ? std::size_t{0} : std::size_t{1};
  });
  return {config.optimizer.lr, muon->adam_lr};
}

Status CheckCountOfGiven(const config::DsConfig& config, std::size_t groups) {
  const std::size_t numbers = config.group_schedules.size();
  if (numbers == 0 || numbers == groups) return OkStatus();
  return InvalidArgumentError("scheduler.params has lists of " + std::to_string(numbers) +
                              " numbers, one for each parameter group, and the optimizer has " +
                              std::to_string(groups) + " groups");
}

// Keeps the caller's groups, whose numbers the parameters have.
StatusOr<std::vector<double>> FollowGiven(const config::DsConfig& config,
                                          const std::vector<std::optional<double>>& given,
                                          std::vector<zero::ParameterUnit>* units) {
  const bool has_halves = std::holds_alternative<config::MuonConfig>(config.optimizer.algorithm);
  const std::size_t parts = has_halves ? 2 : 1;
  DS_RETURN_IF_ERROR(CheckCountOfGiven(config, given.size() * parts));
  std::vector<double> rates;
  for (const std::optional<double>& rate : given) {
    for (std::size_t part = 0; part < parts; ++part) {
      const double configured = RateOf(config.optimizer, {.muon = has_halves && part == 0});
      const bool is_own = rate && *rate != config.optimizer.lr;
      rates.push_back(is_own ? *rate : configured);
    }
  }
  ForEachTrained(*units, [&](zero::NamedParameter& parameter) {
    optim::ParameterGroup& group = parameter.group;
    group.schedule = group.schedule.value_or(0) * parts + (has_halves && !group.muon ? 1 : 0);
  });
  return rates;
}

}  // namespace

StatusOr<std::vector<double>> FollowGroupSchedules(const config::DsConfig& config,
                                                   const std::vector<std::optional<double>>& given,
                                                   std::vector<zero::ParameterUnit>* units) {
  if (!given.empty()) return FollowGiven(config, given, units);
  if (config.group_schedules.empty()) return FollowByHalves(config, units);
  std::vector<double> rates;
  const std::vector<FirstOfGroup> groups = GroupsOf(*units);
  DS_RETURN_IF_ERROR(CheckCount(config.group_schedules.size(), groups));
  for (const FirstOfGroup& first : groups) {
    rates.push_back(RateOf(config.optimizer, first.group) * first.group.lr_factor);
  }
  ForEachTrained(*units, [&](zero::NamedParameter& parameter) {
    const auto number = Find(groups, parameter.group) - groups.begin();
    parameter.group.schedule = static_cast<std::size_t>(number);
    parameter.group.lr_factor = 1.0;
  });
  return rates;
}

namespace {

// Returns whether all of the unit's parameters have values: parameters of users' modules have
// values, parameters of built-in modules do not. Fails if only some have.
StatusOr<bool> HaveValues(const std::string& unit, const std::vector<at::Tensor>& parameters) {
  std::size_t count = 0;
  for (const at::Tensor& parameter : parameters) count += zero::HasValues(parameter) ? 1 : 0;
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

// Otherwise the engine would start from new values without a word.
Status CheckNoneIsReleased(const std::vector<zero::ParameterUnit>& units) {
  for (const zero::ParameterUnit& unit : units) {
    for (const zero::NamedParameter& parameter : unit.parameters) {
      if (!zero::IsReleased(parameter.tensor)) continue;
      return FailedPreconditionError("the values of parameter " + parameter.name +
                                     " went with the engine that had sharded it: make the model "
                                     "again, or give the parameter a new tensor with its values");
    }
  }
  return OkStatus();
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

zero::FillUnit ReadEachUnit(const std::vector<zero::ParameterUnit>& units,
                            const EngineOptions& options) {
  return [&](int index, const auto& own) -> StatusOr<zero::FirstValues> {
    const auto unit = static_cast<std::size_t>(index);
    for (const zero::OwnRange& range : own) {
      DS_RETURN_IF_ERROR(ReadRange(options.read_values, units[unit], range));
    }
    return zero::FirstValues::kSameEverywhere;
  };
}

}  // namespace

StatusOr<zero::FillUnit> MakeFillUnit(const BlockList& model,
                                      const std::vector<zero::ParameterUnit>& units,
                                      const EngineOptions& options) {
  if (options.read_values) return ReadEachUnit(units, options);
  DS_RETURN_IF_ERROR(CheckNoneIsReleased(units));
  std::vector<bool> has_values;
  for (int i = 0; i < model.size(); ++i) {
    DS_ASSIGN_OR_RETURN(const bool all, HaveValues(units[static_cast<std::size_t>(i)].name,
                                                   model.block(i).parameters()));
    has_values.push_back(all);
  }
  return zero::FillUnit(
      [&, has_values, seed = options.seed](
          int index, const std::vector<zero::OwnRange>& own) -> StatusOr<zero::FirstValues> {
        const auto unit = static_cast<std::size_t>(index);
        if (has_values[unit]) return zero::FirstValues::kRankZeros;
        if (model.factory(index)) {
          DS_ASSIGN_OR_RETURN(const bool taken, TakeValues(model, index, units[unit]));
          if (taken) return zero::FirstValues::kRankZeros;
        }
        for (const zero::OwnRange& range : own) {
          model.block(index).InitializeRange(range.name, seed, range.first, range.values);
        }
        return zero::FirstValues::kSameEverywhere;
      });
}

StatusOr<zero::FillUnit> MakeFillUnit(const UnitList& model,
                                      const std::vector<zero::ParameterUnit>& units,
                                      const EngineOptions& options) {
  if (options.read_values) return ReadEachUnit(units, options);
  DS_RETURN_IF_ERROR(CheckNoneIsReleased(units));
  if (model.write_first_values) {
    return zero::FillUnit([&model](int index, const auto&) -> StatusOr<zero::FirstValues> {
      const bool same = model.write_first_values(index);
      return same ? zero::FirstValues::kSameEverywhere : zero::FirstValues::kRankZeros;
    });
  }
  for (const zero::ParameterUnit& unit : units) {
    for (const zero::NamedParameter& parameter : unit.parameters) {
      if (zero::HasValues(parameter.tensor)) continue;
      return InvalidArgumentError("parameter " + parameter.name +
                                  " has no values: give it a tensor with values first");
    }
  }
  return zero::FillUnit([](int, const auto&) -> StatusOr<zero::FirstValues> {
    return zero::FirstValues::kRankZeros;
  });
}

}  // namespace ds::engine
