// Feeds the files of the folders that are named to a fuzz target, without libFuzzer: what was found
// once stays fixed. Each file is also fed cut short and with a byte turned, so that a small corpus
// reaches the refusals too.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void Feed(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

void FeedVariants(std::string bytes) {
  constexpr std::size_t kVariants = 64;
  Feed(bytes);
  const std::size_t stride = bytes.size() / kVariants + 1;
  for (std::size_t i = 0; i < bytes.size(); i += stride) {
    Feed(bytes.substr(0, i));
    bytes[i] = static_cast<char>(bytes[i] ^ 0x15);
    Feed(bytes);
    bytes[i] = static_cast<char>(bytes[i] ^ 0x15);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int count = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      FeedVariants({std::istreambuf_iterator<char>(file), {}});
      ++count;
    }
  }
  std::cout << count << " files\n";
  return count > 0 ? 0 : 1;
}
