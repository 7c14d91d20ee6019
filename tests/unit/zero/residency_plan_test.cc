// Plans against a simulation that knows nothing of how they are made: what is read is present,
// budgets hold, what is kept is used again soon, shards are fetched before they are gathered, every
// gradient ends once, behind all that contribute to it, and nothing stays.

#include "runtime/plan/zero/residency_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "runtime/plan/zero/residency_budgets.h"

namespace ds::zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Random = std::mt19937_64;

int Draw(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}
bool DrawOneIn(Random& random, int count) { return Draw(random, 1, count) == 1; }

std::vector<PlannedUnit> DrawUnits(Random& random) {
  std::vector<PlannedUnit> units(static_cast<std::size_t>(Draw(random, 1, 12)));
  for (std::size_t i = 0; i < units.size(); ++i) {
    units[i] = {.bytes = Draw(random, 0, 100), .trained = !DrawOneIn(random, 5)};
    units[i].backward_reads = !DrawOneIn(random, 4);
    if (DrawOneIn(random, 3)) units[i].fetched_bytes = Draw(random, 1, 50);
    if (units[i].trained) units[i].reduced_bytes = Draw(random, 0, 100);
    units[i].largest_bytes = Draw(random, 0, static_cast<int>(units[i].bytes));
    for (int other = 0; other < static_cast<int>(units.size()); ++other) {
      if (other != static_cast<int>(i) && DrawOneIn(random, 10)) {
        units[i].also_reads.push_back(other);
      }
    }
  }
  return units;
}

// The units of a forward pass in order; every other time in any order, some of them several times
// and others not at all.
std::vector<int> DrawVisits(Random& random, int units) {
  std::vector<int> visits;
  const bool in_order = DrawOneIn(random, 2);
  const int count = in_order ? units : Draw(random, 1, 2 * units);
  for (int i = 0; i < count; ++i) visits.push_back(in_order ? i : Draw(random, 0, units - 1));
  return visits;
}

void AddForward(std::int64_t micro_batch, const std::vector<int>& visits,
                std::vector<PassPosition>* positions) {
  for (const int unit : visits)
    positions->push_back({PassPosition::Kind::kForward, micro_batch, unit});
}
void AddForward(std::int64_t micro_batch, int units, std::vector<PassPosition>* positions) {
  std::vector<int> visits(static_cast<std::size_t>(units));
  std::iota(visits.begin(), visits.end(), 0);
  AddForward(micro_batch, visits, positions);
}

// Units with outputs that need no gradient have no backward.
void AddBackward(Random& random, std::int64_t micro_batch, const std::vector<int>& visits,
                 std::vector<PassPosition>* positions) {
  const bool all = DrawOneIn(random, 2);
  for (auto unit = visits.rbegin(); unit != visits.rend(); ++unit) {
    if (all || !DrawOneIn(random, 4)) {
      positions->push_back({PassPosition::Kind::kBackward, micro_batch, *unit});
    }
  }
  positions->push_back({PassPosition::Kind::kEndOfMicroBatch, micro_batch});
}

// Forwards run ahead of backwards, which come in any order; now and then there is a rest, or a
// forward pass without a backward.
std::vector<PassPosition> DrawPositions(Random& random, int units) {
  std::vector<PassPosition> positions;
  struct Forward {
    std::int64_t micro_batch;
    std::vector<int> visits;
  };
  std::vector<Forward> open;
  const int micro_batches = Draw(random, 1, 4);
  for (int begun = 0; begun < micro_batches || !open.empty();) {
    if (begun < micro_batches && (open.empty() || DrawOneIn(random, 2))) {
      const std::vector<int> visits = DrawVisits(random, units);
      AddForward(begun, visits, &positions);
      if (DrawOneIn(random, 6)) {
        positions.push_back({PassPosition::Kind::kBetweenPasses});
      } else {
        open.push_back({begun, visits});
      }
      ++begun;
    } else {
      const auto chosen = open.begin() + Draw(random, 0, static_cast<int>(open.size()) - 1);
      AddBackward(random, chosen->micro_batch, chosen->visits, &positions);
      open.erase(chosen);
      if (DrawOneIn(random, 2)) positions.push_back({PassPosition::Kind::kBetweenPasses});
    }
  }
  positions.push_back({PassPosition::Kind::kBetweenPasses});
  return positions;
}

