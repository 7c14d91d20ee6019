#include "runtime/plan/mesh/degrees.h"

#include <algorithm>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/divisors.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/suggest.h"

namespace ds::topology {
namespace {

struct AxisRow {
  Axis axis;
  std::string_view name;
  int Degrees::*degree;
};

constexpr std::array<AxisRow, kAxisCount> kAxes{{
    {Axis::kPipeline, "pipeline", &Degrees::pipeline},
    {Axis::kReplicate, "replicate", &Degrees::replicate},
    {Axis::kShard, "shard", &Degrees::shard},
    {Axis::kSequence, "sequence", &Degrees::sequence},
    {Axis::kTensor, "tensor", &Degrees::tensor},
}};

const AxisRow& RowOf(Axis axis) { return kAxes.at(static_cast<std::size_t>(axis)); }

// The degrees and axes named in a text.
class DegreesText {
 public:
  Status Read(std::string_view text) {
    while (true) {
      const std::size_t comma = text.find(',');
      DS_RETURN_IF_ERROR(ReadOne(text.substr(0, comma)));
      if (comma == std::string_view::npos) return OkStatus();
      text.remove_prefix(comma + 1);
    }
  }

  // Named axes fill, in the order of the text, the positions that the default order gives them.
  Degrees Finish(int world_size) {
    auto next = named_.begin();
    for (Axis& slot : degrees_.order) {
      if (std::find(named_.begin(), named_.end(), slot) != named_.end()) slot = *next++;
    }
    if (std::find(named_.begin(), named_.end(), Axis::kShard) == named_.end()) {
      std::int64_t others = 1;
      for (const Axis axis : named_)
        others = std::min<std::int64_t>(others, world_size) * degrees_.along(axis);
      if (world_size % others == 0) degrees_.shard = static_cast<int>(world_size / others);
    }
    return degrees_;
  }

 private:
  Status ReadOne(std::string_view word) {
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const auto value =
        equals == std::string_view::npos ? std::nullopt : ParseNumber<int>(word.substr(equals + 1));
    if (!value || *value < 1) {
      return InvalidArgumentError(
          "'" + std::string(word) +
          "' is not a degree of a mesh: write AXIS=N with N of at least 1, as in shard=4,tensor=2");
    }
    if (name == "expert") {
      degrees_.expert = *value;
      return OkStatus();
    }
    std::vector<std::string> names{"expert"};
    for (const AxisRow& row : kAxes) {
      names.emplace_back(row.name);
      if (row.name != name) continue;
      if (std::find(named_.begin(), named_.end(), row.axis) != named_.end()) {
        return InvalidArgumentError("the mesh names '" + std::string(name) + "' twice");
      }
      degrees_.*row.degree = *value;
      named_.push_back(row.axis);
      return OkStatus();
    }
    return InvalidArgumentError(
        "a mesh has no axis '" + std::string(name) + "'" + DidYouMean(std::string(name), names) +
        "; there are pipeline, replicate, shard, sequence, tensor and expert");
  }

  Degrees degrees_;
  std::vector<Axis> named_;
};

}  // namespace

std::string_view NameOf(Axis axis) { return RowOf(axis).name; }

int Degrees::along(Axis axis) const { return this->*RowOf(axis).degree; }

StatusOr<Degrees> ParseDegrees(std::string_view text, int world_size) {
  DS_CHECK(world_size >= 1);
  DegreesText read;
  DS_RETURN_IF_ERROR(read.Read(text));
  return read.Finish(world_size);
}

Status CheckFitsModel(const Degrees& degrees, const config::ModelFacts& model) {
  if (model.layers && degrees.pipeline > *model.layers) {
    return InvalidArgumentError("pipeline " + std::to_string(degrees.pipeline) +
                                " asks for more stages than the model has layers (" +
                                std::to_string(*model.layers) + ")");
  }
  if (degrees.expert > 1 && model.experts.value_or(degrees.expert) % degrees.expert != 0) {
    return InvalidArgumentError("expert " + std::to_string(degrees.expert) +
                                " does not divide the model's " + std::to_string(*model.experts) +
                                " experts: take " +
                                NameNearestDivisors(*model.experts, degrees.expert));
  }
  return OkStatus();
}

}  // namespace ds::topology
