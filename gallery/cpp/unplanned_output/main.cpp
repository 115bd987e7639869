// Executes a CUDA program twice, with its inputs and outputs in device memory, and tells where each
// result is.
//
//   caller PROGRAM WEIGHTS INPUTS RESULTS [--set-output]
//
// INPUTS holds two inputs. RESULTS gets the first result after the first execution, then both
// results after the second.

#include <cuda_runtime_api.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

using executorch::aten::Device;
using executorch::aten::DeviceType;
using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::runtime::Error;

using Values = std::array<float, 4 * 64>;

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

bool IsDeviceMemory(const void* data) {
  cudaPointerAttributes attributes{};
  Check(cudaPointerGetAttributes(&attributes, data));
  return attributes.type == cudaMemoryTypeDevice;
}

const char* YesNo(bool value) { return value ? "yes" : "no"; }

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: caller PROGRAM WEIGHTS INPUTS RESULTS [--set-output]\n");
    return 2;
  }
  const std::string program = argv[1], weights = argv[2];
  std::ifstream inputs(argv[3], std::ios::binary);
  std::ofstream results(argv[4], std::ios::binary);
  const bool set_output = argc > 5 && std::string_view(argv[5]) == "--set-output";

  float* const input = DeviceBuffer();
  const std::array<float*, 2> outputs = {DeviceBuffer(), DeviceBuffer()};
  std::array<const float*, 2> data{};
  Values host{};

  Module module(program, weights);
  for (int i = 0; i < 2; ++i) {
    if (!inputs.read(reinterpret_cast<char*>(host.data()), sizeof(host))) {
      std::fprintf(stderr, "cannot read input %d from %s\n", i + 1, argv[3]);
      return 1;
    }
    Check(cudaMemcpy(input, host.data(), sizeof(host), cudaMemcpyHostToDevice));

    // [call]
    const Device cuda(DeviceType::CUDA, 0);
    auto input_tensor = from_blob(input, {4, 64}, ScalarType::Float, cuda);
    if (set_output) {
      // The program reserves no memory for its output: it writes where this tensor points.
      auto output_tensor = from_blob(outputs[i], {4, 64}, ScalarType::Float, cuda);
      if (Error error = module.set_output(output_tensor); error != Error::Ok) {
        return Fail("set_output", error);
      }
    }
    auto result = module.forward(input_tensor);
    if (!result.ok()) {
      return Fail("forward", result.error());
    }
    data[i] = result->at(0).toTensor().const_data_ptr<float>();
    // [/call]

    std::printf("execution %d: device memory: %s, caller's buffer: %s\n", i + 1,
                YesNo(IsDeviceMemory(data[i])), YesNo(data[i] == outputs[i]));
    for (int k = 0; k <= i; ++k) {
      // This copy runs on the legacy default stream, which waits for the delegate's stream.
      Check(cudaMemcpy(host.data(), data[k], sizeof(host), cudaMemcpyDeviceToHost));
      results.write(reinterpret_cast<const char*>(host.data()), sizeof(host));
    }
  }
  std::printf("both results in one buffer: %s\n", YesNo(data[0] == data[1]));

  for (float* buffer : {input, outputs[0], outputs[1]}) {
    Check(cudaFree(buffer));
  }
  return 0;
}