std::int64_t NeededAtOnce(const std::vector<PlannedUnit>& units) {
  std::int64_t most = 0;
  for (const PlannedUnit& unit : units) {
    std::int64_t bytes = unit.bytes;
    for (const int other : unit.also_reads) bytes += units[static_cast<std::size_t>(other)].bytes;
    most = std::max(most, bytes);
  }
  return most;
}

ResidencyPlan::Input DrawInput(Random& random) {
  ResidencyPlan::Input input{.units = DrawUnits(random),
                             .sharding = config::ShardingOfStage(Draw(random, 0, 3), 2),
                             .hold_gradients = DrawOneIn(random, 4)};
  if (!DrawOneIn(random, 3)) input.budgets.prefetch_bytes = Draw(random, 1, 400);
  if (DrawOneIn(random, 2)) {
    input.budgets.max_live_bytes = NeededAtOnce(input.units) + Draw(random, 0, 200);
  }
  if (DrawOneIn(random, 2)) input.budgets.reuse_bytes = Draw(random, 1, 600);
  if (DrawOneIn(random, 2)) input.budgets.fetch_bytes = Draw(random, 1, 200);
  if (DrawOneIn(random, 2)) input.budgets.persistent_parameter_bytes = Draw(random, 1, 40);
  if (DrawOneIn(random, 2)) input.budgets.persistent_bytes = Draw(random, 0, 300);
  input.overlap = DrawOneIn(random, 2);
  input.reduce_full_gradients = DrawOneIn(random, 4);
  if (DrawOneIn(random, 2)) input.budgets.reduce_bytes = Draw(random, 1, 300);
  const int units = static_cast<int>(input.units.size());
  input.positions = DrawPositions(random, units);
  if (DrawOneIn(random, 2)) {
    input.positions.pop_back();  // a rest
    AddBackward(random, /*micro_batch=*/99, DrawVisits(random, units), &input.expected);
  }
  return input;
}

