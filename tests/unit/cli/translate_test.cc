#include "cli/translate/translation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/commands/translate_file.h"
#include "cli/translate/argument_table.h"
#include "cli/translate/sources.h"
#include "runtime/base/files.h"
#include "runtime/base/shell_quote.h"
#include "tests/support/program.h"
#include "tests/unit/cli/translation_remarks.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

const Json& Golden() { return TranslateGolden(); }

Translation Arguments(const std::string& text, TrainerContext context = {}) {
  return TranslateTrainingArguments(Json::parse(text), context);
}

TEST(TrainingArgumentsTest, EveryArgumentIsKnownWithItsDefault) {
  for (const auto& [name, value] : Golden()["fields"].items()) {
    const ArgumentRow* const row = FindArgument(name);
    ASSERT_NE(row, nullptr) << name;
    EXPECT_EQ(DefaultOf(*row, /*of_sft=*/false), value) << name;
  }
}

TEST(TrainingArgumentsTest, MapsTheFilesThatTrainerSaves) {
  const Translation translation = TranslateTrainingArguments(Golden()["saved"], {});
  EXPECT_TRUE(translation.is_complete()) << DescribeMissing(translation);
  EXPECT_THAT(translation.launch, ElementsAre("--device", "cpu"));
  EXPECT_EQ(translation.flags.dump(),
            R"({"steps":5,"per_device_train_batch_size":8,"gradient_accumulation_steps":1,)"
            R"("learning_rate":5e-05,"weight_decay":0.0,"max_grad_norm":1.0,"adam_beta1":0.9,)"
            R"("adam_beta2":0.999,"adam_epsilon":1e-08,"no_decay_on_norms_and_biases":true,)"
            R"("seed":42,"save_hf":"out","save_every":500})");
  EXPECT_EQ(translation.ds_config.dump(),
            R"({"optimizer":{"type":"AdamW"},"scheduler":{"type":"linear","params":)"
            R"({"warmup_num_steps":0,"total_num_steps":"auto"}}})");
  EXPECT_EQ(ShellLine(CommandWords(translation, "ds config.json")).substr(0, 56),
            "dsrun --device cpu train --model MODEL --data DATA --ste");
  EXPECT_THAT(CommandWords(translation, "ds config.json").back(), "ds config.json");
}

TEST(TrainingArgumentsTest, NamesUnmappedArgumentsThatChangeTraining) {
  const Translation translation = Arguments(R"({"max_steps": 5, "neftune_noise_alpha": 5.0,
      "label_smoothing_factor": 0.1, "optim": "adafactor", "data_seed": 1, "learning_rat": 1,
      "train_sampling_strategy": "group_by_length", "lr_scheduler_type": "greedy",
      "parallelism_config": {"tp_size": 2, "cp_size": 2}})");
  EXPECT_THAT(Missing(translation),
              ::testing::UnorderedElementsAre("label_smoothing_factor", "optim", "data_seed",
                                              "learning_rat", "train_sampling_strategy",
                                              "lr_scheduler_type"));
  EXPECT_THAT(On(translation, "learning_rat").text, HasSubstr("did you mean 'learning_rate'?"));
  EXPECT_EQ(translation.flags["tp"], 2);
  EXPECT_EQ(translation.flags["sp"], 2);
  EXPECT_EQ(translation.flags["sp_kind"], "ring");
  EXPECT_THAT(DescribeMissing(translation), HasSubstr("label_smoothing_factor 0.1: dsrun"));
  EXPECT_EQ(translation.flags["neftune_noise_alpha"], 5.0);
}

// As one of Accelerate's does. Whichever comes first, --sp and its kind are that one's.
TEST(TrainingArgumentsTest, TokenizesSamplesOnce) {
  for (const auto& [sizes, refused, kind] :
       {std::tuple{R"({"cp_size": 2, "sp_size": 4})", "parallelism_config.sp_size", true},
        std::tuple{R"({"sp_size": 2, "cp_size": 4})", "parallelism_config.cp_size", false}}) {
    const Translation both =
        Arguments(R"({"max_steps": 5, "parallelism_config": )" + std::string(sizes) + "}");
    EXPECT_THAT(Missing(both), ::testing::ElementsAre(refused));
    EXPECT_EQ(both.flags["sp"], 2);
    EXPECT_EQ(both.flags.contains("sp_kind"), kind);
  }
}

