#include "cli/translate/trainer_saving.h"

#include <cmath>
#include <string>

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

class SavingTranslator {
 public:
  SavingTranslator(std::optional<std::int64_t> steps, GivenArguments* arguments,
                   Translation* translation)
      : steps_(steps), arguments_(*arguments), out_(*translation) {}

  void Translate() {
    const std::string strategy = FindSaveStrategy();
    if (strategy == "no") {
      out_.Add(Mapping::kExact, "save_strategy", strategy, "no --save_every");
    } else if (!strategy.empty() && strategy != "best") {
      SetEvery("save_strategy", strategy, "save_steps", "save_every");
    }
    TranslateEvaluation();
    TranslateBest(strategy == "best");
    TranslateLimit();
  }

 private:
  // Returns "" if no argument concerns checkpoints.
  std::string FindSaveStrategy() {
    const bool is_given = arguments_.IsGiven("save_steps") || arguments_.IsGiven("save_strategy") ||
                          arguments_.Has("save_total_limit") ||
                          arguments_.Has("load_best_model_at_end");
    return is_given ? arguments_.Text("save_strategy") : "";
  }

  const char* EvaluationName() const {
    return arguments_.IsGiven("evaluation_strategy") ? "evaluation_strategy" : "eval_strategy";
  }

  void TranslateEvaluation() {
    const char* const name = EvaluationName();
    const std::string strategy = arguments_.Text(name);
    if (strategy == "no") return;
    SetEvery(name, strategy, EvaluationStepsName(), "eval_every");
  }

  const char* EvaluationStepsName() const {
    const bool has_steps = arguments_.Has("eval_steps") && arguments_.Get("eval_steps") != 0;
    return has_steps ? "eval_steps" : "logging_steps";
  }

  // Rounds a fraction of all steps up, as Trainer does. Returns 0 if the number of steps is
  // unknown.
  std::int64_t CountSteps(const char* steps_name) {
    const double every = arguments_.Number(steps_name).value_or(0.0);
    if (every >= 1.0) return arguments_.Integer(steps_name).value_or(0);
    if (every <= 0.0 || !steps_) return 0;
    return static_cast<std::int64_t>(std::ceil(every * static_cast<double>(*steps_)));
  }

  void SetEvery(const char* strategy_name, const std::string& strategy, const char* steps_name,
                const char* flag) {
    const std::int64_t steps = strategy == "steps" ? CountSteps(steps_name) : 0;
    if (steps > 0) return out_.SetFlag(steps_name, arguments_.Get(steps_name), flag, steps);
    out_.Add(Mapping::kLeftOut, strategy_name, strategy,
             "give --" + std::string(flag) + " a number of steps");
  }

  // Returns false, after a remark, if another metric than the lowest loss selects the best model.
  bool IsBestByLoss() {
    const std::string metric = arguments_.Text("metric_for_best_model");
    if (!metric.empty() && metric != "loss" && metric != "eval_loss") {
      arguments_.Miss("metric_for_best_model", "dsrun compares evaluations by their loss");
      return false;
    }
    if (!arguments_.Flag("greater_is_better")) return true;
    arguments_.Miss("greater_is_better", "the best evaluation of dsrun has the lowest loss");
    return false;
  }

  // True if Trainer evaluates before every save. Compares fractions in millionths, as Trainer does.
  bool SavesAfterEvaluations() {
    const double saves = arguments_.Number("save_steps").value_or(0.0);
    const double evaluates = arguments_.Number(EvaluationStepsName()).value_or(0.0);
    if (std::fmod(saves, evaluates) == 0.0) return true;
    constexpr double kMillion = 1e6;
    return saves < 1.0 && evaluates < 1.0 &&
           std::fmod(saves * kMillion, evaluates * kMillion) == 0.0;
  }

  // Trainer compares only evaluations followed by a save, dsrun compares all.
  void TranslateBest(bool saves_best) {
    const bool loads_best = arguments_.Flag("load_best_model_at_end");
    if (!saves_best && !loads_best) {
      for (const char* name : {"metric_for_best_model", "greater_is_better"}) {
        if (arguments_.Has(name)) out_.Add(Mapping::kLeftOut, name, "", "");
      }
      return;
    }
    const char* const name = loads_best ? "load_best_model_at_end" : "save_strategy";
    if (!IsBestByLoss()) return;
    if (!out_.flags.contains("eval_every")) {
      return arguments_.Miss(name,
                             "dsrun evaluates every N steps: give eval_strategy steps, with "
                             "eval_steps");
    }
    if (saves_best) out_.SetFlag("save_strategy", "best", "save_best", true);
    if (!loads_best) return;
    if (!saves_best && arguments_.Text("save_strategy") != arguments_.Text(EvaluationName())) {
      return arguments_.Miss(name,
                             "Trainer refuses it unless save_strategy is as eval_strategy, or "
                             "best: make them equal");
    }
    if (!saves_best && !SavesAfterEvaluations()) {
      return arguments_.Miss(name,
                             "Trainer refuses it unless save_steps is a multiple of eval_steps: "
                             "change one of them");
    }
    out_.flags["load_best_model_at_end"] = true;
    const Json saves = out_.flags.value("save_every", Json());  // null: it has no number of steps
    const bool saves_each = saves_best || out_.flags["eval_every"] == saves;
    out_.Add(saves_each ? Mapping::kExact : Mapping::kNearly, name, true,
             std::string("--load_best_model_at_end") +
                 (saves_each ? "" : ", the best of all evaluations; Trainer saves fewer of them"));
  }

  void TranslateLimit() {
    if (!arguments_.Has("save_total_limit")) return;
    const auto limit = arguments_.Integer("save_total_limit");
    if (!limit) return;
    const bool saves = out_.flags.contains("save_every") || out_.flags.contains("save_best") ||
                       out_.flags.contains("load_best_model_at_end");
    if (!saves || *limit <= 0) {
      return out_.Add(Mapping::kLeftOut, "save_total_limit", *limit, "it limits nothing here");
    }
    out_.SetFlag("save_total_limit", *limit, "save_total_limit", *limit);
  }

  const std::optional<std::int64_t> steps_;
  GivenArguments& arguments_;
  Translation& out_;
};

}  // namespace

void TranslateSaving(std::optional<std::int64_t> steps, GivenArguments* arguments,
                     Translation* translation) {
  SavingTranslator(steps, arguments, translation).Translate();
}

}  // namespace ds::cli
