// What TRL's SFTTrainer, its other trainers and the Accelerate files of its package come to.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

#include "cli/translate/argument_table.h"
#include "cli/translate/sources.h"
#include "tests/unit/cli/translation_remarks.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

Translation Sft(const std::string& changes) {
  Json arguments = TranslateGolden()["saved_sft"];
  arguments.update(Json::parse(changes));
  return TranslateTrainingArguments(arguments, {});
}

TEST(TrlArgumentsTest, EveryArgumentOfSftIsKnownWithItsDefault) {
  for (const auto& [name, value] : TranslateGolden()["trl_fields"]["SFTConfig"].items()) {
    const ArgumentRow* const row = FindArgument(name);
    ASSERT_NE(row, nullptr) << name;
    EXPECT_EQ(DefaultOf(*row, /*of_sft=*/true), value) << name;
  }
}

// trust_remote_code is an argument of transformers' scripts, too.
TEST(TrlArgumentsTest, AnArgumentOfSftDistinguishesItFromTrainer) {
  for (const auto& [name, value] : TranslateGolden()["trl_fields"]["SFTConfig"].items()) {
    const bool is_shared =
        TranslateGolden()["fields"].contains(name) || name == "trust_remote_code";
    EXPECT_NE(IsOfSft(name), is_shared) << name;
  }
}

TEST(TrlArgumentsTest, TheArgumentsOfOtherTrainersAreThoseThatSftDoesNotHave) {
  const Json& trainers = TranslateGolden()["trl_fields"];
  for (const auto& [trainer, fields] : trainers.items()) {
    for (const auto& [name, value] : fields.items()) {
      const bool is_known = FindArgument(name) != nullptr;
      EXPECT_NE(is_known, IsOfOtherTrainer(name)) << trainer << " " << name;
    }
  }
}

TEST(TrlArgumentsTest, DefaultsOfSftAreNoLosses) {
  const Translation saved = Sft("{}");
  EXPECT_TRUE(saved.is_complete()) << DescribeMissing(saved);
  EXPECT_EQ(saved.flags["learning_rate"], 2e-5);
  EXPECT_EQ(saved.flags["packing"], "none");
  EXPECT_EQ(saved.flags["max_length"], 1024);
  EXPECT_FALSE(saved.flags.contains("seq_len"));
  EXPECT_EQ(saved.flags["recompute"], "full");
  EXPECT_FALSE(saved.flags.contains("text_field"));
  EXPECT_EQ(On(saved, "max_length").mapping, Mapping::kNearly);
  EXPECT_EQ(On(saved, "eos_token").mapping, Mapping::kLeftOut);
  EXPECT_EQ(On(saved, "assistant_only_loss").mapping, Mapping::kNearly);
}

// A file that names one argument of SFTConfig has SFTConfig's defaults for the others.
TEST(TrlArgumentsTest, DefaultsAreThoseOfTheTrainer) {
  const Translation sft = TranslateTrainingArguments(
      Json::parse(R"({"max_steps": 5, "packing": false, "eval_strategy": "steps"})"), {});
  EXPECT_EQ(sft.flags["learning_rate"], 2e-5);
  EXPECT_EQ(sft.flags["max_length"], 1024);
  const Translation shared = TranslateTrainingArguments(
      Json::parse(R"({"max_steps": 5, "max_length": 16, "loss_type": "dft"})"), {});
  EXPECT_EQ(shared.flags["max_length"], 16) << "DPOConfig has both, too, with names of its own";
  EXPECT_EQ(shared.flags["packing"], "none");
  EXPECT_EQ(On(shared, "loss_type").mapping, Mapping::kMissing);
  EXPECT_EQ(sft.flags["eval_every"], 10);
  EXPECT_EQ(sft.ds_config["torch_autocast"]["dtype"], "bfloat16");
  const Translation fp16 = TranslateTrainingArguments(
      Json::parse(R"({"max_steps": 5, "packing": false, "fp16": true})"), {});
  EXPECT_EQ(fp16.ds_config["torch_autocast"]["dtype"], "float16");
  const Translation trainer = TranslateTrainingArguments(
      Json::parse(R"({"max_steps": 5, "block_size": 64, "eval_strategy": "steps"})"), {});
  EXPECT_EQ(trainer.flags["learning_rate"], 5e-5);
  EXPECT_EQ(trainer.flags["seq_len"], 64);
  EXPECT_EQ(trainer.flags["eval_every"], 500);
  EXPECT_FALSE(trainer.flags.contains("recompute"));
  EXPECT_FALSE(trainer.flags.contains("packing"));
  EXPECT_FALSE(trainer.ds_config.contains("torch_autocast"));
}

