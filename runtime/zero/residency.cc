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

constexpr int kNoMark = -1;  // of a position that is no backward

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
    if (bucket->parameters().is_offloaded()) {
      const Store& stored = bucket->parameters().store();
      planned.fetched_bytes +=
          stored.full_range().count * static_cast<std::int64_t>(c10::elementSize(stored.dtype()));
    }
  }
  return planned;
}

std::vector<PassPosition> ListPositions(PassPosition::Kind kind, std::int64_t micro_batch,
                                        const std::vector<int>& units) {
  std::vector<PassPosition> positions;
  for (const int unit : units) positions.push_back({kind, micro_batch, unit});
  return positions;
}

}  // namespace

Residency::Residency(const Context& context, const std::vector<std::unique_ptr<Unit>>& units,
                     std::uint64_t model)
    : context_(context), units_(units), hash_(model) {
  for (const auto& unit : units) planned_.push_back(DescribeUnit(*unit));
}

void Residency::Start(std::vector<PassPosition> positions, GradientEnd end, UnitRange units,
                      std::vector<PassPosition> expected) {
  const bool is_part = units.first > 0 || units.end < static_cast<int>(units_.size());
  plan_.emplace(
      ResidencyPlan::Input{.units = planned_,
                           .sharding = context_.sharding,
                           .budgets = context_.budgets,
                           .overlap = context_.overlap,
                           .keeps_parameters = keeps_parameters_,
                           .hold_gradients = end == GradientEnd::kHeld,
                           .reduce_full_gradients = end == GradientEnd::kUpdate ||
                                                    (end == GradientEnd::kLast && context_.overlap),
                           .gradients_come_later = end == GradientEnd::kLater,
                           .positions = std::move(positions),
                           .expected = std::move(expected),
                           .present = present_,
                           .fetched = fetched_,
                           .ended = ended_,
                           .reducing = reducing_,
                           .pass = is_part ? std::optional(units) : std::nullopt});
  end_ = end;
  at_ = -1;
  plan_is_stale_ = false;
  planned_marks_.clear();
}

std::optional<int> Residency::Find(PassPosition::Kind kind, int unit) const {
  if (!plan_) return std::nullopt;
  const std::vector<PassPosition>& positions = plan_->positions();
  for (int i = at_ + 1; i < static_cast<int>(positions.size()); ++i) {
    const PassPosition& position = positions[static_cast<std::size_t>(i)];
    if (position.kind == kind && position.unit == unit) return i;
  }
  return std::nullopt;
}

void Residency::GoTo(int position) {
  const std::vector<Action> actions = plan_->ListActions(at_, position);
  if (std::any_of(actions.begin(), actions.end(),
                  [](const Action& action) { return action.collective(); })) {
    hash_ = ExtendKey(ExtendKey(hash_, plan_->hash()), static_cast<std::uint64_t>(position));
  }
  for (const Action& action : actions) Execute(action);
  at_ = position;
  if (end_ == GradientEnd::kUpdate) Update(actions);
}

// The next unit's data is loaded while earlier units are updated.
void Residency::Update(const std::vector<Action>& actions) {
  const PassPosition& position = plan_->positions()[static_cast<std::size_t>(at_)];
  if (position.kind == PassPosition::Kind::kBackward) updates_.prepare(position.unit);
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
      unit.EndMicroBatch(end_ == GradientEnd::kUpdate && !context_.tiers.rolls_back
                             ? MicroBatchEnd::kUse
                             : MicroBatchEnd::kReduce);
      return;
    case Action::Kind::kKeepFull:
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
    case Action::Kind::kOffload:
      unit.Offload();
      std::erase(fetched_, action.unit);
      return;
  }
}

void Residency::BeginForward(UnitRange units, const std::vector<int>& visits) {
  EndMicroBatch();
  forward_ =
      std::make_shared<ForwardGraph>(ForwardGraph{.micro_batch = micro_batches_, .units = units});
  visits_.clear();
  std::vector<PassPosition> expected;
  if (context_.budgets.reuse_bytes > 0 && c10::GradMode::is_enabled()) {
    // The backward pass that follows, unless its graph is cut or dropped.
    expected = ListPositions(PassPosition::Kind::kBackward, micro_batches_,
                             {visits.rbegin(), visits.rend()});
  }
  Start(ListPositions(PassPosition::Kind::kForward, micro_batches_, visits), {}, units,
        std::move(expected));
}

void Residency::EnterForward(int unit) {
  DS_CHECK_MSG(forward_ != nullptr, "a forward pass has not begun");
  std::optional<int> position;
  if (!plan_is_stale_) position = Find(PassPosition::Kind::kForward, unit);
  if (!position) {
    const PassPosition visit{PassPosition::Kind::kForward, forward_->micro_batch, unit};
    graph_ ? PlanBackward(visit) : PlanForward(visit);
    position = 0;
  }
  if (!graph_) visits_.push_back(unit);
  GoTo(*position);
}