// A rank that does as the plan says, and looks at each action whether it may be.
class Simulation {
 public:
  explicit Simulation(const ResidencyPlan::Input& input) : input_(input) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < input.units.size(); ++i) {
      const PlannedUnit& unit = input.units[i];
      const bool small = input.budgets.persistent_parameter_bytes > 0 &&
                         unit.largest_bytes <= input.budgets.persistent_parameter_bytes;
      if (!small || sum + unit.bytes > input.budgets.persistent_bytes) continue;
      persistent_.insert(static_cast<int>(i));
      sum += unit.bytes;
    }
  }

  void Do(const Action& action) {
    switch (action.kind) {
      case Action::Kind::kGather:
        EXPECT_TRUE(input_.sharding.parameters);
        EXPECT_TRUE(present_.insert(action.unit).second) << "gathered twice: " << action.unit;
        EXPECT_TRUE(!IsOffloaded(action.unit) || fetched_.count(action.unit)) << action.unit;
        EXPECT_LE(Bytes(Without(present_, persistent_)), input_.budgets.max_live_bytes);
        if (input_.overlap) arriving_.insert(action.unit);
        return;
      case Action::Kind::kRelease:
        EXPECT_FALSE(persistent_.count(action.unit)) << "was to stay: " << action.unit;
        EXPECT_EQ(present_.erase(action.unit), 1U) << "is not there: " << action.unit;
        arriving_.erase(action.unit);
        return;
      case Action::Kind::kFetch:
        EXPECT_TRUE(IsOffloaded(action.unit));
        EXPECT_FALSE(present_.count(action.unit)) << "what for: " << action.unit;
        EXPECT_TRUE(fetched_.insert(action.unit).second) << "fetched twice: " << action.unit;
        return;
      case Action::Kind::kOffload:
        EXPECT_EQ(fetched_.erase(action.unit), 1U) << "is not there: " << action.unit;
        return;
      case Action::Kind::kReduce:
        if (input_.overlap) in_flight_.insert(action.unit);
        EXPECT_TRUE(in_flight_.size() <= 1 || ReducedBytes() <= input_.budgets.reduce_bytes);
        [[fallthrough]];
      case Action::Kind::kKeepFull:
        EXPECT_EQ(
            action.kind == Action::Kind::kReduce,
            (input_.sharding.gradients || input_.reduce_full_gradients) && !input_.hold_gradients);
        ending_.push_back(action.unit);
        return;
      case Action::Kind::kAwaitParameters:
        EXPECT_TRUE(input_.overlap);
        arriving_.erase(action.unit);
        return;
      case Action::Kind::kAwaitGradients:
        EXPECT_EQ(in_flight_.erase(action.unit), 1U) << "nothing is under way: " << action.unit;
        return;
    }
  }

  // At the place, behind its actions.
  void Arrive(std::size_t index) {
    const PassPosition& position = input_.positions[index];
    const bool ends = position.kind == PassPosition::Kind::kEndOfMicroBatch;
    const bool visits = position.kind == PassPosition::Kind::kForward ||
                        position.kind == PassPosition::Kind::kBackward;
    for (const int unit : ending_) {
      EXPECT_TRUE(ends || position.kind == PassPosition::Kind::kBackward);
      EXPECT_TRUE(input_.units[static_cast<std::size_t>(unit)].trained);
      EXPECT_TRUE(ended_[position.micro_batch].insert(unit).second) << "ended twice: " << unit;
    }
    ending_.clear();
    if (ends) CheckAllEnded(position.micro_batch);
    if (ends) EXPECT_TRUE(in_flight_.empty());
    if (position.kind == PassPosition::Kind::kBetweenPasses) {
      EXPECT_TRUE(Without(present_, persistent_).empty());
      EXPECT_TRUE(fetched_.empty());
    }
    if (!visits) return;
    std::int64_t fetched = 0;
    for (const int unit : fetched_) {
      fetched += input_.units[static_cast<std::size_t>(unit)].fetched_bytes;
    }
    EXPECT_LE(fetched, input_.budgets.fetch_bytes);
    const std::set<int> needed = Needs(position);
    if (input_.sharding.parameters) {
      for (const int unit : needed) {
        EXPECT_TRUE(present_.count(unit)) << "absent: " << unit;
        EXPECT_FALSE(arriving_.count(unit)) << "not yet there: " << unit;
      }
      std::set<int> ahead = Without(Without(present_, needed), persistent_);
      std::erase_if(ahead, [&](int unit) { return IsUsedSoonAfter(index, unit); });
      EXPECT_LE(Bytes(ahead), input_.budgets.prefetch_bytes);
    }
    if (position.kind != PassPosition::Kind::kBackward) return;
    for (const int unit : Reads(position.unit)) {
      EXPECT_FALSE(ended_[position.micro_batch].count(unit))
          << "its gradient is not done: " << unit;
    }
  }

 private:
  static std::set<int> Without(const std::set<int>& units, const std::set<int>& others) {
    std::set<int> rest;
    std::set_difference(units.begin(), units.end(), others.begin(), others.end(),
                        std::inserter(rest, rest.end()));
    return rest;
  }
  std::set<int> Reads(int unit) const {
    const std::vector<int>& others = input_.units[static_cast<std::size_t>(unit)].also_reads;
    std::set<int> all(others.begin(), others.end());
    all.insert(unit);
    return all;
  }
  std::set<int> Needs(const PassPosition& position) const {
    const bool backward = position.kind == PassPosition::Kind::kBackward;
    const bool reads = input_.units[static_cast<std::size_t>(position.unit)].backward_reads;
    return backward && !reads ? std::set<int>() : Reads(position.unit);
  }
  bool IsOffloaded(int unit) const {
    return input_.units[static_cast<std::size_t>(unit)].fetched_bytes > 0;
  }
  // Whether the unit may stay from its last use to its next one.
  bool IsUsedSoonAfter(std::size_t index, int unit) const {
    std::vector<PassPosition> rest(input_.positions.begin() + static_cast<long>(index),
                                   input_.positions.end());
    rest.insert(rest.end(), input_.expected.begin(), input_.expected.end());
    std::int64_t between = 0;
    for (const PassPosition& position : rest) {
      if (position.kind == PassPosition::Kind::kBetweenPasses) return false;
      if (!position.is_visit()) continue;
      if (Needs(position).count(unit)) return between < input_.budgets.reuse_bytes;
      between += Bytes(Needs(position));
    }
    return false;
  }
  std::int64_t Bytes(const std::set<int>& units) const {
    std::int64_t bytes = 0;
    for (const int unit : units) bytes += input_.units[static_cast<std::size_t>(unit)].bytes;
    return bytes;
  }
  std::int64_t ReducedBytes() const {
    std::int64_t bytes = 0;
    for (const int unit : in_flight_) {
      bytes += input_.units[static_cast<std::size_t>(unit)].reduced_bytes;
    }
    return bytes;
  }
  void CheckAllEnded(std::int64_t micro_batch) {
    for (std::size_t i = 0; i < input_.units.size(); ++i) {
      EXPECT_EQ(ended_[micro_batch].count(static_cast<int>(i)) == 1, input_.units[i].trained) << i;
    }
  }

  const ResidencyPlan::Input& input_;
  std::set<int> persistent_;
  std::set<int> present_;
  std::set<int> arriving_;                       // of the present ones
  std::set<int> in_flight_;                      // gradients
  std::set<int> fetched_;                        // shards on the device
  std::vector<int> ending_;                      // since the place before
  std::map<std::int64_t, std::set<int>> ended_;  // by micro-batch
};

