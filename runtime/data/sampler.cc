#include "runtime/data/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "runtime/base/check.h"
#include "runtime/base/split_mix.h"

namespace ds::data {

Permutation::Permutation(std::int64_t size, std::uint64_t key)
    : size_(static_cast<std::uint64_t>(size)) {
  DS_CHECK(size >= 1);
  half_bits_ = (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2;
  for (std::uint64_t& round_key : round_keys_) round_key = key = SplitMix(key);
}

std::uint64_t Permutation::Encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (const std::uint64_t round_key : round_keys_) {
    const std::uint64_t next = left ^ (SplitMix(right ^ round_key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

std::int64_t Permutation::At(std::int64_t index) const {
  std::uint64_t value = static_cast<std::uint64_t>(index);
  do value = Encrypt(value);
  while (value >= size_);
  return static_cast<std::int64_t>(value);
}

std::int64_t Sampler::At(std::int64_t position) {
  const std::int64_t pass = position / samples_, index = position % samples_;
  if (!options_.shuffle) return index;
  if (pass != pass_) {
    permutation_.emplace(samples_,
                         options_.seed + 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(pass));
    pass_ = pass;
  }
  return permutation_->At(index);
}

namespace {

constexpr int kShareBits = 62;
constexpr auto kOne = std::uint64_t{1} << kShareBits;

// Rounds to the nearest. Results of consecutive positions differ by at most one, because a share is
// at most 1.
std::int64_t CountShare(std::uint64_t share, std::int64_t positions) {
  const auto product =
      static_cast<unsigned __int128>(share) * static_cast<std::uint64_t>(positions);
  return static_cast<std::int64_t>((product + kOne / 2) >> kShareBits);
}

}  // namespace

Blend::Blend(std::span<const double> weights) {
  DS_CHECK(!weights.empty());
  // Relative to the largest weight: sums of values near the largest double would be infinite.
  const double largest = *std::max_element(weights.begin(), weights.end());
  std::vector<Weighed> sources;
  for (const double weight : weights) {
    DS_CHECK(std::isfinite(weight) && weight > 0.0);
    sources.push_back({.weight = weight / largest, .source = sources.size()});
  }
  std::stable_sort(sources.begin(), sources.end(),
                   [](const Weighed& a, const Weighed& b) { return a.weight > b.weight; });
  root_ = Build(sources);
}

// Puts heavy sources near the root and gives both branches about equal weight, so that a node's
// rounding error is halved at each level.
Blend::Branch Blend::Build(std::span<const Weighed> sources) {
  if (sources.size() == 1) return {.source = sources[0].source};
  const auto sum = [](std::span<const Weighed> some) {
    return std::accumulate(some.begin(), some.end(), 0.0,
                           [](double so_far, const Weighed& each) { return so_far + each.weight; });
  };
  const double total = sum(sources);
  std::size_t taken = 1;
  while (taken + 1 < sources.size() && sum(sources.first(taken)) < total / 2) ++taken;
  const double share = sum(sources.first(taken)) / total;
  Node node{.share = static_cast<std::uint64_t>(std::ldexp(share, kShareBits))};
  node.first = Build(sources.first(taken));
  node.second = Build(sources.subspan(taken));
  nodes_.push_back(node);
  return {.node = static_cast<int>(nodes_.size()) - 1};
}

Blend::SourceSample Blend::At(std::int64_t position) const {
  Branch branch = root_;
  while (branch.node >= 0) {
    const Node& node = nodes_[static_cast<std::size_t>(branch.node)];
    const std::int64_t before = CountShare(node.share, position);
    const bool is_first = CountShare(node.share, position + 1) > before;
    branch = is_first ? node.first : node.second;
    position = is_first ? before : position - before;
  }
  return {.source = branch.source, .index = position};
}

std::vector<std::int64_t> Blend::Count(std::int64_t positions) const {
  std::vector<std::int64_t> counts(nodes_.size() + 1);
  CountIn(root_, positions, &counts);
  return counts;
}

void Blend::CountIn(const Branch& branch, std::int64_t positions,
                    std::vector<std::int64_t>* counts) const {
  if (branch.node < 0) {
    (*counts)[branch.source] = positions;
    return;
  }
  const Node& node = nodes_[static_cast<std::size_t>(branch.node)];
  const std::int64_t first = CountShare(node.share, positions);
  CountIn(node.first, first, counts);
  CountIn(node.second, positions - first, counts);
}

}  // namespace ds::data