TEST(TrainingArgumentsTest, AWrongTypeIsNamed) {
  const Translation translation =
      Arguments(R"({"max_steps": 5, "learning_rate": "high", "seed": 1.5})");
  EXPECT_THAT(Missing(translation), ::testing::UnorderedElementsAre("learning_rate", "seed"));
}

// As transformers 5.24 reads its arguments that are objects.
TEST(TrainingArgumentsTest, ObjectsMayBeJsonTexts) {
  EXPECT_THAT(Missing(Arguments(R"({"accelerator_config": "{\"split_batches\": true}"})")),
              ElementsAre("accelerator_config.split_batches"));
  EXPECT_EQ(Arguments(R"({"max_steps": 5, "deepspeed": "{\"zero_optimization\": {\"stage\": 2}}"})")
                .ds_config["zero_optimization"]["stage"],
            2);
  EXPECT_THAT(Missing(Arguments(R"({"accelerator_config": {"split_batch": true}})")),
              ElementsAre("accelerator_config.split_batch"));
  EXPECT_THAT(Missing(Arguments(R"({"accelerator_config": "a.json", "deepspeed": true})")),
              ::testing::UnorderedElementsAre("accelerator_config", "deepspeed"));
  EXPECT_THAT(Missing(Arguments(R"({"accelerator_config": {"even_batches": true,
                                    "use_seedable_sampler": true}})")),
              IsEmpty());
}

TEST(TrainingArgumentsTest, OneShuffleOfTheFileIsNoOrderOfDsrun) {
  EXPECT_THAT(Missing(Arguments(R"({"max_length": 8, "packing": false, "shuffle_dataset": true,
                                    "train_sampling_strategy": "sequential"})")),
              ElementsAre("shuffle_dataset"));
  EXPECT_THAT(Missing(Arguments(R"({"max_length": 8, "packing": false, "shuffle_dataset": true})")),
              IsEmpty());
}

// The run says how many there are.
TEST(TrainingArgumentsTest, ADecayEndsWithTheRun) {
  const Translation epochs = Arguments("{}");
  EXPECT_TRUE(epochs.is_complete()) << DescribeMissing(epochs);
  EXPECT_EQ(epochs.flags["epochs"], 3);
  EXPECT_EQ(epochs.ds_config["scheduler"]["params"]["total_num_steps"], "auto");
  const Translation fewer = Arguments(R"({"max_steps": 500})", {.steps = 100});
  EXPECT_EQ(fewer.flags["steps"], 100);
  EXPECT_EQ(fewer.ds_config["scheduler"], epochs.ds_config["scheduler"]);
  EXPECT_THAT(Missing(Arguments(R"({"lr_scheduler_type": "constant", "num_train_epochs": 1.5})")),
              ElementsAre("num_train_epochs"));
}

TEST(TrainingArgumentsTest, ASchedulesParametersAreItsKwargs) {
  const Translation stable = Arguments(R"({"max_steps": 50, "warmup_steps": 3,
      "lr_scheduler_type": "warmup_stable_decay",
      "lr_scheduler_kwargs": {"num_decay_steps": 9, "min_lr_ratio": 0.1, "num_stable_steps": null}})");
  EXPECT_TRUE(stable.is_complete()) << DescribeMissing(stable);
  EXPECT_EQ(stable.ds_config["scheduler"].dump(),
            R"({"type":"warmup_stable_decay","params":{"warmup_num_steps":3,)"
            R"("total_num_steps":"auto","num_decay_steps":9,"min_lr_ratio":0.1}})");
  EXPECT_EQ(On(stable, "lr_scheduler_type").mapping, Mapping::kExact);
  EXPECT_EQ(On(stable, "lr_scheduler_kwargs").mapping, Mapping::kExact);
  EXPECT_FALSE(stable.flags.contains("warmup_steps"));
  EXPECT_TRUE(Arguments(R"({"max_steps": 5, "lr_scheduler_kwargs": "{}"})").is_complete());
  const Translation constant = Arguments(R"({"lr_scheduler_type": "constant", "warmup_steps": 3})");
  EXPECT_TRUE(constant.is_complete());
  EXPECT_FALSE(constant.ds_config.contains("scheduler"));
}