// Visits of a backward pass that its loss does not lead to are left out.
void Simulate(const ResidencyPlan& plan, const ResidencyPlan::Input& input, Random* leave_out) {
  Simulation simulation(input);
  int from = -1;
  for (int to = 0; to < static_cast<int>(input.positions.size()); ++to) {
    const PassPosition& position = input.positions[static_cast<std::size_t>(to)];
    const bool backward = position.kind == PassPosition::Kind::kBackward;
    if (leave_out != nullptr && backward && DrawOneIn(*leave_out, 3)) continue;
    for (const Action& action : plan.ListActions(from, to)) simulation.Do(action);
    simulation.Arrive(static_cast<std::size_t>(to));
    from = to;
  }
}

TEST(ResidencyPlan, HoldsInAThousandRandomSteps) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const ResidencyPlan::Input input = DrawInput(random);
    const ResidencyPlan plan(input);
    Simulate(plan, input, nullptr);
    Simulate(plan, input, &random);
    if (HasFailure()) return;
  }
}

// Units of 10 bytes; the last one also reads the first.
ResidencyPlan::Input MakeTiedInput(int units) {
  ResidencyPlan::Input input{.units = std::vector<PlannedUnit>(static_cast<std::size_t>(units)),
                             .sharding = config::ShardingOfStage(3, 2)};
  for (PlannedUnit& unit : input.units) unit = {.bytes = 10, .trained = true};
  input.units.back().also_reads = {0};
  AddForward(0, units, &input.positions);
  for (int unit = units - 1; unit >= 0; --unit) {
    input.positions.push_back({PassPosition::Kind::kBackward, 0, unit});
  }
  input.positions.push_back({PassPosition::Kind::kEndOfMicroBatch, 0});
  input.positions.push_back({PassPosition::Kind::kBetweenPasses});
  return input;
}

// "+0" gathers unit 0, "-0" releases it, "r0" reduces and "k0" keeps its gradient, "f0" fetches its
// shards and "s0" stows them, "w0" awaits its parameters and "e0" the end of its reduction; by
// place.
std::vector<std::string> Describe(const ResidencyPlan::Input& input) {
  constexpr std::string_view kNames = "rk-+fswe";
  const ResidencyPlan plan(input);
  std::vector<std::string> positions;
  for (int position = 0; position < static_cast<int>(input.positions.size()); ++position) {
    std::string text;
    for (const Action& action : plan.ListActions(position - 1, position)) {
      text += kNames[static_cast<std::size_t>(action.kind)] + std::to_string(action.unit);
    }
    positions.push_back(text);
  }
  return positions;
}

// The unit's gradient ends after its last backward, however often it is visited.
TEST(ResidencyPlan, EndsGradientsOfUnitsThatAreVisitedAgain) {
  ResidencyPlan::Input input{.units = std::vector<PlannedUnit>(3),
                             .sharding = config::ShardingOfStage(2, 2)};
  for (PlannedUnit& unit : input.units) unit = {.bytes = 10, .trained = true};
  for (const int unit : {1, 0, 1, 2})
    input.positions.push_back({PassPosition::Kind::kBackward, 0, unit});
  input.positions.push_back({PassPosition::Kind::kEndOfMicroBatch, 0});
  EXPECT_THAT(Describe(input), testing::ElementsAre("", "", "r0", "r1", "r2"));
}

