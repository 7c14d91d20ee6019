#pragma once

// TokenCache: texts as token ids of a model's tokenizer, tokenized once per host and kept in a
// folder with a manifest.
//
// It is a folder of the host's cache (host_cache.h). Its key is the data files (path, size,
// modification time), the content of the tokenizer's files and the options of TokenRequest.
//
// Data and ids are streamed: memory is bounded by a batch of lines or the largest text file.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/plan/data/text_tokenizer.h"

namespace ds::data {

struct CachedTokens {
  std::filesystem::path folder;
  std::int64_t id_bytes = 2;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  bool all_in_loss = true;  // else loss_mask_file() marks the tokens in the loss
  OmittedTexts left_out;
  bool was_there = false;  // true: nothing had to be tokenized

  std::filesystem::path ids_file() const { return folder / "tokens.bin"; }
  // The ends of documents, for DocumentIndex.
  std::filesystem::path documents_file() const { return folder / "documents.bin"; }
  // One byte per token: whether it contributes to the loss.
  std::filesystem::path loss_mask_file() const { return folder / "learnt.bin"; }
};

// Returns this user's cache folder: $XDG_CACHE_HOME/dsrun, else ~/.cache/dsrun. Fails if the
// environment defines neither.
StatusOr<std::filesystem::path> DefaultCacheRoot();

// Finds the tokens under `root`, or creates them. Calls `progress` with the completed share, from 0
// to 1. Errors name the file and line of an unusable text.
StatusOr<CachedTokens> FindOrTokenize(const TokenRequest& request,
                                      const std::filesystem::path& root,
                                      const std::function<void(double share)>& progress,
                                      FileSystem& system = FileSystem::System());

}  // namespace ds::data
