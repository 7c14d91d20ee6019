#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/tokenize/tokenize_files.h"
#include "cli/train/find_model.h"
#include "cli/train/row_flags.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/printable.h"
#include "runtime/tokenizer/file/read_tokenizer.h"

namespace ds::cli {
namespace {

constexpr int kMostThreads = 1024;
constexpr FlagAlias kOlderNames[] = {{"field", "text_field"}};
constexpr std::size_t kUint16Ids = std::size_t{1} << 16;

struct TokenizeFlags {
  TokenizeJob job;
  RowFlags rows;
  std::string tokenizer;
  std::string token_dtype;
  std::string separator;
  bool no_special_tokens = false;
  bool json = false;
};

void AddTokenizeFlags(CLI::App& app, TokenizeFlags* flags) {
  app.add_option("FILES", flags->job.files,
                 "text files, files of rows (.jsonl, .json, .csv, .tsv, .parquet, .arrow), folders "
                 "and data sets; see dsrun help data");
  app.add_option(FlagNames("tokenizer"), flags->tokenizer,
                 "the Hugging Face folder of the tokenizer, or its tokenizer.json")
      ->type_name("DIR");
  app.add_option(FlagNames("out"), flags->job.out, "output file of token ids")->type_name("FILE");
  TakeOneOf(app.add_option(FlagNames("token_dtype"), flags->token_dtype,
                           "data type of the ids (default: uint16 if all ids fit, else uint32)"),
            {"uint16", "uint32"});
  app.add_flag(FlagNames("no_special_tokens"), flags->no_special_tokens,
               "omit the special tokens that the tokenizer adds around a text");
  app.add_option(FlagNames("separator"), flags->separator,
                 "token of the tokenizer to append to every text")
      ->type_name("TOKEN");
  AddRowFlags(app, &flags->rows);
  app.add_option(FlagNames("data_field"), flags->job.data_field,
                 "the field of .json files that holds the rows (default: the file is the rows)")
      ->type_name("NAME");
  app.add_option(FlagNames("threads"), flags->job.threads,
                 "number of threads (default: one per core)")
      ->check(WholeNumber(1, kMostThreads))
      ->type_name("N");
  app.add_flag("--json", flags->json, "print one JSON object: texts, tokens, token_dtype");
}

Status CheckGiven(const TokenizeFlags& flags) {
  const std::string help = "; see dsrun tokenize --help";
  if (flags.job.files.empty()) return InvalidArgumentError("tokenize: no FILES given" + help);
  if (flags.tokenizer.empty()) return InvalidArgumentError("tokenize: no --tokenizer given" + help);
  if (flags.job.out.empty()) return InvalidArgumentError("tokenize: no --out given" + help);
  return OkStatus();
}

// Reads a tokenizer. A single file has no chat template.
StatusOr<tokenizer::TokenizerFolder> ReadFolder(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return NotFoundError("--tokenizer " + path + ": no such folder or file" +
                         DescribeDownload("--tokenizer", path));
  }
  if (error) return InvalidArgumentError("--tokenizer " + path + ": " + error.message());
  if (std::filesystem::is_directory(status)) return tokenizer::ReadTokenizerFolder(path);
  DS_ASSIGN_OR_RETURN(tokenizer::Tokenizer tokenizer, tokenizer::ReadTokenizer(path));
  return tokenizer::TokenizerFolder{.tokenizer = std::move(tokenizer), .chat_variables = {}};
}

// Chooses the type of the stored ids and finds the separator.
Status FitToTokenizer(const tokenizer::Tokenizer& tokenizer, TokenizeFlags* flags) {
  const bool fits = tokenizer.id_limit() <= kUint16Ids;
  if (flags->token_dtype.empty()) flags->token_dtype = fits ? "uint16" : "uint32";
  if (flags->token_dtype == "uint16" && !fits) {
    return InvalidArgumentError(
        "--token_dtype uint16 cannot hold the ids of this tokenizer, which go to " +
        std::to_string(tokenizer.id_limit() - 1) + "; use uint32");
  }
  flags->job.id_bytes = flags->token_dtype == "uint16" ? 2 : 4;
  flags->job.special_tokens = !flags->no_special_tokens;
  if (flags->separator.empty()) return OkStatus();
  flags->job.separator = tokenizer.IdOf(flags->separator);
  if (flags->job.separator) return OkStatus();
  return InvalidArgumentError("--separator '" + Printable(flags->separator) +
                              "' is not a token of this tokenizer");
}

// Rewrites one line of the terminal, at most once per second.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (shown_) std::cerr << "\r\033[K" << std::flush;
  }

  void Show(const TokenizeCounts& counts) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_terminal_ || now - last_ < std::chrono::seconds(1)) return;
    last_ = now;
    shown_ = true;
    std::cerr << "\r\033[Ktokenize: " << ByteSize(counts.bytes) << " of "
              << ByteSize(counts.total_bytes) << ", " << counts.tokens << " tokens" << std::flush;
  }

 private:
  const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  bool shown_ = false;
};