// A plan from within a backward pass on: unit 2 has ended, unit 1 has ended and contributes again.
TEST(ResidencyPlan, GoesOnFromAPassThatTookAnotherPath) {
  ResidencyPlan::Input input{.units = std::vector<PlannedUnit>(3),
                             .sharding = config::ShardingOfStage(2, 2),
                             .overlap = true,
                             .ended = {1, 2},
                             .reducing = {2}};
  for (PlannedUnit& unit : input.units) unit = {.bytes = 10, .reduced_bytes = 10, .trained = true};
  input.budgets.reduce_bytes = 100;
  for (const int unit : {1, 0}) input.positions.push_back({PassPosition::Kind::kBackward, 0, unit});
  input.positions.push_back({PassPosition::Kind::kEndOfMicroBatch, 0});
  EXPECT_THAT(Describe(input), testing::ElementsAre("w1", "r1w0", "r0e2e1e0"));
  const std::uint64_t hash = ResidencyPlan(input).hash();
  input.ended = {2};
  EXPECT_NE(ResidencyPlan(input).hash(), hash);
}

TEST(ResidencyPlan, WithoutPrefetchHoldsOneUnitAndItsInputs) {
  ResidencyPlan::Input input = MakeTiedInput(3);
  EXPECT_THAT(Describe(input),
              testing::ElementsAre("+0", "-0+1", "-1+0+2", "", "r2-0-2+1", "r1-1+0", "r0", "-0"));
  input.sharding = config::ShardingOfStage(2, 2);
  EXPECT_THAT(Describe(input), testing::ElementsAre("", "", "", "", "r2", "r1", "r0", ""));
  input.hold_gradients = true;
  EXPECT_THAT(Describe(input), testing::ElementsAre("", "", "", "", "k2", "k1", "k0", ""));
  input.hold_gradients = false;
  input.sharding = config::ShardingOfStage(1, 2);
  EXPECT_THAT(Describe(input), testing::ElementsAre("", "", "", "", "k2", "k1", "k0", ""));
}

TEST(ResidencyPlan, GathersAheadAsFarAsTheBudgetsReach) {
  ResidencyPlan::Input input = MakeTiedInput(4);
  input.budgets.prefetch_bytes = 10;
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0+1", "-0+2", "-1+0", "+3", "", "r3-0-3+1",
                                                    "r2-2+0", "r1-1", "r0", "-0"));
  // What would not fit beside the last unit and the first is not begun.
  input.budgets.max_live_bytes = 20;
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0+1", "-0+2", "-1+0", "-2+3", "",
                                                    "r3-0-3+2+1", "r2-2+0", "r1-1", "r0", "-0"));
}

TEST(ResidencyPlan, StartsGathersAtOnePlaceAndAwaitsThemAtAnother) {
  ResidencyPlan::Input input = MakeTiedInput(4);
  input.units.back().also_reads = {};
  for (PlannedUnit& unit : input.units) unit.reduced_bytes = 10;
  input.overlap = true;
  input.budgets.prefetch_bytes = input.budgets.reduce_bytes = ResidencyBudgets::kLargestNeed;
  EXPECT_THAT(Describe(input),
              testing::ElementsAre("+0+1w0", "-0+2w1", "-1+3w2", "w3", "w3", "-3+1r3w2",
                                   "e3-2+0r2w1", "e2-1r1w0", "e1r0e0", "-0"));
  input.budgets.reduce_bytes = 20;
  EXPECT_THAT(Describe(input),
              testing::ElementsAre("+0+1w0", "-0+2w1", "-1+3w2", "w3", "w3", "-3+1r3w2", "-2+0r2w1",
                                   "e3-1r1w0", "e2r0e1e0", "-0"));
  input.sharding = config::ShardingOfStage(1, 2);
  EXPECT_THAT(Describe(input),
              testing::ElementsAre("w0", "w1", "w2", "w3", "w3", "k3w2", "k2w1", "k1w0", "k0", ""));
  input.reduce_full_gradients = true;
  EXPECT_THAT(Describe(input), testing::ElementsAre("w0", "w1", "w2", "w3", "w3", "r3w2", "r2w1",
                                                    "e3r1w0", "e2r0e1e0", ""));
}

