#include "runtime/zero/residency.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"

namespace ds::zero {
namespace {

constexpr int kNoMark = -1;  // of a place that is no backward

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

std::vector<Place> ListPlaces(Place::Kind kind, std::int64_t micro_batch,
                              const std::vector<int>& units) {
  std::vector<Place> places;
  for (const int unit : units) places.push_back({kind, micro_batch, unit});
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
      .ended = ended_,
      .reducing = reducing_,
      .pass = is_part ? std::optional(units) : std::nullopt});
  end_ = end;
  at_ = -1;
  planned_marks_.clear();
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
      ended_.push_back(action.unit);
      if (context_.overlap) reducing_.push_back(action.unit);
      unit.EndMicroBatch(end_ == GradientEnd::kUpdate && !context_.tiers.takes_back
                             ? MicroBatchEnd::kUse
                             : MicroBatchEnd::kReduce);
      return;
    case Action::Kind::kKeepWhole:
      ended_.push_back(action.unit);
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
      std::erase(reducing_, action.unit);
      unit.AwaitGradients();
      return;
    case Action::Kind::kStow:
      unit.Stow();
      std::erase(fetched_, action.unit);
      return;
  }
}

void Residency::BeginForward(UnitRange units, const std::vector<int>& visits) {
  EndMicroBatch();
  forward_ =
      std::make_shared<ForwardGraph>(ForwardGraph{.micro_batch = micro_batches_, .units = units});
  visits_.clear();
  std::vector<Place> expected;
  if (context_.budgets.reuse_bytes > 0 && c10::GradMode::is_enabled()) {
    // The backward pass that follows, unless its graph is cut or dropped.
    expected = ListPlaces(Place::Kind::kBackward, micro_batches_, {visits.rbegin(), visits.rend()});
  }
  Start(ListPlaces(Place::Kind::kForward, micro_batches_, visits), {}, units, std::move(expected));
}

void Residency::EnterForward(int unit) {
  DS_CHECK_MSG(forward_ != nullptr, "a forward pass has not begun");
  std::optional<int> place = Find(Place::Kind::kForward, unit);
  if (!place) {
    const Place visit{Place::Kind::kForward, forward_->micro_batch, unit};
    graph_ ? PlanBackward(visit) : PlanForward(visit);
    place = 0;
  }
  if (!graph_) visits_.push_back(unit);
  GoTo(*place);
}

// The visits after the unexpected one are expected to be those that the plan still has.
void Residency::PlanForward(const Place& first) {
  std::vector<Place> places{first};
  const auto rest = plan_->places().begin() + (at_ + 1);
  std::copy_if(rest, plan_->places().end(), std::back_inserter(places),
               [](const Place& place) { return place.kind == Place::Kind::kForward; });
  Start(std::move(places), {}, forward_->units);
}

// A pass without marks does not count as a micro-batch. If nothing is gathered, a rank may
// therefore evaluate alone and still have the same count as the others.
Residency::Mark Residency::AddMark(int unit) {
  ForwardGraph& graph = graph_ ? *graph_ : *forward_;
  const auto index = static_cast<int>(graph.marked.size());
  if (index == 0) ++micro_batches_;
  graph.marked.push_back(unit);
  if (graph_) pending_.insert(pending_.begin(), index);
  return {graph_ ? graph_ : forward_, index};
}

void Residency::EndMicroBatch() {
  graph_.reset();
  ended_.clear();
  reducing_.clear();
}

void Residency::StartBackward(const GraphPtr& graph, GradientEnd end) {
  // The previous forward pass's backward is over.
  if (graph_) GoTo(*Find(Place::Kind::kEndOfMicroBatch));
  EndMicroBatch();
  graph_ = graph;
  end_ = end;
  pending_.clear();
  for (int mark = static_cast<int>(graph->marked.size()) - 1; mark >= 0; --mark) {
    pending_.push_back(mark);
  }
  PlanBackward(std::nullopt);
}

void Residency::PlanBackward(const std::optional<Place>& first) {
  std::vector<Place> places;
  std::vector<int> marks;
  if (first) {
    places.push_back(*first);
    marks.push_back(kNoMark);
  }
  for (const int mark : pending_) {
    const int unit = graph_->marked[static_cast<std::size_t>(mark)];
    places.push_back({Place::Kind::kBackward, graph_->micro_batch, unit});
  }
  places.push_back({Place::Kind::kEndOfMicroBatch, graph_->micro_batch});
  marks.insert(marks.end(), pending_.begin(), pending_.end());
  Start(std::move(places), end_, graph_->units);
  planned_marks_ = std::move(marks);
}

// A mark that is pending and not ahead in the plan was made by a recomputation, or is reached in
// another order than the forward pass has left the marks in.
void Residency::EnterBackward(const Mark& mark, GradientEnd end) {
  const auto is_pending = [&] {
    return std::find(pending_.begin(), pending_.end(), mark.index) != pending_.end();
  };
  if (mark.graph != graph_ || !is_pending()) StartBackward(mark.graph, end);
  const auto ahead = planned_marks_.begin() + (at_ + 1);
  auto place = std::find(ahead, planned_marks_.end(), mark.index);
  if (place == planned_marks_.end()) {
    std::erase(pending_, mark.index);
    pending_.insert(pending_.begin(), mark.index);
    PlanBackward(std::nullopt);
    place = planned_marks_.begin();
  }
  std::erase(pending_, mark.index);
  CheckIsNotUpdated(graph_->marked[static_cast<std::size_t>(mark.index)]);
  GoTo(static_cast<int>(place - planned_marks_.begin()));
}

void Residency::CheckIsNotUpdated(int unit) const {
  const bool has_ended = std::find(ended_.begin(), ended_.end(), unit) != ended_.end();
  TORCH_CHECK(end_ != GradientEnd::kUpdate || !has_ended, "the backward pass reaches ",
              units_[static_cast<std::size_t>(unit)]->name(), " again after its update");
}

void Residency::EndBackward(UnitRange units, GradientEnd end) {
  if (!graph_) {
    StartBackward(std::make_shared<ForwardGraph>(ForwardGraph{.units = units}), end);
  }
  GoTo(*Find(Place::Kind::kEndOfMicroBatch));
  if (end_ == GradientEnd::kUpdate) updates_.end();
  Rest();
}

void Residency::BringGradients(UnitRange units, GradientEnd end,
                               const std::function<void(int)>& arrive) {
  EndMicroBatch();
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
  EndMicroBatch();
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
