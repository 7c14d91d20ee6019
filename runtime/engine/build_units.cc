#include "runtime/engine/build_units.h"

namespace ds::engine {

std::vector<zero::ParameterUnit> BuildUnits(const BlockList& model,
                                            const optim::ParameterGrouper& group_of) {
  std::vector<zero::ParameterUnit> units;
  for (int i = 0; i < model.size(); ++i) {
    const Block& block = model.block(i);
    zero::ParameterUnit unit{.name = "block " + std::to_string(i),
                             .also_reads = model.also_reads(i)};
    if (!block.prefix().empty()) unit.name += " (" + block.prefix() + ")";
    for (const auto& item : block.named_parameters()) {
      const std::string name = block.FullName(item.key());
      unit.parameters.push_back({name, item.value(), group_of(i, name, item.value())});
    }
    units.push_back(std::move(unit));
  }
  return units;
}

}  // namespace ds::engine