// The last place needs two units, and what is gathered ahead is to be enough for it.
TEST(ResidencyPlan, HasABudgetThatTheLargestPlaceFitsInto) {
  ResidencyPlan::Input input = MakeTiedInput(3), explicitly = input;
  input.budgets.prefetch_bytes = ResidencyBudgets::kLargestNeed;
  explicitly.budgets.prefetch_bytes = 20;
  EXPECT_EQ(Describe(input), Describe(explicitly));
  EXPECT_EQ(ResidencyPlan(input).hash(), ResidencyPlan(explicitly).hash());
}

TEST(ResidencyPlan, KeepsUnitsThatAreReusedSoon) {
  ResidencyPlan::Input input = MakeTiedInput(4);
  // Units 1 and 2 are between the first unit's uses, 20 bytes, in the forward and the backward
  // pass.
  input.budgets.reuse_bytes = 21;
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0", "+1", "-1+2", "-2+3", "", "r3-3+2",
                                                    "r2-2+1", "r1-1", "r0", "-0"));
  input.budgets.reuse_bytes = 20;
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0", "-0+1", "-1+2", "-2+0+3", "", "r3-0-3+2",
                                                    "r2-2+1", "r1-1+0", "r0", "-0"));
  // Where not all of it may be live, what is used first stays.
  input.budgets.reuse_bytes = 1000;
  input.budgets.max_live_bytes = 30;
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0", "+1", "+2", "-1+3", "", "r3-3", "r2-2+1",
                                                    "r1-1", "r0", "-0"));
}

TEST(ResidencyPlan, KeepsSmallUnitsAfterTheFirstGather) {
  ResidencyPlan::Input input = MakeTiedInput(4);
  for (PlannedUnit& unit : input.units) unit.largest_bytes = 8;
  input.units[1].largest_bytes = input.units[2].largest_bytes = 4;
  input.budgets.persistent_parameter_bytes = 4;
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0", "-0+1", "+2", "+0+3", "", "r3-0-3", "r2",
                                                    "r1+0", "r0", "-0"));
  input.present = {1, 2};  // from the pass before
  EXPECT_THAT(Describe(input),
              testing::ElementsAre("+0", "-0", "", "+0+3", "", "r3-0-3", "r2", "r1+0", "r0", "-0"));
  // What stays takes nothing of what may be gathered ahead, but of what may be live.
  ResidencyPlan::Input untied = input;
  untied.units.back().also_reads = {};
  untied.budgets.prefetch_bytes = 10;
  EXPECT_THAT(Describe(untied),
              testing::ElementsAre("+0+3", "-0", "", "+0", "", "r3-3", "r2", "r1", "r0", "-0"));
  untied.budgets.max_live_bytes = 30;
  EXPECT_THAT(Describe(untied),
              testing::ElementsAre("+0", "-0+3", "", "", "", "r3-3+0", "r2", "r1", "r0", "-0"));
  input.budgets = {.persistent_parameter_bytes = 4, .persistent_bytes = 19};
  input.present = {};
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0", "-0+1", "+2", "-2+0+3", "", "r3-0-3+2",
                                                    "r2-2", "r1+0", "r0", "-0"));
}

TEST(ResidencyPlan, KeepsUnitsOfExpectedPlacesWithoutGathers) {
  ResidencyPlan::Input input = MakeTiedInput(3);
  input.expected.assign(input.positions.begin() + 3, input.positions.end());
  input.positions.resize(3);
  input.budgets.prefetch_bytes = 10;
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0+1", "", "-1+2"));
  input.budgets.reuse_bytes = 1000;
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0+1", "", "+2")) << "1 is used again";
}

