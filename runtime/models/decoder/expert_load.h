#pragma once

// kExpertRoutes: the name under which expert loads pass through a model.

namespace ds::models {

// The bundle's extra with this name counts the tokens routed to each expert: [layers, experts]
// fp32, for the layers with experts so far. The last block sets it for micro-batches with labels.
inline constexpr char kExpertRoutes[] = "expert_routes";

}  // namespace ds::models
