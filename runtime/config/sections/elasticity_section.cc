#include "runtime/config/sections/elasticity_section.h"

#include <algorithm>
#include <utility>

#include "runtime/config/check/read_values.h"
#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/sections/parallel_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kSection = keys::kElasticity;
constexpr Key kEnabled = keys::kElasticityEnabled;
constexpr Key kMaxBatch = keys::kElasticityMaxTrainBatchSize;
constexpr Key kMicroBatches = keys::kElasticityMicroBatchSizes;
constexpr Key kVersion = keys::kElasticityVersion;

bool IsAnythingBroken(const Values& values) {
  return std::any_of(values.entries().begin(), values.entries().end(), [](const auto& entry) {
    return entry.first.starts_with(kSection) && entry.second.broken;
  });
}

bool IsInt64(const Json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= INT64_MAX;
  return value.is_number_integer();
}

// Returns a tree with only this section of the file.
JsonNode OnlyTheSection(const JsonNode& root) {
  JsonNode only = root;
  std::erase_if(only.members, [](const JsonMember& member) { return member.name != kSection; });
  return only;
}

class SectionReader {
 public:
  SectionReader(const Values& values, IssueLog& issues) : values_(values), issues_(issues) {}

  std::optional<ElasticityConfig> Read() {
    for (const Key key : {kMaxBatch, kMicroBatches}) {
      if (!values_.IsGiven(key)) {
        Error(key, std::string(key) + " is missing: elasticity needs it", kEnabled);
      }
    }
    ElasticityConfig config{.max_train_batch_size = Int(kMaxBatch),
                            .micro_batch_sizes = MicroBatches(),
                            .min_gpus = Int(keys::kElasticityMinGpus),
                            .max_gpus = Int(keys::kElasticityMaxGpus),
                            .prefer_larger_batch = values_.Get(keys::kElasticityPreferLargerBatch),
                            .num_gpus_per_node = Int(keys::kElasticityNumGpusPerNode),
                            .model_parallel_size = Int(keys::kElasticityModelParallelSize),
                            .version = Version()};
    if (failed_) return std::nullopt;
    for (const ElasticityCheck& check : ElasticityChecks()) {
      if (const Status status = check.check(config); !status.ok()) {
        Error(check.key, status.message(), check.key);
      }
    }
    return failed_ ? std::nullopt : std::optional(std::move(config));
  }

 private:
  std::int64_t Int(Key key) const { return values_.Get(key); }

  std::vector<std::int64_t> MicroBatches() {
    std::vector<std::int64_t> sizes;
    const Json list = values_.Get(kMicroBatches);
    for (const Json& size : list) {
      // Python would treat true as 1.
      if (!IsInt64(size)) {
        Error(
            kMicroBatches,
            std::string(kMicroBatches) + " must be a list of whole numbers, not " + ShortDump(list),
            kMicroBatches);
        break;
      }
      sizes.push_back(size);
    }
    return sizes;
  }

  ElasticityConfig::Version Version() {
    const Json version = values_.Get(kVersion);
    if (version == 0.1) return ElasticityConfig::Version::k01;
    if (version != 0.2) {
      Error(kVersion, std::string(kVersion) + " must be 0.1 or 0.2, not " + ShortDump(version),
            kVersion);
    }
    return ElasticityConfig::Version::k02;
  }

  void Error(Key key, const std::string& message, Key at) {
    issues_.Error(key, message, values_.PositionOf(at));
    failed_ = true;
  }

  const Values& values_;
  IssueLog& issues_;
  bool failed_ = false;
};

// Rejects batch sizes in addition to the section, or overrides them if the section says so.
bool BatchIsLeftToElasticity(RuleContext& context) {
  const Values& values = context.values;
  const bool ignore = values.Get(keys::kElasticityIgnoreNonElasticBatchInfo);
  bool left = true;
  for (const Key key : {keys::kTrainBatchSize, keys::kTrainMicroBatchSizePerGpu,
                        keys::kGradientAccumulationSteps}) {
    if (!values.IsGiven(key)) continue;
    if (ignore) {
      context.issues.Warning(key, std::string(key) + " is overridden: elasticity decides it",
                             values.PositionOf(key));
    } else {
      left = false;
      context.issues.Error(key,
                           std::string(key) +
                               " contradicts elasticity, which decides it: remove it, or set "
                               "elasticity.ignore_non_elastic_batch_info to true",
                           values.PositionOf(key));
    }
  }
  return left;
}

// Checks the requirements of training with this build that the section itself does not check.
bool IsTrainable(const ElasticityConfig& config, RuleContext& context) {
  const std::int64_t together = ReadParallel(context.values).ranks_of_a_sample();
  if (config.model_parallel_size == together) return true;
  constexpr Key kKey = keys::kElasticityModelParallelSize;
  context.issues.Error(kKey,
                       std::string(kKey) + " is " + std::to_string(config.model_parallel_size) +
                           ", and this config has " + std::to_string(together) +
                           (together == 1 ? " rank" : " ranks") +
                           " work on a sample (pipeline.stages x tensor_parallel.autotp_size x "
                           "sequence_parallel_size): make it " +
                           std::to_string(together),
                       context.values.PositionOf(kKey));
  return false;
}