// Units of 10 bytes are 5 elements of two bytes.
TEST(ResidencyPlan, TakesItsBudgetsFromTheConfig) {
  const auto describe = [](const config::ZeroConfig& config) {
    ResidencyPlan::Input input = MakeTiedInput(4);
    for (PlannedUnit& unit : input.units) unit.largest_bytes = unit.bytes;
    input.budgets = MakeResidencyBudgets(config, {.parameter = 2}, /*overlap=*/false);
    return Describe(input);
  };
  const std::vector<std::string> plain = Describe(MakeTiedInput(4));
  EXPECT_EQ(describe({}), plain) << "the defaults";
  EXPECT_EQ(describe({.prefetch_bucket_size = 4}), plain) << "less than a unit";
  EXPECT_THAT(describe({.prefetch_bucket_size = 5}),
              testing::ElementsAre("+0+1", "-0+2", "-1+0", "+3", "", "r3-0-3+1", "r2-2+0", "r1-1",
                                   "r0", "-0"));
  EXPECT_THAT(describe({.prefetch_bucket_size = 5, .max_live_parameters = 10}),
              testing::ElementsAre("+0+1", "-0+2", "-1+0", "-2+3", "", "r3-0-3+2+1", "r2-2+0",
                                   "r1-1", "r0", "-0"));
  EXPECT_EQ(describe({.max_reuse_distance = 10}), plain);
  EXPECT_THAT(
      describe({.max_reuse_distance = 11}),
      testing::ElementsAre("+0", "+1", "-1+2", "-2+3", "", "r3-3+2", "r2-2+1", "r1-1", "r0", "-0"));
  EXPECT_EQ(describe({.param_persistence_threshold = 4}), plain);
  EXPECT_THAT(describe({.param_persistence_threshold = 5}),
              testing::ElementsAre("+0", "+1", "+2", "+3", "", "r3", "r2", "r1", "r0", ""));
  EXPECT_THAT(describe({.param_persistence_threshold = 5, .model_persistence_threshold = 10}),
              testing::ElementsAre("+0", "+1", "+2", "-2+3", "", "r3-3+2", "r2-2", "r1", "r0", ""))
      << "the first two";
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(describe({.prefetch_bucket_size = kMost, .max_reuse_distance = kMost}),
              testing::ElementsAre("+0+1+2+3", "", "", "", "", "r3-3", "r2-2", "r1-1", "r0", "-0"));
}

// Units whose gradients are 5 elements of four bytes.
TEST(ResidencyPlan, TakesItsBudgetsForOverlapFromTheConfig) {
  const auto describe = [](const config::ZeroConfig& config) {
    ResidencyPlan::Input input = MakeTiedInput(3);
    input.units.back().also_reads = {};
    for (PlannedUnit& unit : input.units) unit.reduced_bytes = 20;
    input.overlap = true;
    input.budgets = MakeResidencyBudgets(config, {.parameter = 2, .gradient = 4}, /*overlap=*/true);
    return Describe(input);
  };
  const auto one_ahead =
      testing::ElementsAre("+0+1w0", "-0+2w1", "w2", "w2", "-2+0r2w1", "e2-1r1w0", "e1r0e0", "-0");
  EXPECT_THAT(describe({}), one_ahead);
  EXPECT_THAT(describe({.reduce_bucket_size = 9}), one_ahead) << "less than two";
  EXPECT_THAT(
      describe({.reduce_bucket_size = 10}),
      testing::ElementsAre("+0+1w0", "-0+2w1", "w2", "w2", "-2+0r2w1", "-1r1w0", "e2r0e1e0", "-0"));
  // As of stage3_allgather_sequential.
  EXPECT_THAT(describe({.prefetch_bucket_size = 1}),
              testing::ElementsAre("+0w0", "-0+1w1", "-1+2w2", "w2", "-2+1r2w1", "e2-1+0r1w0",
                                   "e1r0e0", "-0"));
}

TEST(ResidencyPlan, OverlapsCallsThatDoNotTakeTheCoresOfTheComputation) {
  const CallSetting one_host, hosts{.spans_hosts = true}, gpu{.on_gpu = true};
  EXPECT_FALSE(ChooseOverlap({.overlap_comm = true}, one_host));
  EXPECT_TRUE(ChooseOverlap({.overlap_comm = true}, hosts));
  EXPECT_TRUE(ChooseOverlap({.overlap_comm = true}, gpu));
  EXPECT_FALSE(ChooseOverlap({.overlap_comm = false}, hosts));
  EXPECT_FALSE(ChooseOverlap({.overlap_comm = false}, gpu));
}

TEST(ResidencyPlan, FetchesShardsBeforeTheyAreGathered) {
  ResidencyPlan::Input input = MakeTiedInput(3);
  for (PlannedUnit& unit : input.units) unit.fetched_bytes = 5;
  EXPECT_THAT(Describe(input), testing::ElementsAre("f0+0s0", "-0f1+1s1", "-1f0+0s0f2+2s2", "",
                                                    "r2-0-2f1+1s1", "r1-1f0+0s0", "r0", "-0"));
  input.budgets.fetch_bytes = 5;
  EXPECT_THAT(Describe(input), testing::ElementsAre("f0+0s0f1", "-0+1s1f0", "-1+0s0f2+2s2f1", "",
                                                    "r2-0-2+1s1f0", "r1-1+0s0", "r0", "-0"));
  input.units[0].fetched_bytes = 0;
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0f1", "-0+1s1f2", "-1+0+2s2f1", "",
                                                    "r2-0-2+1s1", "r1-1+0", "r0", "-0"))
      << "one that lies on the device";
}

