#pragma once

// The tiny model, trained as a golden run of an optimizer says.

#include <ATen/core/Tensor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/ranks/tiny_model.h"

namespace ds::tests {

using Parameters = std::map<std::string, at::Tensor>;

// A file of tests/numerics/goldens.
nlohmann::json ReadGoldens(const std::string& file);

struct Setting {
  int world_size = 1;
  int stage = 0;
};

struct Outcome {
  std::vector<double> losses;
  std::map<int, Parameters> after;  // by number of steps
};

// Trains from the first values of optimizers.json, with the golden's "optimizer", "precision",
// "gradient_clipping" and "accumulation", as many steps as its "after" asks for.
Outcome TrainAs(const nlohmann::json& golden, Setting setting);

// The largest difference relative to the parameter's largest element, over all parameters.
double DistanceTo(const nlohmann::json& expected, const Parameters& ours);

}  // namespace ds::tests
