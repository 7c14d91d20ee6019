#pragma once

// Two ways to write bytes as text. GPT-2 uses letters, one printable character per byte, so that a
// vocabulary of bytes is one of texts (openai/gpt-2, encoder.py). SentencePiece uses tokens <0x00>
// to <0xFF>.

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ds::tokenizer {

// Returns the letter of each byte, in UTF-8.
const std::string (&ByteLetters())[256];

// Returns the byte of this letter, if any.
std::optional<char> LetterByte(char32_t letter);

// Returns the bytes that a text of letters stands for; nothing if one of its characters is not a
// letter.
std::optional<std::string> LettersToBytes(std::string_view letters);

// Return SentencePiece's token of a byte, "<0x0A>", and the byte of such a token.
std::string ByteToken(unsigned char byte);
std::optional<char> TokenByte(std::string_view token);

}  // namespace ds::tokenizer