TEST(TrlArgumentsTest, PackingStrategies) {
  for (const auto& [strategy, packing, truncates] :
       {std::tuple{"bfd", "whole", true}, std::tuple{"bfd_split", "whole", false},
        std::tuple{"wrapped", "stream", false}}) {
    const Translation packed =
        Sft(R"({"packing": true, "packing_strategy": ")" + std::string(strategy) + "\"}");
    EXPECT_TRUE(packed.is_complete()) << DescribeMissing(packed);
    EXPECT_EQ(packed.flags["packing"], packing);
    EXPECT_EQ(On(packed, "packing_strategy").mapping, Mapping::kNearly);
    EXPECT_EQ(On(packed, "max_length").mapping, truncates ? Mapping::kNearly : Mapping::kExact);
    EXPECT_EQ(packed.flags[truncates ? "max_length" : "seq_len"], 1024);
  }
  EXPECT_THAT(Missing(Sft(R"({"packing": true, "packing_strategy": "ffd"})")),
              ElementsAre("packing_strategy"));
  EXPECT_EQ(On(Sft(R"({"packing": true, "eval_packing": false})"), "eval_packing").mapping,
            Mapping::kNearly);
}

TEST(TrlArgumentsTest, MapsTheTrainedPartOfARow) {
  const Translation always = Sft(R"({"assistant_only_loss": true, "completion_only_loss": true})");
  EXPECT_TRUE(always.is_complete()) << DescribeMissing(always);
  EXPECT_EQ(On(always, "assistant_only_loss").mapping, Mapping::kExact);
  EXPECT_EQ(On(always, "completion_only_loss").mapping, Mapping::kExact);
  EXPECT_EQ(always.flags["assistant_only_loss"], true);
  EXPECT_FALSE(Sft("{}").flags.contains("assistant_only_loss"));
  EXPECT_EQ(always.flags["router_aux_loss_coef"], "auto") << "SFTTrainer's default";
  EXPECT_EQ(Sft(R"({"router_aux_loss_coef": 0.5})").flags["router_aux_loss_coef"], "0.5");
  const Translation story = Sft(R"({"dataset_text_field": "story"})");
  EXPECT_EQ(story.flags["text_field"], "story");
  EXPECT_EQ(On(story, "dataset_text_field").mapping, Mapping::kNearly);
  EXPECT_TRUE(Sft(R"({"loss_type": "chunked_nll"})").is_complete());
  EXPECT_THAT(Missing(Sft(R"({"completion_only_loss": false, "loss_type": "dft", "max_length": null,
                      "eos_token": "<|im_end|>", "chat_template_path": "a.jinja"})")),
              ::testing::UnorderedElementsAre("completion_only_loss", "loss_type", "max_length",
                                              "eos_token", "chat_template_path"));
  const std::string keeps_end = R"("truncation_mode": "keep_end")";
  EXPECT_EQ(Sft("{" + keeps_end + "}").flags["truncation_mode"], "keep_end");
  EXPECT_FALSE(Sft(R"({"packing": true, )" + keeps_end + "}").flags.contains("truncation_mode"));
}

TEST(TrlArgumentsTest, AnotherTrainersArgumentsAreRefusedOnce) {
  const Translation dpo = TranslateTrainingArguments(TranslateGolden()["saved_dpo"], {});
  ASSERT_EQ(Missing(dpo).size(), 1u);
  EXPECT_THAT(Missing(dpo)[0], HasSubstr("disable_dropout, "));
  EXPECT_THAT(Missing(dpo)[0], HasSubstr("beta"));
  EXPECT_THAT(DescribeMissing(dpo), HasSubstr("dsrun trains on the next token"));
}

