#pragma once

// Two ways to write bytes as text: GPT-2's letters, a printable character for each byte, so that a
// vocabulary of bytes is one of texts (openai/gpt-2, encoder.py), and SentencePiece's tokens <0x00>
// to <0xFF>.

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ds::tokenizer {

// The letter of each byte, in UTF-8.
const std::string (&ByteLetters())[256];

// The byte whose letter this is, if any.
std::optional<char> LetterByte(char32_t letter);

// The bytes that a text of letters stands for; nothing when a character of it is no letter.
std::optional<std::string> LettersToBytes(std::string_view letters);

// SentencePiece's token of a byte, "<0x0A>", and the byte of such a token.
std::string ByteToken(unsigned char byte);
std::optional<char> TokenByte(std::string_view token);

}  // namespace ds::tokenizer
