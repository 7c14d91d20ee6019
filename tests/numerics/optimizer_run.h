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
// "gradient_clipping", "accumulation" and "zenflow", as many steps as its "after" asks for.
Outcome TrainAs(const nlohmann::json& golden, Setting setting);

// The largest difference relative to the parameter's largest element, over all parameters.
double DistanceTo(const nlohmann::json& expected, const Parameters& ours);

// The distance that a right answer may lie from a golden that another processor computed.
struct Tolerance {
  double loss;         // of the loss, or of 1 where that is more
  double first_step;   // DistanceTo behind step 1
  double later_steps;  // and behind the others
};

// fp32: processors add in different orders, which makes 2^-24 of a gradient; Adam's first step,
// lr * g / (|g| + eps), makes up to lr / eps of that where g is as small as eps: 2e4 in the runs
// here. 16 bit: neighbouring numbers lie up to 2^-10 (fp16) and 2^-7 (bf16) of themselves apart,
// and what one step rounded to the other neighbour the next ones go on from.
Tolerance ToleranceOf(const nlohmann::json& golden);

// Tells how far the parameters lie from the golden's behind step 1 and behind the last.
struct Distances {
  double first_step;
  double last_step;
};

// Expects the golden's losses, step by step, within `tolerance`, and measures the parameters.
Distances ExpectLossesOf(const nlohmann::json& golden, const Outcome& ours, double tolerance);

}  // namespace ds::tests
