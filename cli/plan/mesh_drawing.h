#pragma once

// MeshDrawing shows a mesh of ranks: where each of them stands and which of them work together.
//
// Pure; safe from any thread.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/topology/mesh.h"

namespace ds::cli {

class MeshDrawing {
 public:
  explicit MeshDrawing(topology::Mesh mesh) : mesh_(mesh) {}

  const topology::Degrees& degrees() const { return mesh_.degrees(); }

  // Says where a rank stands along the axes that have a degree above 1, outermost first:
  // "pipeline 0  shard 3".
  std::string DescribeRank(int rank) const;
  nlohmann::ordered_json CoordinatesJson(int rank) const;

  // The degrees, then a line for every kind of group of more than one rank, then what training
  // still refuses of it. Ends with a newline.
  std::string DrawGroups() const;
  // {"order": [axes], "degrees": {axis: N}, "groups": {kind: [[ranks]]}}
  nlohmann::ordered_json ToJson() const;

 private:
  topology::Mesh mesh_;
};

}  // namespace ds::cli