// Nobody could wait for a plan whose cost grows with the square of the units.
TEST(ResidencyPlan, OfManyUnitsAndBoundlessBudgetsIsMadeAtOnce) {
  constexpr int kUnits = 50'000;
  ResidencyPlan::Input input = MakeTiedInput(kUnits);
  for (PlannedUnit& unit : input.units) unit.fetched_bytes = 5;
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  input.budgets = {.prefetch_bytes = kAll / 2, .reuse_bytes = kAll / 2, .fetch_bytes = kAll / 2};
  const ResidencyPlan plan(input);
  int gathers = 0;
  for (int position = 0; position < static_cast<int>(input.positions.size()); ++position) {
    for (const Action& action : plan.ListActions(position - 1, position)) {
      if (action.kind == Action::Kind::kGather) ++gathers;
    }
  }
  EXPECT_EQ(gathers, kUnits) << "each once, as all of it stays";
}

// The tied embedding stays for the head's backward, and does not come for its own.
TEST(ResidencyPlan, GathersNothingForABackwardThatReadsNoParameters) {
  ResidencyPlan::Input input = MakeTiedInput(4);
  input.units[0].backward_reads = false;
  EXPECT_THAT(Describe(input), testing::ElementsAre("+0", "-0+1", "-1+2", "-2+0+3", "", "r3-0-3+2",
                                                    "r2-2+1", "r1-1", "r0", ""));
  input.budgets.prefetch_bytes = 1000;
  EXPECT_THAT(Describe(input)[6], "r2-2") << "nor is it gathered ahead for it";
  input.overlap = true;
  EXPECT_THAT(Describe(input)[7], testing::Not(HasSubstr("w0")));
}

// As DeepSpeed does: the budget limits what is gathered ahead and kept, not what a place needs.
TEST(ResidencyPlan, GathersAUnitAboveTheLiveLimitAlone) {
  ResidencyPlan::Input input = MakeTiedInput(3);
  const ResidencyPlan plain(input);
  input.budgets = {.prefetch_bytes = 1000, .max_live_bytes = 0, .reuse_bytes = 1000};
  const ResidencyPlan plan(input);
  for (int position = 0; position < static_cast<int>(input.positions.size()); ++position) {
    EXPECT_EQ(plan.ListActions(position - 1, position), plain.ListActions(position - 1, position))
        << position;
  }
}

TEST(ResidencyPlan, HasAHashThatDistinguishesPlans) {
  const auto hash = [](const ResidencyPlan::Input& input) { return ResidencyPlan(input).hash(); };
  const ResidencyPlan::Input input = MakeTiedInput(4);
  EXPECT_EQ(hash(input), hash(MakeTiedInput(4)));
  std::vector<ResidencyPlan::Input> others(19, input);
  others[0].units[1].bytes = 11;
  others[1].units[1].trained = false;
  others[2].units[2].also_reads = {1};
  others[3].sharding.parameters = false;
  others[4].budgets.prefetch_bytes = 1;
  others[5].hold_gradients = true;
  std::swap(others[6].positions[1], others[6].positions[2]);
  others[7].budgets.reuse_bytes = 1;
  others[8].budgets.fetch_bytes = 1;
  others[9].units[1].fetched_bytes = 1;
  others[10].expected = {{PassPosition::Kind::kBackward, 0, 1}};
  others[11].units[1].largest_bytes = 1;
  others[12].budgets.persistent_parameter_bytes = 1;
  others[13].budgets.persistent_bytes = 1;
  others[14].overlap = true;
  others[15].reduce_full_gradients = true;
  others[16].units[1].reduced_bytes = 1;
  others[17].budgets.reduce_bytes = 1;
  others[18].units[1].backward_reads = false;
  std::set<std::uint64_t> hashes = {hash(input)};
  for (const ResidencyPlan::Input& other : others) {
    EXPECT_TRUE(hashes.insert(hash(other)).second) << &other - others.data();
  }
}

}  // namespace
}  // namespace ds::zero
