// One tokenizer on one thread.
//
//     bench_tokenizer TOKENIZER FILE     megabytes per second for the documents of FILE, a JSON
//     text a line,
//                                        for ids alone and with offsets, the best of three passes
//     bench_tokenizer TOKENIZER --dump   for each JSON text on standard input a line with its ids,
//     offsets
//                                        (bytes) and decoded text

#include <chrono>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/tokenizer/file/read_tokenizer.h"

namespace {

using Json = nlohmann::json;
using ds::tokenizer::EncodeOptions;
using ds::tokenizer::Encoder;
using ds::tokenizer::Tokenizer;

int Dump(const Tokenizer& tokenizer) {
  Encoder encoder(tokenizer);
  for (std::string line; std::getline(std::cin, line);) {
    const auto encoding = encoder.Encode(Json::parse(line).get<std::string>(), {.offsets = true});
    if (!encoding.ok()) {
      std::cout << Json({{"error", encoding.status().message()}}).dump() << "\n";
      continue;
    }
    Json offsets = Json::array();
    for (const auto& span : encoding->offsets) offsets.push_back({span.begin, span.end});
    const auto decoded = tokenizer.Decode(encoding->ids);
    std::cout << Json({{"ids", encoding->ids},
                       {"offsets", offsets},
                       {"decoded", decoded.ok() ? *decoded : decoded.status().message()}})
                     .dump()
              << "\n";
  }
  return 0;
}

double Measure(const Tokenizer& tokenizer, const std::vector<std::string>& texts, bool offsets) {
  const EncodeOptions options{.offsets = offsets, .truncate = false};
  double best = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass < 3; ++pass) {
    Encoder encoder(tokenizer);
    const auto start = std::chrono::steady_clock::now();
    for (const std::string& text : texts) {
      if (const auto encoding = encoder.Encode(text, options); !encoding.ok()) {
        std::cerr << encoding.status().message() << "\n";
        return best;
      }
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: bench_tokenizer TOKENIZER FILE|--dump\n";
    return 2;
  }
  const auto tokenizer = ds::tokenizer::ReadTokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 2;
  }
  if (std::string_view(argv[2]) == "--dump") return Dump(*tokenizer);
  std::vector<std::string> texts;
  double bytes = 0;
  std::ifstream file(argv[2]);
  for (std::string line; std::getline(file, line);) {
    texts.push_back(Json::parse(line).get<std::string>());
    bytes += static_cast<double>(texts.back().size());
  }
  std::cout << Json({{"ids", bytes / 1e6 / Measure(*tokenizer, texts, false)},
                     {"offsets", bytes / 1e6 / Measure(*tokenizer, texts, true)}})
                   .dump()
            << std::endl;
  return 0;
}
