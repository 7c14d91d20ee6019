#pragma once

// The flags that say under which keys rows of data hold their parts, and where a document is cut
// off. `train`, `resume` and `tokenize` have them.

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

// Declares the flags on `app`, writing into `flags` (which outlives the parse).
void AddRowFlags(CLI::App& app, RowFlags* flags);
void AddDocumentFlags(CLI::App& app, RowFlags* flags);

// Lays the given flags over `job`. With max_length a sample is one document, as in TRL, until
// packing and seq_len are laid over it.
void ApplyRowFlags(const RowFlags& flags, config::TrainJob* job);

// Refuses flags that name two formats, and lengths that do not go together.
Status CheckRowFlags(const config::TrainJob& job);

// The first of the flags that the job has, "--max_length"; "" for none.
std::string FindRowFlag(const config::TrainJob& job);

// The keys alone; refuses two formats.
StatusOr<tokenizer::RowOptions> RowOptionsOf(const RowFlags& flags);

}  // namespace ds::cli
