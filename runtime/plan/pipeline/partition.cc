#include "runtime/plan/pipeline/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <regex>
#include <string_view>

#include "runtime/base/check.h"

namespace ds::pipeline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The best way to split the first blocks into some number of parts.
struct Best {
  double heaviest = kInfinity;
  double lightest = kInfinity;
  double difference = kInfinity;
  int last_begins = 0;  // the first block of the last part
};

// Longer than any class name needs: the library compiles and matches recursively.
constexpr std::size_t kLongestExpression = 200;

// Returns "DecoderEmbedding, DecoderLayer (also TransformerDecoderLayer) and DecoderHead".
std::string ListClasses(const std::vector<WeighedBlock>& blocks) {
  std::vector<std::string> names;
  for (const WeighedBlock& block : blocks) {
    std::string name = block.name;
    if (!block.other_name.empty()) name += " (also " + block.other_name + ")";
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 == names.size() ? " and " : ", ";
    list += names[i];
  }
  return list.empty() ? "none" : list;
}

// DeepSpeed's methods are Python regular expressions; the subset shared with ECMAScript suffices
// for class names. Matching does not backtrack, since an expression with exponential time would
// hang the terminal; so there are no back-references. Counts ({100}) are refused: each multiplies
// the expression before it, and the depth of the library's recursion with it.
StatusOr<std::vector<double>> FindMatches(const std::string& expression,
                                          const std::vector<WeighedBlock>& blocks) {
  if (expression.size() > kLongestExpression) {
    return InvalidArgumentError(
        fmt::format("a regular expression for names of classes has {} characters at most, and not "
                    "{}",
                    kLongestExpression, expression.size()));
  }
  if (expression.find('{') != std::string::npos) {
    return InvalidArgumentError(
        fmt::format("\"{}\" counts with {{}}, which names of classes do not need", expression));
  }
  std::vector<double> weights;
  try {
    const std::regex regex(expression, std::regex::ECMAScript | std::regex::icase |
                                           std::regex_constants::__polynomial);
    for (const WeighedBlock& block : blocks) {
      const bool found =
          std::regex_search(block.name, regex) || std::regex_search(block.other_name, regex);
      weights.push_back(found ? 1.0 : 0.0);
    }
  } catch (const std::regex_error& error) {
    return InvalidArgumentError(
        fmt::format("\"{}\" is no regular expression that is taken: {}", expression, error.what()));
  }
  if (std::count(weights.begin(), weights.end(), 1.0) == 0) {
    return InvalidArgumentError(
        fmt::format("\"{}\" matches none of the model's blocks; their classes are {}", expression,
                    ListClasses(blocks)));
  }
  return weights;
}

}  // namespace

std::vector<int> PartitionUniformly(int count, int parts) {
  DS_CHECK(count >= 0 && parts >= 1);
  std::vector<int> split{0};
  for (int part = 0; part < parts; ++part) {
    const int size = count / parts + (part < count % parts ? 1 : 0);
    split.push_back(split.back() + size);
  }
  return split;
}

std::vector<int> PartitionByWeight(const std::vector<double>& weights, int parts) {
  DS_CHECK(parts >= 1);
  const int count = static_cast<int>(weights.size());
  if (count <= parts) return PartitionUniformly(count, parts);
  std::vector<double> sums{0.0};
  for (const double weight : weights) sums.push_back(sums.back() + weight);
  const auto sum = [&](int first, int end) {
    return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(first)];
  };
  // best[j][i]: the first i blocks in j parts
  std::vector<std::vector<Best>> best(static_cast<std::size_t>(parts) + 1,
                                      std::vector<Best>(static_cast<std::size_t>(count) + 1));
  best[0][0] = {.heaviest = 0.0, .lightest = kInfinity, .difference = 0.0};
  for (std::size_t j = 1; j < best.size(); ++j) {
    for (int i = static_cast<int>(j); i <= count; ++i) {
      Best& chosen = best[j][static_cast<std::size_t>(i)];
      for (int first = 0; first < i; ++first) {
        const Best& before = best[j - 1][static_cast<std::size_t>(first)];
        const double heaviest = std::max(before.heaviest, sum(first, i));
        const double lightest = std::min(before.lightest, sum(first, i));
        if (heaviest - lightest <= chosen.difference) {
          chosen = {heaviest, lightest, heaviest - lightest, first};
        }
      }
    }
  }
  std::vector<int> split{count};
  for (std::size_t j = static_cast<std::size_t>(parts); j > 0; --j) {
    split.push_back(best[j][static_cast<std::size_t>(split.back())].last_begins);
  }
  std::reverse(split.begin(), split.end());
  return split;
}

std::vector<int> PartitionByCost(int count, int parts,
                                 const std::function<double(int part, int first, int end)>& cost) {
  DS_CHECK(parts >= 1 && count >= parts);
  // best[j][i]: the first i blocks in j parts
  std::vector<std::vector<Best>> best(static_cast<std::size_t>(parts) + 1,
                                      std::vector<Best>(static_cast<std::size_t>(count) + 1));
  best[0][0].heaviest = 0.0;
  for (int j = 1; j <= parts; ++j) {
    for (int i = j; i <= count; ++i) {
      Best& chosen = best[static_cast<std::size_t>(j)][static_cast<std::size_t>(i)];
      for (int first = j - 1; first < i; ++first) {
        const double before =
            best[static_cast<std::size_t>(j) - 1][static_cast<std::size_t>(first)].heaviest;
        const double heaviest = std::max(before, cost(j - 1, first, i));
        if (heaviest >= chosen.heaviest) continue;
        chosen.heaviest = heaviest;
        chosen.last_begins = first;
      }
    }
  }
  std::vector<int> split{count};
  for (std::size_t j = static_cast<std::size_t>(parts); j > 0; --j) {
    split.push_back(best[j][static_cast<std::size_t>(split.back())].last_begins);
  }
  std::reverse(split.begin(), split.end());
  return split;
}

StatusOr<std::vector<int>> PartitionBlocks(const std::string& method,
                                           const std::vector<WeighedBlock>& blocks, int parts) {
  constexpr std::string_view kByType = "type:";
  if (static_cast<std::size_t>(parts) > blocks.size()) {
    return InvalidArgumentError(fmt::format(
        "a model of {} blocks cannot be partitioned into {} stages of at least one block",
        blocks.size(), parts));
  }
  if (method == "uniform") return PartitionUniformly(static_cast<int>(blocks.size()), parts);
  if (method == "parameters" || method == "best") {
    std::vector<double> weights;
    for (const WeighedBlock& block : blocks) weights.push_back(static_cast<double>(block.trained));
    return PartitionByWeight(weights, parts);
  }
  if (method == "profile") {
    std::vector<double> sums{0.0};
    for (const WeighedBlock& block : blocks) sums.push_back(sums.back() + block.work);
    return PartitionByCost(static_cast<int>(blocks.size()), parts, [&](int, int first, int end) {
      return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(first)];
    });
  }
  if (method.starts_with(kByType)) {
    DS_ASSIGN_OR_RETURN(const std::vector<double> weights,
                        FindMatches(method.substr(kByType.size()), blocks));
    return PartitionByWeight(weights, parts);
  }
  return InvalidArgumentError(
      fmt::format("\"{}\" is no way of cutting a pipeline; there are uniform, parameters, best, "
                  "profile, memory and type:REGEX",
                  method));
}

}  // namespace ds::pipeline
