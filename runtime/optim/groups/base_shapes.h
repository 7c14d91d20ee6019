#pragma once

// Base shapes: how wide a model was when its hyperparameters were found, and what the rates of a
// wider one follow from (maximal update parametrisation, arXiv 2203.03466). Read from the files
// that mup.make_base_shapes and mup.save_base_shapes write.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/optim/groups/parameter_groups.h"

namespace ds::optim {

// By parameter; a dimension without a size does not grow with the width.
using BaseShapes = std::map<std::string, std::vector<std::optional<std::int64_t>>>;

// Parses the text of a .bsh file: a YAML mapping of names to lists of positive numbers and null.
StatusOr<BaseShapes> ParseBaseShapes(std::string_view text);
StatusOr<BaseShapes> ReadBaseShapes(const std::string& path);

// OK when the parameters are those of the file, each with as many dimensions and at most two that
// grow; else an error that names the first that is not. `shapes` are the model's, by name: those of
// whole parameters where ranks have parts of them.
using Shapes = std::map<std::string, std::vector<std::int64_t>>;
Status CheckBaseShapes(const BaseShapes& base, const Shapes& shapes);

// `inner`, with rates and weight decays as MuAdam and MuAdamW have them (`like_sgd` false): where
// two dimensions grow, rate / m and decay * m, m being the growth of the second one. As MuSGD has
// them: there the same with m over the first one's growth, and where one dimension grows, rate * m
// and decay / m. Requires shapes that CheckBaseShapes has accepted.
ParameterGrouper WithMuRates(BaseShapes base, Shapes shapes, bool like_sgd, ParameterGrouper inner);

}  // namespace ds::optim
