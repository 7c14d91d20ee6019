#pragma once

// BaseShapes are the shapes of the smaller model for which hyperparameters were tuned. The learning
// rates of a wider model are derived from them (maximal update parametrisation, arXiv 2203.03466).
// Read from files of mup.make_base_shapes and mup.save_base_shapes.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/optim/groups/parameter_groups.h"

namespace ds::optim {

// Shapes by parameter name; a dimension without a size does not grow with the width.
using BaseShapes = std::map<std::string, std::vector<std::optional<std::int64_t>>>;

// Parses the text of a .bsh file: a YAML mapping of names to lists of positive numbers and null.
StatusOr<BaseShapes> ParseBaseShapes(std::string_view text);
StatusOr<BaseShapes> ReadBaseShapes(const std::string& path);

// Returns OK if the parameters are the file's, with the same numbers of dimensions and at
// most two growing ones each. Otherwise the error names the first parameter that differs. `shapes`
// are the shapes of the model's unsharded parameters, by name.
using Shapes = std::map<std::string, std::vector<std::int64_t>>;
Status CheckBaseShapes(const BaseShapes& base, const Shapes& shapes);

// Returns `inner` with the learning rates and weight decays of MuAdam and MuAdamW (`like_sgd`
// false) or MuSGD (`like_sgd` true). MuAdam: where two dimensions grow, rate / m and decay * m,
// where m is the growth of the second one. MuSGD: where two grow, the same with m divided by the
// growth of the first one; where one grows, rate * m and decay / m. Requires that CheckBaseShapes
// accepted the shapes.
ParameterGrouper WithMuRates(BaseShapes base, Shapes shapes, bool like_sgd, ParameterGrouper inner);

}  // namespace ds::optim
