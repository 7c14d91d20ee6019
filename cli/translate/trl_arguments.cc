#include "cli/translate/trl_arguments.h"

#include <string>

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

void TranslateTextField(GivenArguments* arguments, Translation* translation) {
  constexpr char kName[] = "dataset_text_field";
  if (!arguments->IsGiven(kName)) return;
  const std::string field = arguments->Text(kName);
  // TRL looks for messages and prompts first, as dsrun does if no name is given.
  if (field == "text") {
    return translation->Add(Mapping::kExact, kName, field, "read where a row has it");
  }
  if (field.empty()) return;
  translation->flags["text_field"] = field;
  translation->Add(
      Mapping::kNearly, kName, field,
      "--text_field, also for rows with messages or a prompt, which TRL would use instead");
}

// Returns the argument for the length of a sample; "" if there is none.
std::string NameOfLength(const GivenArguments& arguments) {
  for (const char* name : {"block_size", "max_seq_length", "max_length"}) {
    if (arguments.Has(name)) return name;
  }
  return arguments.of_sft() ? "max_length" : "";
}

// The handling of rows longer than a sample: TRL splits the row, cuts off its end, or truncates it
// according to truncation_mode.
enum class LongRow { kSplits, kTruncates, kTruncatesOnRequest };

void TranslateLength(LongRow long_row, GivenArguments* arguments, Translation* translation) {
  const std::string name = NameOfLength(*arguments);
  if (name.empty()) return;
  if (arguments->Get(name).is_null()) {
    return arguments->Miss(name,
                           "samples have one length in dsrun: give --seq_len, at least the "
                           "tokens of the longest document");
  }
  const auto length = arguments->Integer(name);
  if (!length) return;
  if (long_row == LongRow::kSplits) return translation->SetFlag(name, *length, "seq_len", *length);
  translation->flags["max_length"] = *length;
  translation->Add(Mapping::kNearly, name, *length,
                   "--max_length, which truncates as TRL does; samples are padded to it, in TRL to "
                   "the longest of the batch");
  // With packing, TRL always cuts off the end and ignores the argument.
  const std::string mode = arguments->Text("truncation_mode");
  if (long_row == LongRow::kTruncates || mode == "keep_start") return;
  translation->SetFlag("truncation_mode", mode, "truncation_mode", mode);
}

void SetPacking(const char* name, const Json& value, const char* packing, const char* differs,
                Translation* translation) {
  translation->flags["packing"] = packing;
  translation->Add(*differs == 0 ? Mapping::kExact : Mapping::kNearly, name, value,
                   std::string("--packing ") + packing + differs);
}

LongRow TranslatePacking(GivenArguments* arguments, Translation* translation) {
  constexpr char kName[] = "packing_strategy";
  if (!arguments->of_sft()) return LongRow::kSplits;
  if (!arguments->Flag("packing")) {
    SetPacking("packing", false, "none", "", translation);
    return LongRow::kTruncatesOnRequest;
  }
  const std::string strategy = arguments->Text(kName);
  if (strategy == "bfd" || strategy == "bfd_split") {
    SetPacking(kName, strategy, "whole", ", which puts other documents together than TRL does",
               translation);
  } else if (strategy == "wrapped") {
    SetPacking(kName, strategy, "stream",
               ", where a token attends to its own document alone, in TRL to all of a sample",
               translation);
  } else {
    arguments->Miss(kName, "TRL has bfd, bfd_split and wrapped");
  }
  const Json of_evaluations = arguments->Get("eval_packing");
  if (!of_evaluations.is_null() && of_evaluations != true) {
    translation->Add(Mapping::kNearly, "eval_packing", of_evaluations,
                     "evaluations are packed as the training is");
  }
  return strategy == "bfd" ? LongRow::kTruncates : LongRow::kSplits;
}

void TranslateLossTokens(GivenArguments* arguments, Translation* translation) {
  const Json completions = arguments->Get("completion_only_loss");
  if (completions == false) {
    arguments->Miss("completion_only_loss",
                    "dsrun does not learn prompts; join prompt and completion to one text");
  } else if (completions == true) {
    translation->Add(Mapping::kExact, "completion_only_loss", true, "always so");
  }
  if (arguments->Flag("assistant_only_loss")) {
    translation->SetFlag("assistant_only_loss", true, "assistant_only_loss", true);
  } else {
    translation->Add(
        Mapping::kNearly, "assistant_only_loss", false,
        "where rows have messages, dsrun learns the assistant's alone, TRL all tokens");
  }
  // chunked_nll is an older name of nll.
  const std::string loss = arguments->Text("loss_type");
  if (loss != "nll" && loss != "chunked_nll") {
    arguments->Miss("loss_type", "dsrun has the cross entropy (nll)");
  }
}

// SFTTrainer adds the loss by default, Trainer only if config.json requests it.
void TranslateBalance(GivenArguments* arguments, Translation* translation) {
  constexpr char kName[] = "router_aux_loss_coef";
  const Json coefficient = arguments->Get(kName);
  if (!coefficient.is_null() && !arguments->Number(kName)) return;
  translation->SetFlag(kName, coefficient, kName,
                       coefficient.is_null() ? Json("auto") : Json(coefficient.dump()));
}

// transformers writes "<EOS_TOKEN>" for any value of an argument with such a name.
void TranslateEndToken(GivenArguments* arguments, Translation* translation) {
  constexpr char kName[] = "eos_token";
  if (!arguments->Has(kName)) return;
  const std::string token = arguments->Text(kName);
  if (token != "<EOS_TOKEN>") {
    return arguments->Miss(kName, "write it into the tokenizer_config.json of --tokenizer");
  }
  translation->Add(Mapping::kLeftOut, kName, token,
                   "transformers writes this in place of any value; a token of your own belongs "
                   "into the tokenizer_config.json of --tokenizer");
}

}  // namespace

void TranslateSamples(GivenArguments* arguments, Translation* translation) {
  TranslateTextField(arguments, translation);
  TranslateLength(TranslatePacking(arguments, translation), arguments, translation);
  if (!arguments->of_sft()) return;
  TranslateLossTokens(arguments, translation);
  TranslateBalance(arguments, translation);
  TranslateEndToken(arguments, translation);
}

}  // namespace ds::cli