TEST(TrlArgumentsTest, FilesOfTrlsPackageTranslate) {
  const Json& files = TranslateGolden()["trl_files"];
  ASSERT_EQ(files.size(), 7u);
  for (const auto& [name, text] : files.items()) {
    const auto config = ReadFlatYaml(text.get<std::string>());
    ASSERT_TRUE(config.ok()) << name << ": " << config.status().message();
    const Translation translation = TranslateAccelerateConfig(*config, {});
    EXPECT_TRUE(translation.is_complete()) << name << ": " << DescribeMissing(translation);
    const char* const ranks = name.starts_with("single_gpu") ? "1" : "8";
    EXPECT_THAT(translation.launch, ::testing::IsSupersetOf({"--num_gpus", ranks})) << name;
    const auto zero = translation.ds_config.value("zero_optimization", Json::object());
    const int stage = name.starts_with("zero") ? name[4] - '0' : name.starts_with("fsdp") ? 3 : 0;
    EXPECT_EQ(zero.value("stage", 0), stage) << name;
    EXPECT_TRUE(translation.ds_config.contains(stage > 0 ? "bf16" : "torch_autocast")) << name;
  }
}

// The keys of TRL's example alst_ulysses_4gpu.yaml.
TEST(TrlArgumentsTest, UlyssesAsAContextParallelismOfDeepspeed) {
  const std::string head =
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
      "  seq_parallel_communication_data_type: bf16\nparallelism_config:\n"
      "  parallelism_config_dp_shard_size: 2\n  parallelism_config_cp_size: 2\n"
      "  parallelism_config_cp_seq_length_is_variable: true\n"
      "  parallelism_config_cp_attn_implementation: flash_attention_2\n";
  const auto translate = [&](const std::string& backend) {
    const auto config = ReadFlatYaml(head + "  parallelism_config_cp_backend: " + backend + "\n");
    return TranslateAccelerateConfig(config.value(), {});
  };
  const Translation ulysses = translate("deepspeed");
  EXPECT_TRUE(ulysses.is_complete()) << DescribeMissing(ulysses);
  EXPECT_EQ(ulysses.ds_config["seq_parallel_communication_data_type"], "bf16");
  EXPECT_EQ(ulysses.flags.dump(), R"({"sp":2})");
  EXPECT_EQ(translate("torch").flags.dump(), R"({"sp_kind":"ring","sp":2})");
  EXPECT_THAT(Missing(translate("other")), ElementsAre("parallelism_config_cp_backend"));
}

// cli/manual/trainer.md, by the title of its section.
std::map<std::string, std::string> ReadManual() {
  std::map<std::string, std::string> sections;
  std::istringstream page(*ReadFile(DS_SOURCE_DIR "/cli/manual/trainer.md"));
  std::string line, title;
  while (std::getline(page, line)) {
    if (line.starts_with("## ")) title = line.substr(3);
    sections[title] += line + "\n";
  }
  return sections;
}

TEST(TrainerManualTest, EveryArgumentIsInTheSectionOfItsEffect) {
  const auto sections = ReadManual();
  const auto has = [&](const std::string& title, const std::string& name) {
    const auto section = sections.find(title);
    return section != sections.end() && section->second.find("`" + name + "`") != std::string::npos;
  };
  for (const std::string& name : ArgumentNames()) {
    const ArgumentRow& row = *FindArgument(name);
    switch (row.effect) {
      case ArgumentEffect::kMapped:
        EXPECT_TRUE(has("Arguments that map", name) ||
                    has("Arguments of TRL's SFTTrainer that map", name))
            << name;
        break;
      case ArgumentEffect::kNone:
        EXPECT_TRUE(has("Arguments without an effect on the training", name)) << name;
        break;
      case ArgumentEffect::kNear:
        EXPECT_TRUE(has("Arguments that nearly map", name)) << name;
        break;
      case ArgumentEffect::kChanges:
        EXPECT_THAT(sections.at("Arguments that are missing unless at their default"),
                    HasSubstr("| `" + name + "` | `" + std::string(row.default_json) + "` |"));
        break;
    }
  }
}

