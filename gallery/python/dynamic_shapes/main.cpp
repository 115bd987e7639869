// Executes a program with 8, 3, 1 and 9 rows. One device buffer, of the upper bound's size, takes
// every result.
//
//   caller PROGRAM WEIGHTS INPUTS RESULTS
//
// INPUTS holds nine rows. RESULTS gets the results, one after the other.

#include <cuda_runtime_api.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>

using executorch::aten::Device;
using executorch::aten::DeviceType;
using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::runtime::Error;

constexpr int kColumns = 64, kMaxRows = 8;
using Values = std::array<float, (kMaxRows + 1) * kColumns>;

void Check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

int Fail(const char* step, Error error) {
  std::fprintf(stderr, "%s: error 0x%x\n", step, static_cast<uint32_t>(error));
  return 1;
}

float* DeviceBuffer() {
  void* data = nullptr;
  Check(cudaMalloc(&data, sizeof(Values)));
  return static_cast<float*>(data);
}

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: caller PROGRAM WEIGHTS INPUTS RESULTS\n");
    return 2;
  }
  Values host{};
  std::ifstream(argv[3], std::ios::binary).read(reinterpret_cast<char*>(host.data()), sizeof(host));
  std::ofstream results(argv[4], std::ios::binary);

  float* const input = DeviceBuffer();
  float* const output = DeviceBuffer();
  Check(cudaMemcpy(input, host.data(), sizeof(host), cudaMemcpyHostToDevice));

  Module module(argv[1], argv[2]);
  const Device cuda(DeviceType::CUDA, 0);
  auto SetOutput = [&](int rows) {
    return module.set_output(from_blob(output, {rows, kColumns}, ScalarType::Float, cuda));
  };

  std::printf("buffer of 3 rows at first: error 0x%x\n", static_cast<uint32_t>(SetOutput(3)));
  for (int rows : {8, 3, 1}) {
    // [call]
    auto input_tensor = from_blob(input, {rows, kColumns}, ScalarType::Float, cuda);
    if (Error error = SetOutput(kMaxRows); error != Error::Ok) {
      return Fail("set_output", error);
    }
    auto result = module.forward(input_tensor);
    if (!result.ok()) {
      return Fail("forward", result.error());
    }
    const auto tensor = result->at(0).toTensor();
    // [/call]

    std::printf("%d rows in: %d x %d out, caller's buffer: %s\n", rows,
                static_cast<int>(tensor.size(0)), static_cast<int>(tensor.size(1)),
                tensor.const_data_ptr<float>() == output ? "yes" : "no");
    Check(cudaMemcpy(host.data(), output, tensor.nbytes(), cudaMemcpyDeviceToHost));
    results.write(reinterpret_cast<const char*>(host.data()), tensor.nbytes());
  }
  std::printf("buffer of 1 row at last: error 0x%x\n", static_cast<uint32_t>(SetOutput(1)));

  auto refused =
      module.forward(from_blob(input, {kMaxRows + 1, kColumns}, ScalarType::Float, cuda));
  std::printf("9 rows in: error 0x%x\n", static_cast<uint32_t>(refused.error()));

  Check(cudaFree(input));
  Check(cudaFree(output));
  return 0;
}
