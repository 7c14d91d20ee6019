#pragma once

// Env files: environment variables for every rank, one NAME=VALUE a line.
//
//     # comment
//     NCCL_DEBUG=INFO
//     export PATHS=/a:/b        # `export` is allowed, and so is a comment after a blank
//     GREETING="two words\n"    # \" \\ \n \t \$ inside double quotes
//     LITERAL='$HOME "as it is"'
//
// Nothing is expanded: $HOME is five bytes. Blanks around name and value, blank lines, CRLF and a
// UTF-8 byte-order mark are allowed. An empty value is a value. The last line of a name wins. A
// value without quotes may contain blanks, but not after `export`, where a shell would read several
// words. Any other line is an error that names file and line.
//
// Pure except the Read functions; safe from any thread.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/rank_environment.h"
#include "runtime/base/status.h"

namespace ds::cli {

// `file_name` is for messages. Messages never contain values, because they may be secret.
StatusOr<Environment> ParseEnvFile(std::string_view text, std::string_view file_name);

// Returns kNotFound if the file does not exist: an explicitly named file is required.
StatusOr<Environment> ReadEnvFile(const std::filesystem::path& path);

// Lists the default env files that DeepSpeed reads, in the order of application: `name`
// (DS_ENV_FILE; default: .deepspeed_env) in `home`, then in the working directory. A file found
// twice is listed once.
std::vector<std::filesystem::path> FindUsualEnvFiles(
    const std::optional<std::string>& name, const std::filesystem::path& home,
    const std::filesystem::path& working_directory);

}  // namespace ds::cli