TEST(TrainingArgumentsTest, KwargsThatAScheduleDoesNotTakeAreMissing) {
  for (const char* kwargs : {R"("{'num_cycles': 2}")", "3", R"({"timescale": 2})"}) {
    const std::string given = R"("max_steps": 5, "lr_scheduler_kwargs": )" + std::string(kwargs);
    for (const char* type : {"linear", "cosine", "constant", "constant_with_warmup"}) {
      const std::string all = "{" + given + R"(, "lr_scheduler_type": ")" + type + "\"}";
      EXPECT_THAT(Missing(Arguments(all)), ElementsAre("lr_scheduler_kwargs")) << all;
    }
  }
  const Translation misspelt = Arguments(R"({"max_steps": 5, "lr_scheduler_type": "polynomial",
                                             "lr_scheduler_kwargs": {"lr_ends": 0}})");
  EXPECT_EQ(On(misspelt, "lr_scheduler_kwargs").text,
            "polynomial takes no lr_ends, but lr_end, power; did you mean 'lr_end'?");
  for (const char* type : {"reduce_lr_on_plateau", "greedy"}) {
    const Translation refused =
        Arguments(R"({"max_steps": 5, "lr_scheduler_type": ")" + std::string(type) + "\"}");
    EXPECT_THAT(On(refused, "lr_scheduler_type").text, HasSubstr("it follows a metric"));
  }
}

TEST(TrainingArgumentsTest, AShareOfTheStepsStaysOne) {
  for (const char* share : {R"("warmup_ratio": 0.1)", R"("warmup_steps": 0.1)"}) {
    const Translation warm = Arguments("{" + std::string(share) + "}");
    EXPECT_TRUE(warm.is_complete()) << DescribeMissing(warm);
    EXPECT_EQ(warm.flags["warmup_steps"], 0.1);
    EXPECT_EQ(warm.ds_config["scheduler"]["params"]["warmup_num_steps"], "auto");
  }
  const Translation deepspeed = Arguments(R"({"warmup_ratio": 0.1, "max_steps": 50, "deepspeed":
      {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}}})");
  EXPECT_EQ(deepspeed.flags["warmup_steps"], 0.1);
}

TEST(TrainingArgumentsTest, PrecisionIsAutocastUnlessDeepspeedOrFsdpHasMasters) {
  EXPECT_EQ(Arguments(R"({"bf16": true})").ds_config["torch_autocast"].dump(),
            R"({"enabled":true,"dtype":"bfloat16"})");
  const Translation fsdp = Arguments(R"({"bf16": true, "fsdp": "shard_grad_op auto_wrap"})");
  EXPECT_EQ(fsdp.flags["bf16"], true);
  EXPECT_EQ(fsdp.ds_config["zero_optimization"]["stage"], 2);
  EXPECT_FALSE(fsdp.ds_config.contains("torch_autocast"));
}

TEST(TrainingArgumentsTest, ADsConfigStaysAsItIs) {
  const Json config = Json::parse(R"({"zero_optimization": {"stage": 3},
      "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}})");
  const std::string arguments = R"({"deepspeed": "ds.json", "warmup_steps": 7, "max_steps": 50})";
  EXPECT_EQ(DeepspeedPath(Json::parse(arguments)), "ds.json");
  EXPECT_EQ(DeepspeedPath({{"deepspeed", R"({"bf16": {}})"}}), "") << "it is the config itself";
  const Translation translation = Arguments(arguments, {.deepspeed = config});
  EXPECT_EQ(translation.ds_config, config);
  EXPECT_EQ(translation.flags["warmup_steps"], 7);
  EXPECT_TRUE(translation.is_complete());
}