void Residency::AddReads(int unit, int other) {
  std::vector<int>& reads = planned_[static_cast<std::size_t>(unit)].also_reads;
  if (unit == other || std::find(reads.begin(), reads.end(), other) != reads.end()) return;
  reads.push_back(other);
  plan_is_stale_ = true;
}

// The visits after the unexpected one are expected to be those that the plan still has.
void Residency::PlanForward(const PassPosition& first) {
  std::vector<PassPosition> positions{first};
  const auto rest = plan_->positions().begin() + (at_ + 1);
  std::copy_if(
      rest, plan_->positions().end(), std::back_inserter(positions),
      [](const PassPosition& position) { return position.kind == PassPosition::Kind::kForward; });
  Start(std::move(positions), {}, forward_->units);
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
  if (graph_) GoTo(*Find(PassPosition::Kind::kEndOfMicroBatch));
  EndMicroBatch();
  graph_ = graph;
  end_ = end;
  pending_.clear();
  for (int mark = static_cast<int>(graph->marked.size()) - 1; mark >= 0; --mark) {
    pending_.push_back(mark);
  }
  PlanBackward(std::nullopt);
}

void Residency::PlanBackward(const std::optional<PassPosition>& first) {
  std::vector<PassPosition> positions;
  std::vector<int> marks;
  if (first) {
    positions.push_back(*first);
    marks.push_back(kNoMark);
  }
  for (const int mark : pending_) {
    const int unit = graph_->marked[static_cast<std::size_t>(mark)];
    positions.push_back({PassPosition::Kind::kBackward, graph_->micro_batch, unit});
  }
  positions.push_back({PassPosition::Kind::kEndOfMicroBatch, graph_->micro_batch});
  marks.insert(marks.end(), pending_.begin(), pending_.end());
  Start(std::move(positions), end_, graph_->units);
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
  auto position = std::find(ahead, planned_marks_.end(), mark.index);
  if (position == planned_marks_.end()) {
    std::erase(pending_, mark.index);
    pending_.insert(pending_.begin(), mark.index);
    PlanBackward(std::nullopt);
    position = planned_marks_.begin();
  }
  std::erase(pending_, mark.index);
  CheckIsNotUpdated(graph_->marked[static_cast<std::size_t>(mark.index)]);
  GoTo(static_cast<int>(position - planned_marks_.begin()));
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
  GoTo(*Find(PassPosition::Kind::kEndOfMicroBatch));
  if (end_ == GradientEnd::kUpdate) updates_.end();
  ReleaseAll();
}

void Residency::BringGradients(UnitRange units, GradientEnd end,
                               const std::function<void(int)>& arrive) {
  EndMicroBatch();
  std::vector<PassPosition> positions;
  for (int unit = units.end - 1; unit >= units.first; --unit) {
    positions.push_back({PassPosition::Kind::kWeightGradient, 0, unit});
  }
  positions.push_back({PassPosition::Kind::kEndOfMicroBatch});
  Start(std::move(positions), end, units);
  for (int unit = units.end - 1; unit >= 0; --unit) {
    if (unit >= units.first) GoTo(*Find(PassPosition::Kind::kWeightGradient, unit));
    arrive(unit);
  }
  GoTo(*Find(PassPosition::Kind::kEndOfMicroBatch));
}

void Residency::ReleaseAll() {
  EndMicroBatch();
  if (present_.empty() && fetched_.empty()) return;
  Start({{PassPosition::Kind::kBetweenPasses}}, {}, {0, static_cast<int>(units_.size())});
  GoTo(0);
}

void Residency::KeepParameters(bool keep) {
  if (std::exchange(keeps_parameters_, keep) && !keep) ReleaseAll();
}

void Residency::AwaitParameters() {
  for (const auto& unit : units_) unit->AwaitParameters();
}

void Residency::Bring(const std::set<int>& units) {
  Evict();
  for (const int unit : units) {
    using Kind = Action::Kind;
    for (const Kind kind : {Kind::kFetch, Kind::kGather, Kind::kAwaitParameters, Kind::kOffload}) {
      Execute({kind, unit});
    }
    hash_ = ExtendKey(hash_, static_cast<std::uint64_t>(unit));
  }
}

void Residency::Evict() {
  ReleaseAll();
  AwaitParameters();
  for (const int unit : present_) units_[static_cast<std::size_t>(unit)]->Release();
  present_.clear();
}

}  // namespace ds::zero
