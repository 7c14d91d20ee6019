#include "runtime/python/memory_bindings.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/plan/memory/job_memory.h"
#include "runtime/plan/memory/unit_memory.h"
#include "runtime/python/config_text.h"
#include "runtime/python/python_errors.h"

namespace ds::python {
namespace {

// rows, columns, whether it is a matrix, whether it is trained, whether it is of an expert that
// other ranks do not have
using ParameterTuple = std::tuple<std::int64_t, std::int64_t, bool, bool, bool>;
// name, parameters, also_reads, (saved, forward, backward) bytes
using UnitTuple = std::tuple<std::string, std::vector<ParameterTuple>, std::vector<int>,
                             std::tuple<std::int64_t, std::int64_t, std::int64_t>>;

std::vector<engine::PlannedUnit> MakeUnits(const std::vector<UnitTuple>& units) {
  std::vector<engine::PlannedUnit> planned;
  for (const auto& [name, parameters, also_reads, bytes] : units) {
    const auto& [saved, forward, backward] = bytes;
    engine::PlannedUnit unit{
        .name = name,
        .sizes = {.prefix = name, .also_reads = also_reads},
        .activations = {.saved = saved, .forward = forward, .backward = backward}};
    for (const auto& [rows, columns, is_matrix, trained, expert] : parameters) {
      unit.sizes.parameters.push_back({.rows = rows,
                                       .columns = columns,
                                       .is_matrix = is_matrix,
                                       .trained = trained,
                                       .expert = expert ? 0 : -1});
    }
    planned.push_back(std::move(unit));
  }
  return planned;
}

// `ranks` is (of the job, of its largest host). Returns (the plan as JSON, warnings of the config).
std::pair<std::string, std::vector<std::string>> PlanMemory(const std::vector<UnitTuple>& units,
                                                            const std::string& text,
                                                            std::pair<int, int> ranks, bool on_gpu,
                                                            std::int64_t batch_bytes) {
  const auto [all, of_host] = ranks;
  CheckedConfig checked =
      CheckConfigText(text, all, {.on_cpu = !on_gpu, .one_host = of_host == all});
  const zero::StepSetting setting{.ranks = all, .ranks_of_host = of_host, .on_gpu = on_gpu};
  const auto memory =
      ValueOrThrow(engine::PlanUnitMemory(checked.config, setting, MakeUnits(units), batch_bytes));
  return {engine::ToJson(memory).dump(), std::move(checked.warnings)};
}

}  // namespace

void BindMemory(pybind11::module_& module) { module.def("plan_memory", &PlanMemory); }

}  // namespace ds::python