// transformers' deepspeed_init gives DeepSpeed's own optimizer model.parameters(), without groups.
TEST(TrainingArgumentsTest, AnOptimizerOfDeepspeedDecaysAllParameters) {
  const char* const own = R"({"max_steps": 5, "weight_decay": 0.1, "deepspeed":
      {"optimizer": {"type": "AdamW", "params": {"weight_decay": "auto"}}}})";
  EXPECT_FALSE(Arguments(own).flags.contains("no_decay_on_norms_and_biases"));
  EXPECT_EQ(Arguments(own).flags["weight_decay"], 0.1);
  const char* const trainers = R"({"max_steps": 5, "weight_decay": 0.1, "deepspeed":
      {"zero_optimization": {"stage": 2}}})";
  EXPECT_EQ(Arguments(trainers).flags["no_decay_on_norms_and_biases"], true);
}

TEST(TrainingArgumentsTest, ADsConfigOfAnotherShapeIsLeftToItsReader) {
  const Translation list = Arguments(R"({"max_steps": 5, "deepspeed": {"optimizer": [1]}})");
  EXPECT_EQ(list.ds_config["optimizer"].dump(), "[1]");
  EXPECT_THAT(Missing(Arguments(R"({"max_steps": 5, "fsdp": "full_shard",
                                    "deepspeed": {"zero_optimization": 3}})")),
              ElementsAre("fsdp"));
}

TEST(TrainingArgumentsTest, EvaluationAndSaving) {
  const Translation translation = Arguments(R"({"max_steps": 100, "eval_strategy": "steps",
      "eval_steps": 0.1, "save_strategy": "epoch", "hub_token": "secret", "weight_decay": 0.1})");
  EXPECT_TRUE(translation.is_complete()) << DescribeMissing(translation);
  EXPECT_EQ(translation.flags["eval_every"], 10);
  EXPECT_EQ(translation.flags["no_decay_on_norms_and_biases"], true);
  EXPECT_EQ(On(translation, "save_strategy").mapping, Mapping::kLeftOut);
  EXPECT_EQ(On(translation, "hub_token").value, "") << "no secret is shown";
  EXPECT_THAT(CommandWords(translation, ""), ::testing::Contains("EVAL_DATA"));
}

TEST(FlatYamlTest, ReadsTheSameAsPyYaml) {
  for (const Json& sample : Golden()["yaml"]) {
    const auto read = ReadFlatYaml(sample["text"].get<std::string>());
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(nlohmann::json(*read), nlohmann::json(sample["value"]));
  }
}

TEST(FlatYamlTest, RefusesTheRestByLine) {
  const auto error = [](const char* text) {
    const auto read = ReadFlatYaml(text);
    return read.ok() ? "accepted" : read.status().message();
  };
  EXPECT_THAT(error("a: 1\nb: &x 2\n"), HasSubstr("line 2: '&x 2' is beyond the YAML"));
  EXPECT_THAT(error("a: |\n  text\n"), HasSubstr("line 1: "));
  EXPECT_THAT(error("a: {b: 1}\n"), HasSubstr("line 1: "));
  EXPECT_THAT(error("a:\n\tb: 1\n"), HasSubstr("line 2: a tab"));
  EXPECT_THAT(error("a:\n  b:\n    c: 1\n"), HasSubstr("line 3: nested deeper"));
  EXPECT_THAT(error("a: 1\na: 2\n"), HasSubstr("line 2: a is given twice"));
  EXPECT_THAT(error("a: 1\n  b: 2\n"), HasSubstr("line 2: indented more"));
  EXPECT_THAT(error("  a: 1\nb: 2\n"), HasSubstr("line 2: indented less"));
  EXPECT_THAT(error("words\n"), HasSubstr("line 1: expected NAME: VALUE"));
  EXPECT_THAT(error("a: 'open\n"), HasSubstr("line 1: a quoted text"));
  EXPECT_THAT(error("a: 0x10\n"), HasSubstr("line 1: 0x10 may be a number in another base"));
  EXPECT_THAT(error("a: 12:30\n"), HasSubstr("line 1: "));
  EXPECT_EQ(error(""), "accepted");
}