std::string AllErrors(const IssueLog& issues) {
  std::string text;
  for (const Issue& issue : issues.errors()) text += (text.empty() ? "" : "\n") + issue.message;
  return text;
}

// Returns the section's values, or nothing after logging its problems to `issues`. Requires that
// elasticity is enabled.
std::optional<ElasticityConfig> ReadElasticity(const Values& values, IssueLog& issues) {
  if (IsAnythingBroken(values)) return std::nullopt;  // already reported
  return SectionReader(values, issues).Read();
}

// An enabled section decides the three batch sizes, which must not be given as well.
void DeriveElasticBatch(RuleContext& context) {
  Values& values = context.values;
  if (values.Get(kEnabled) != true) return;
  const std::optional<ElasticityConfig> config = ReadElasticity(values, context.issues);
  const bool is_left = BatchIsLeftToElasticity(context);
  if (!config || !is_left || !IsTrainable(*config, context)) return;
  const std::optional<std::int64_t> ranks = DataRanks(context);
  if (!ranks) return;  // CheckDegrees
  const bool by_node = config->version == ElasticityConfig::Version::k02;
  const StatusOr<ElasticBatch> batch =
      SolveElasticity(*config, by_node ? context.facts.world_size : *ranks);
  if (!batch.ok()) {
    context.issues.Error(kSection, batch.status().message(), values.PositionOf(kEnabled));
    return;
  }
  const std::string origin = "derived from elasticity, " + NameDataRanks(context);
  const std::int64_t micro_batch = *batch->micro_batch_size;
  values.Derive(keys::kTrainBatchSize, batch->final_batch_size, origin);
  values.Derive(keys::kTrainMicroBatchSizePerGpu, micro_batch, origin);
  values.Derive(keys::kGradientAccumulationSteps, batch->final_batch_size / (micro_batch * *ranks),
                origin);
}

constexpr Rule kRules[] = {{"DeriveElasticBatch", {kEnabled}, DeriveElasticBatch}};

}  // namespace

std::span<const Rule> ElasticityRules() { return kRules; }

bool ElasticityOmitsKey(const Values& /*values*/, Key key) { return key.starts_with(kSection); }

Status AgreesWithScheduler(const Json& given, std::string_view scheduler_json) {
  const auto section = given.find(std::string(kSection));
  if (section == given.end() || !section->is_object()) return OkStatus();
  const auto value = [&](Key key) {
    return section->value(std::string(key.substr(kSection.size() + 1)),
                          DefaultValue(*FindSetting(key)));
  };
  if (value(kEnabled) != true) return OkStatus();
  const Json seen = Json::parse(scheduler_json, nullptr, /*allow_exceptions=*/false);
  if (!seen.is_object()) {
    return InvalidArgumentError(std::string(kSchedulerElasticity) + " is not a JSON object");
  }
  for (const Key key : {kMaxBatch, kMicroBatches, kVersion}) {
    const std::string name(key.substr(kSection.size() + 1));
    const Json other = seen.contains(name) ? seen[name] : DefaultValue(*FindSetting(key));
    if (value(key) == other) continue;
    return InvalidArgumentError(std::string(key) + " is " + ShortDump(value(key)) +
                                ", but the scheduler has seen " + ShortDump(other) + " (" +
                                kSchedulerElasticity + ")");
  }
  return OkStatus();
}

StatusOr<ElasticBatch> ElasticBatchOf(std::string_view json_text, std::string_view file_name,
                                      const ElasticQuestion& question) {
  IssueLog issues(file_name);
  const JsonReading reading = ReadPositionedJson(json_text);
  for (const JsonProblem& problem : reading.problems) {
    issues.Error("", problem.message, problem.position);
  }
  if (reading.complete && !reading.root.scalar.is_object()) {
    issues.Error("", "the config must be an object: { ... }", reading.root.position);
  }
  if (!issues.errors().empty()) return InvalidArgumentError(AllErrors(issues));
  const JsonNode section = OnlyTheSection(reading.root);
  if (section.members.empty()) {
    return InvalidArgumentError(std::string(file_name) + ": there is no elasticity section");
  }
  Values values;
  ReadValues(section, &values, &issues);
  if (issues.errors().empty() && values.Get(kEnabled) != true) {
    issues.Error(kEnabled, "elasticity is off: set elasticity.enabled to true",
                 section.members[0].position);
  }
  const auto config = issues.errors().empty() ? ReadElasticity(values, issues) : std::nullopt;
  if (!config) return InvalidArgumentError(AllErrors(issues));
  std::optional<std::int64_t> num_gpus = question.num_gpus;
  if (!num_gpus && config->version == ElasticityConfig::Version::k02) {
    num_gpus = question.num_gpus_of_environment;
    if (!num_gpus) {
      return InvalidArgumentError(std::string(file_name) + ": elasticity.version 0.2" +
                                  (values.IsGiven(kVersion) ? "" : " (the default)") +
                                  " needs the number of GPUs: give it with -w N");
    }
  }
  StatusOr<ElasticBatch> batch = SolveElasticity(*config, num_gpus);
  return batch.ok() ? batch : batch.status().WithContext(file_name);
}

}  // namespace ds::config
