#include "runtime/engine/build_engine.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

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

}  // namespace ds::engine