TEST(DeepspeedWordsTest, FlagsOfDsrunsOwnStay) {
  const auto translation = TranslateDeepspeedWords(
      {"-H", "hosts", "--include=a:0,1", "--launcher", "pdsh", "train.py", "--lr", "3e-4"});
  ASSERT_TRUE(translation.ok());
  EXPECT_TRUE(translation->is_complete());
  EXPECT_EQ(ShellLine(CommandWords(*translation, "")),
            "dsrun -H hosts --include=a:0,1 --pass_local_rank train.py --lr 3e-4");
}

TEST(DeepspeedWordsTest, NamesUnmappedSettings) {
  const auto translation =
      TranslateDeepspeedWords({"--autotuning", "run", "--save_pid", "--no_local_rank", "t.py"});
  ASSERT_TRUE(translation.ok());
  EXPECT_THAT(Missing(*translation), ElementsAre("--autotuning"));
  EXPECT_EQ(On(*translation, "--save_pid").mapping, Mapping::kLeftOut);
  EXPECT_EQ(translation->program.front(), "t.py");
  EXPECT_THAT(TranslateDeepspeedWords({"--num_gpu", "2", "t.py"}).status().message(),
              HasSubstr("deepspeed has no flag --num_gpu; did you mean '--num_gpus'?"));
  EXPECT_THAT(TranslateDeepspeedWords({"--num_gpus", "2"}).status().message(),
              HasSubstr("has no script"));
}

TEST(TranslateFileTest, DetectsTheProgramOfAFile) {
  ds::testing::TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(folder.path() / name, text).ok());
    return (folder.path() / name).string();
  };
  write("ds.json", R"({"zero_optimization": {"stage": 1}})");
  const auto arguments =
      TranslateFile(write("args.json", R"({"deepspeed": "ds.json", "max_steps": 5})"), {});
  ASSERT_TRUE(arguments.ok()) << arguments.status().message();
  EXPECT_EQ(arguments->ds_config["zero_optimization"]["stage"], 1) << "beside the file";
  const std::string yaml = write("a.yaml", "distributed_type: NO\n");
  EXPECT_TRUE(TranslateFile(yaml, {}).ok());
  EXPECT_THAT(TranslateTrainerFile(yaml, {}).status().message(), HasSubstr("no arguments of"));
  EXPECT_THAT(TranslateFile((folder.path() / "ds.json").string(), {}).status().message(),
              HasSubstr("a ds_config already"));
  EXPECT_THAT(TranslateTrainerFile(write("b.json", R"({"adafactor": true})"), {.steps = 5})
                  .status()
                  .message(),
              HasSubstr("\nadafactor true: dsrun has no Adafactor"));
  EXPECT_THAT(TranslateFile(write("c.json", "{"), {}).status().message(),
              HasSubstr("c.json: line 1"));
}

TEST(TranslateFileTest, NamesAFileThatCannotBeReadOnce) {
  ds::testing::TemporaryFolder folder;
  const std::string path = folder.path().string();
  EXPECT_EQ(TranslateFile(path, {}).status().message(), path + ": Is a directory");
  EXPECT_EQ(TranslateTrainerFile(path, {}).status().message(),
            "--from_hf_trainer: " + path + ": Is a directory");
  const std::string arguments = path + "/args.json";
  ASSERT_TRUE(WriteFileAtomically(arguments, R"({"deepspeed": "/no/ds.json"})").ok());
  EXPECT_EQ(TranslateFile(arguments, {}).status().message(),
            arguments + ": the ds_config: /no/ds.json: No such file or directory");
}

}  // namespace
}  // namespace ds::cli
