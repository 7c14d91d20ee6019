#include "runtime/zero/residency.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"

namespace ds::zero {
namespace {

PlannedUnit DescribeUnit(const Unit& unit) {
  PlannedUnit planned{.also_reads = unit.also_reads(), .backward_reads = unit.backward_reads()};
  for (const auto& bucket : unit.buckets()) {
    const at::Tensor& full = bucket->parameters().full();
    planned.bytes += bucket->parameters().layout().padded_numel() *
                     static_cast<std::int64_t>(full.element_size());
    for (int i = 0; i < bucket->parameters().layout().size(); ++i) {
      planned.largest_bytes =
          std::max(planned.largest_bytes, bucket->parameters().layout().parameter(i).count *
                                              static_cast<std::int64_t>(full.element_size()));
    }
    planned.trained = planned.trained || bucket->trainable();
    if (bucket->trainable()) planned.reduced_bytes += bucket->gradients().travelling_bytes();
    if (bucket->parameters().rests_away()) {
      const Store& kept = bucket->parameters().store();
      planned.fetched_bytes +=
          kept.whole().count * static_cast<std::int64_t>(c10::elementSize(kept.dtype()));
    }
  }
  return planned;
}

// The backward pass that follows a forward pass, unless its graph is cut or dropped.
std::vector<Place> ListBackward(UnitRange units, std::int64_t micro_batch) {
  std::vector<Place> places;
  for (int unit = units.end - 1; unit >= units.first; --unit) {
    places.push_back({Place::Kind::kBackward, micro_batch, unit});
  }
  return places;
}

std::vector<Place> ListForward(UnitRange units, std::int64_t micro_batch) {
  std::vector<Place> places;
  for (int unit = units.first; unit < units.end; ++unit) {
    places.push_back({Place::Kind::kForward, micro_batch, unit});
  }
  return places;
}

}  // namespace

Residency::Residency(const Context& context, const std::vector<std::unique_ptr<Unit>>& units,
                     std::uint64_t model)
    : context_(context), units_(units), hash_(model) {
  for (const auto& unit : units) planned_.push_back(DescribeUnit(*unit));
}

void Residency::Start(std::vector<Place> places, GradientEnd end, UnitRange units,
                      std::vector<Place> expected) {
  const bool is_part = units.first > 0 || units.end < static_cast<int>(units_.size());
  plan_.emplace(ResidencyPlan::Input{
      .units = planned_,
      .sharding = context_.sharding,
      .budgets = context_.budgets,
      .overlap = context_.overlap,
      .keeps_parameters = keeps_parameters_,
      .hold_gradients = end == GradientEnd::kHeld,
      .reduce_whole_gradients =
          end == GradientEnd::kUpdate || (end == GradientEnd::kLast && context_.overlap),
      .gradients_come_later = end == GradientEnd::kLater,
      .places = std::move(places),
      .expected = std::move(expected),
      .present = present_,
      .fetched = fetched_,
      .pass = is_part ? std::optional(units) : std::nullopt});
  end_ = end;
  at_ = -1;
}

std::optional<int> Residency::Find(Place::Kind kind, int unit) const {
  if (!plan_) return std::nullopt;
  const std::vector<Place>& places = plan_->places();
  for (int i = at_ + 1; i < static_cast<int>(places.size()); ++i) {
    const Place& place = places[static_cast<std::size_t>(i)];
    if (place.kind == kind && place.unit == unit) return i;
  }
  return std::nullopt;
}

void Residency::GoTo(int place) {
  const std::vector<Action> actions = plan_->ListActions(at_, place);
  if (std::any_of(actions.begin(), actions.end(),
                  [](const Action& action) { return action.collective(); })) {
    hash_ = ExtendKey(ExtendKey(hash_, plan_->hash()), static_cast<std::uint64_t>(place));
  }
  for (const Action& action : actions) Execute(action);
  at_ = place;
  if (end_ == GradientEnd::kUpdate) Update(actions);
}

// The next unit's data is loaded while earlier units are updated.
void Residency::Update(const std::vector<Action>& actions) {
  const Place& place = plan_->places()[static_cast<std::size_t>(at_)];
  if (place.kind == Place::Kind::kBackward) updates_.prepare(place.unit);
  const auto end = context_.overlap ? Action::Kind::kAwaitGradients : Action::Kind::kReduce;
  for (const Action& action : actions) {
    if (action.kind == end) updates_.update(action.unit);
  }
}

void Residency::Execute(const Action& action) {
  Unit& unit = *units_[static_cast<std::size_t>(action.unit)];
  switch (action.kind) {
    case Action::Kind::kReduce:
      unit.EndMicroBatch(end_ == GradientEnd::kUpdate && !context_.tiers.takes_back
                             ? MicroBatchEnd::kUse
                             : MicroBatchEnd::kReduce);
      return;
    case Action::Kind::kKeepWhole:
      unit.EndMicroBatch(MicroBatchEnd::kWait);
      return;
    case Action::Kind::kRelease:
      unit.Release();
      std::erase(present_, action.unit);
      return;
    case Action::Kind::kGather:
      unit.Gather();
      present_.push_back(action.unit);
      return;
    case Action::Kind::kFetch:
      unit.Fetch();
      fetched_.push_back(action.unit);
      return;
    case Action::Kind::kAwaitParameters:
      unit.AwaitParameters();
      return;
    case Action::Kind::kAwaitGradients:
      unit.AwaitGradients();
      return;
    case Action::Kind::kStow:
      unit.Stow();
      std::erase(fetched_, action.unit);
      return;
  }
}

std::shared_ptr<ForwardGraph> Residency::BeginForward(UnitRange units) {
  graph_.reset();
  auto graph =
      std::make_shared<ForwardGraph>(ForwardGraph{.micro_batch = micro_batches_, .units = units});
  const bool keeps = context_.budgets.reuse_bytes > 0 && c10::GradMode::is_enabled();
  Start(ListForward(units, graph->micro_batch), {}, units,
        keeps ? ListBackward(units, graph->micro_batch) : std::vector<Place>());
  return graph;
}

// A pass without marks does not count as a micro-batch. If nothing is gathered, a rank may
// therefore evaluate alone and still have the same count as the others.
void Residency::AddMark(int unit, ForwardGraph* graph) {
  if (graph->marked.empty()) ++micro_batches_;
  graph->marked.push_back(unit);
}

void Residency::EnterForward(int unit) {
  const std::optional<int> place = Find(Place::Kind::kForward, unit);
  DS_CHECK_MSG(place.has_value(), "a forward pass has not begun, or goes back");
  GoTo(*place);
}

void Residency::StartBackward(const GraphPtr& graph, GradientEnd end) {
  // The previous forward pass's backward is over.
  if (graph_) GoTo(*Find(Place::Kind::kEndOfMicroBatch));
  graph_ = graph;
  std::vector<Place> places;
  for (auto unit = graph->marked.rbegin(); unit != graph->marked.rend(); ++unit) {
    places.push_back({Place::Kind::kBackward, graph->micro_batch, *unit});
  }
  places.push_back({Place::Kind::kEndOfMicroBatch, graph->micro_batch});
  Start(std::move(places), end, graph->units);
}

void Residency::EnterBackward(const GraphPtr& graph, int unit, GradientEnd end) {
  std::optional<int> place = Find(Place::Kind::kBackward, unit);
  if (graph != graph_ || !place) {
    StartBackward(graph, end);
    place = Find(Place::Kind::kBackward, unit);
  }
  DS_CHECK(place.has_value());
  GoTo(*place);
}

void Residency::EndBackward(UnitRange units, GradientEnd end) {
  if (!graph_) {
    StartBackward(std::make_shared<const ForwardGraph>(ForwardGraph{.units = units}), end);
  }
  GoTo(*Find(Place::Kind::kEndOfMicroBatch));
  if (end_ == GradientEnd::kUpdate) updates_.end();
  Rest();
}

void Residency::BringGradients(UnitRange units, GradientEnd end,
                               const std::function<void(int)>& arrive) {
  graph_.reset();
  std::vector<Place> places;
  for (int unit = units.end - 1; unit >= units.first; --unit) {
    places.push_back({Place::Kind::kWeightGradient, 0, unit});
  }
  places.push_back({Place::Kind::kEndOfMicroBatch});
  Start(std::move(places), end, units);
  for (int unit = units.end - 1; unit >= 0; --unit) {
    if (unit >= units.first) GoTo(*Find(Place::Kind::kWeightGradient, unit));
    arrive(unit);
  }
  GoTo(*Find(Place::Kind::kEndOfMicroBatch));
}

void Residency::Rest() {
  graph_.reset();
  if (present_.empty() && fetched_.empty()) return;
  Start({{Place::Kind::kRest}}, {}, {0, static_cast<int>(units_.size())});
  GoTo(0);
}

void Residency::KeepParameters(bool keep) {
  if (std::exchange(keeps_parameters_, keep) && !keep) Rest();
}

void Residency::AwaitParameters() {
  for (const auto& unit : units_) unit->AwaitParameters();
}

void Residency::Bring(const std::set<int>& units) {
  Evict();
  for (const int unit : units) {
    using Kind = Action::Kind;
    for (const Kind kind : {Kind::kFetch, Kind::kGather, Kind::kAwaitParameters, Kind::kStow}) {
      Execute({kind, unit});
    }
    hash_ = ExtendKey(hash_, static_cast<std::uint64_t>(unit));
  }
}

void Residency::Evict() {
  Rest();
  AwaitParameters();
  for (const int unit : present_) units_[static_cast<std::size_t>(unit)]->Release();
  present_.clear();
}

}  // namespace ds::zero
