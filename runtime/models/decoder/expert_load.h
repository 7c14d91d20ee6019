#pragma once

// The loads of experts on their way through a model.

namespace ds::models {

// The bundle's extra of this name has the routes of each expert of each layer that has experts,
// [layers, experts] fp32, of the layers so far; behind the last block, of a micro-batch with
// labels.
inline constexpr char kExpertRoutes[] = "expert_routes";

}  // namespace ds::models
