#pragma once

// Unit: one block's parameters on this rank, split into what is trained alike and what is frozen.

#include <memory>
#include <string>
#include <vector>

#include "runtime/zero/flat_gradients.h"
#include "runtime/zero/flat_parameters.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// Parameters of one unit with the same requires_grad and, if trained, the same
// optim::ParameterGroup, way of reduction and axes of their placements.
struct Group {
  Group(const Context& context, BufferPool& pool, std::vector<NamedParameter> members);

  bool trainable() const { return gradients != nullptr; }
  // Its axes are those of all parameters. Requires a trainable group.
  const checkpoint::Placement& placement() const { return parameters.parameter(0).placement; }

  FlatParameters parameters;
  std::unique_ptr<FlatGradients> gradients;  // null when frozen
};

// Calls Add of the groups' gradients from the autograd engine: attaches itself to the parameters
// for as long as it lives.
class Unit {
 public:
  Unit(const Context& context, BufferPool& pool, const ParameterUnit& described);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // Tells whether a Unit that still lives has attached itself to the parameter.
  static bool HasHookOn(const at::Tensor& parameter);

  const std::string& name() const { return name_; }
  const std::vector<int>& also_reads() const { return also_reads_; }
  const std::vector<std::unique_ptr<Group>>& groups() const { return groups_; }

  void Gather();
  void Release();
  void Fetch();
  void Stow();
  void EndMicroBatch(bool hold);

 private:
  void AttachHooks(Group& group);

  std::string name_;
  std::vector<int> also_reads_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace ds::zero
