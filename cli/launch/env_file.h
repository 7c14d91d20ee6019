#pragma once

// Env files: environment variables for every rank, one NAME=VALUE a line.
//
//     # comment
//     NCCL_DEBUG=INFO
//     export PATHS=/a:/b        # `export` is fine, and so is a comment behind a blank
//     GREETING="two words\n"    # \" \\ \n \t \$ inside double quotes
//     LITERAL='$HOME "as it is"'
//
// Nothing is expanded: $HOME is five bytes. Blanks around name and value, blank lines, CRLF and a
// UTF-8 byte-order mark are fine; an empty value is one; the last line of a name counts. A value
// without quotes may have blanks, but not behind `export`, where a shell would read several words.
// Anything else is an error that names file and line.
//
// Pure but for the Read functions; safe from any thread.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/rank_environment.h"
#include "runtime/base/status.h"

namespace ds::cli {

// `file_name` is for messages. Values never appear in messages: they may be secret.
StatusOr<Environment> ParseEnvFile(std::string_view text, std::string_view file_name);

// kNotFound when there is no such file: one that was named must exist.
StatusOr<Environment> ReadEnvFile(const std::filesystem::path& path);

// Lists the places at which DeepSpeed looks for an env file nobody named, in the order in which
// they are applied: `name` (DS_ENV_FILE; none: .deepspeed_env) in `home`, then in the working
// directory. One file found twice is listed once.
std::vector<std::filesystem::path> FindUsualEnvFiles(
    const std::optional<std::string>& name, const std::filesystem::path& home,
    const std::filesystem::path& working_directory);

}  // namespace ds::cli