void PrintCounts(const TokenizeFlags& flags, const TokenizeCounts& counts) {
  if (flags.json) {
    std::cout << fmt::format(R"({{"texts":{},"tokens":{},"token_dtype":"{}"}})", counts.texts,
                             counts.tokens, flags.token_dtype)
              << std::endl;
    return;
  }
  if (counts.partly_in_loss > 0) {
    std::cerr << fmt::format(
        "tokenize: {} texts have prompts or messages that do not contribute to the loss, and a "
        "file of token ids does not mark them: train --data with the rows themselves trains on the "
        "answers alone\n",
        counts.partly_in_loss);
  }
  if (counts.rejected > 0) {
    std::cerr << fmt::format("tokenize: left out {} rows with a \"label\" of false\n",
                             counts.rejected);
  }
  const std::string dtype = flags.job.id_bytes == 2 ? "" : " --token_dtype uint32";
  std::cout << fmt::format("{}: {} tokens of {} {}, {}\ntrain with: --data {}{}\n", flags.job.out,
                           counts.tokens, counts.texts, counts.texts == 1 ? "text" : "texts",
                           flags.token_dtype, flags.job.out, dtype)
            << std::flush;
}

}  // namespace

// `dsrun tokenize` writes the texts of files into one file of token ids for `train --data`.
StatusOr<int> TokenizeCommand(const Invocation& invocation) {
  TokenizeFlags flags;
  flags.job.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  FlagParser parser(
      "tokenize FILES... --tokenizer DIR --out X.bin [flags]",
      "Write the texts of files as one file of token ids, which train --data reads. A text file is "
      "one text; in other files each row is one text (dsrun help rows).");
  AddTokenizeFlags(parser.app(), &flags);
  parser.TakeAliases(kOlderNames);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_RETURN_IF_ERROR(CheckGiven(flags));
  DS_ASSIGN_OR_RETURN(flags.job.rows, RowOptionsOf(flags.rows));
  DS_ASSIGN_OR_RETURN(const tokenizer::TokenizerFolder folder, ReadFolder(flags.tokenizer));
  DS_RETURN_IF_ERROR(FitToTokenizer(folder.tokenizer, &flags));
  StatusOr<TokenizeCounts> counts(TokenizeCounts{});
  {
    ProgressLine line;
    counts =
        TokenizeFiles(folder, flags.job, [&](const TokenizeCounts& so_far) { line.Show(so_far); });
  }
  if (!counts.ok()) return counts.status().WithContext("tokenize");
  for (const std::string& notice : counts->notices) {
    std::cerr << "dsrun: " << Printable(notice) << std::endl;
  }
  PrintCounts(flags, *counts);
  return kExitOk;
}

}  // namespace ds::cli
