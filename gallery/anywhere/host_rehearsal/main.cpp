// Executes a program twice and tells where each result is. Everything is in host memory.
//
//   caller PROGRAM INPUTS RESULTS [--set-output]
//
// INPUTS holds two inputs. RESULTS gets the first result after the first execution, then both
// results after the second.

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string_view>

using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::runtime::Error;

using Values = std::array<float, 4 * 64>;

int Fail(const char* step, Error error) {
  std::fprintf(stderr, "%s: error 0x%x\n", step, static_cast<uint32_t>(error));
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: caller PROGRAM INPUTS RESULTS [--set-output]\n");
    return 2;
  }
  const bool set_output = argc > 4 && std::string_view(argv[4]) == "--set-output";

  std::array<Values, 2> inputs{};
  std::ifstream source(argv[2], std::ios::binary);
  if (!source.read(reinterpret_cast<char*>(inputs.data()), sizeof(inputs))) {
    std::fprintf(stderr, "cannot read two inputs from %s\n", argv[2]);
    return 1;
  }
  std::ofstream file(argv[3], std::ios::binary);

  Module module(argv[1]);
  std::array<Values, 2> outputs{};
  std::array<const float*, 2> results{};
  for (int i = 0; i < 2; ++i) {
    // [call]
    if (set_output) {
      // The program reserves no memory for its output: it writes where this tensor points.
      auto output = from_blob(outputs[i].data(), {4, 64}, ScalarType::Float);
      if (Error error = module.set_output(output); error != Error::Ok) {
        return Fail("set_output", error);
      }
    }
    auto input = from_blob(inputs[i].data(), {4, 64}, ScalarType::Float);
    auto result = module.forward(input);
    if (!result.ok()) {
      return Fail("forward", result.error());
    }
    results[i] = result->at(0).toTensor().const_data_ptr<float>();
    // [/call]

    std::printf("execution %d: in the caller's buffer: %s\n", i + 1,
                results[i] == outputs[i].data() ? "yes" : "no");
    for (int k = 0; k <= i; ++k) {
      file.write(reinterpret_cast<const char*>(results[k]), sizeof(Values));
    }
  }
  std::printf("both results in one buffer: %s\n", results[0] == results[1] ? "yes" : "no");
  return 0;
}
