#pragma once

// Flags for the keys of data rows and for the truncation of documents. `train`, `resume` and
// `tokenize` have them.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/config/train_job.h"
#include "runtime/tokenizer/corpus/document_options.h"

namespace CLI {
class App;
}

namespace ds::cli {

struct RowFlags {
  std::optional<std::string> text_field, messages_field, prompt_field, completion_field;
  std::optional<std::string> tools_field, role_field, content_field, prompt_style;
  std::optional<std::int64_t> max_length;
  std::optional<std::string> truncation_mode;
  std::optional<bool> assistant_only_loss;
};

// Declares the flags on `app`. Parsing writes into `flags`, which must outlive the parse.
void AddRowFlags(CLI::App& app, RowFlags* flags);
void AddDocumentFlags(CLI::App& app, RowFlags* flags);

// Applies the given flags to `job`. With max_length a sample is one document, as in TRL, unless
// packing and seq_len are applied afterwards.
void ApplyRowFlags(const RowFlags& flags, config::TrainJob* job);

// Rejects flags for two row formats, and inconsistent lengths.
Status CheckRowFlags(const config::TrainJob& job);

// Returns the first of these flags that is set in the job, such as "--max_length"; "" if there is
// none.
std::string FindRowFlag(const config::TrainJob& job);

// Returns only the keys. Rejects flags for two row formats.
StatusOr<tokenizer::RowOptions> RowOptionsOf(const RowFlags& flags);

}  // namespace ds::cli