TEST(TrainerManualTest, EveryKeyOfAccelerateIsNamed) {
  const std::string section = ReadManual()["Files of Accelerate"];
  for (const char* list : {"accelerate_keys", "deepspeed_keys", "fsdp_keys", "parallelism_keys"}) {
    for (const auto& key : TranslateGolden()[list]) {
      const auto name = key.get<std::string>();
      const bool is_section = name.ends_with("_config") && name != "fp8_config";
      EXPECT_TRUE(is_section || section.find("`" + name + "`") != std::string::npos) << name;
    }
  }
}

TEST(TrainerSavingTest, TheLimitAndTheBestModel) {
  const auto translate = [](const std::string& more) {
    return TranslateTrainingArguments(Json::parse(R"({"max_steps": 50, )" + more + "}"), {});
  };
  const Translation limited = translate(R"("save_steps": 5, "save_total_limit": 2)");
  EXPECT_TRUE(limited.is_complete());
  EXPECT_EQ(limited.flags["save_total_limit"], 2);
  EXPECT_EQ(translate(R"("save_total_limit": 3)").flags["save_every"], 500);
  const Translation unlimited = translate(R"("save_strategy": "no", "save_total_limit": 2)");
  EXPECT_FALSE(unlimited.flags.contains("save_total_limit"));
  EXPECT_EQ(On(unlimited, "save_total_limit").mapping, Mapping::kLeftOut);

  const std::string evaluates = R"("eval_strategy": "steps", "eval_steps": 5, "save_steps": )";
  const std::string loads = R"(, "load_best_model_at_end": true)";
  const Translation best = translate(evaluates + "5" + loads);
  EXPECT_TRUE(best.is_complete()) << DescribeMissing(best);
  EXPECT_EQ(best.flags["load_best_model_at_end"], true);
  EXPECT_EQ(On(best, "load_best_model_at_end").mapping, Mapping::kExact);
  EXPECT_EQ(On(translate(evaluates + "10" + loads), "load_best_model_at_end").mapping,
            Mapping::kNearly);
  const Translation saves =
      translate(evaluates + R"(9, "save_strategy": "best", "metric_for_best_model": "eval_loss")");
  EXPECT_TRUE(saves.is_complete()) << DescribeMissing(saves);
  EXPECT_EQ(saves.flags["save_best"], true);
  EXPECT_FALSE(saves.flags.contains("save_every"));
  EXPECT_THAT(Missing(translate(evaluates + "5" + loads + R"(, "metric_for_best_model": "f1")")),
              ElementsAre("metric_for_best_model"));
  EXPECT_THAT(Missing(translate(evaluates + "5" + loads + R"(, "greater_is_better": true)")),
              ElementsAre("greater_is_better"));
  EXPECT_THAT(Missing(translate(R"("load_best_model_at_end": true, "eval_strategy": "epoch")")),
              ElementsAre("load_best_model_at_end"));
  EXPECT_THAT(Missing(translate(evaluates + R"(5, "metric_for_best_model": "f1")")), IsEmpty());
}

// TrainingArguments of transformers 5.24 raises ValueError for the first two.
TEST(TrainerSavingTest, TheBestModelNeedsEqualStrategies) {
  const auto translate = [](const std::string& more) {
    return TranslateTrainingArguments(
        Json::parse(R"({"load_best_model_at_end": true, "eval_strategy": "steps",
                        "eval_steps": 50, )" +
                    more + "}"),
        {});
  };
  for (const char* const strategy : {"no", "epoch"}) {
    const Translation other = translate(R"("save_strategy": ")" + std::string(strategy) + '"');
    EXPECT_THAT(Missing(other), ElementsAre("load_best_model_at_end")) << strategy;
    EXPECT_FALSE(other.flags.contains("save_every")) << strategy;
    EXPECT_FALSE(other.flags.contains("load_best_model_at_end")) << strategy;
  }
  // transformers compares shares with shares only.
  const Translation share = translate(R"("save_steps": 0.5)");
  EXPECT_FALSE(share.flags.contains("save_every"));
  EXPECT_EQ(On(share, "load_best_model_at_end").mapping, Mapping::kMissing);
  EXPECT_TRUE(translate(R"("save_steps": 50)").is_complete());
}

}  // namespace
}  // namespace ds::cli
