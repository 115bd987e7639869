// Executes a CUDA program six times, each time with another input and another output buffer, and
// may measure it then.
//
//   caller PROGRAM WEIGHTS INPUTS RESULTS [--cuda-graph] [--time]
//
// INPUTS holds six inputs. RESULTS gets the six results.

#include <cuda_runtime_api.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

using executorch::aten::Device;
using executorch::aten::DeviceType;
using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::runtime::BackendOptions;
using executorch::runtime::Error;

constexpr int kSide = 128, kCount = kSide * kSide, kExecutions = 6;
using Values = std::array<float, kExecutions * kCount>;

void Check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

void Check(const char* step, Error error) {
  if (error != Error::Ok) {
    std::fprintf(stderr, "%s: error 0x%x\n", step, static_cast<uint32_t>(error));
    std::exit(1);
  }
}

float* DeviceBuffer() {
  void* data = nullptr;
  Check(cudaMalloc(&data, sizeof(Values)));
  return static_cast<float*>(data);
}

void Execute(Module& module, float* input, float* output) {
  const Device cuda(DeviceType::CUDA, 0);
  auto input_tensor = from_blob(input, {kSide, kSide}, ScalarType::Float, cuda);
  auto output_tensor = from_blob(output, {kSide, kSide}, ScalarType::Float, cuda);
  Check("set_output", module.set_output(output_tensor));
  Check("forward", module.forward(input_tensor).error());
}

// The median of 200 calls, in milliseconds.
double Measure(Module& module, float* input, float* output) {
  std::vector<double> times;
  for (int i = 0; i < 220; ++i) {
    const auto start = std::chrono::steady_clock::now();
    Execute(module, input, output);
    Check(cudaDeviceSynchronize());
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count());
  }
  times.erase(times.begin(), times.begin() + 20);  // to warm up
  std::nth_element(times.begin(), times.begin() + 100, times.end());
  return times[100];
}

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: caller PROGRAM WEIGHTS INPUTS RESULTS [--cuda-graph] [--time]\n");
    return 2;
  }
  const std::vector<std::string_view> flags(argv + 5, argv + argc);
  const auto has = [&](std::string_view flag) {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
  };
  static Values host;
  std::ifstream(argv[3], std::ios::binary).read(reinterpret_cast<char*>(host.data()), sizeof(host));
  float* const inputs = DeviceBuffer();
  float* const outputs = DeviceBuffer();
  Check(cudaMemcpy(inputs, host.data(), sizeof(host), cudaMemcpyHostToDevice));

  // [option]
  if (has("--cuda-graph")) {
    // For every program of this process that is loaded later.
    BackendOptions<1> options;
    Check("option", options.set_option("enable_cuda_graph_for_method", "forward"));
    Check("set_option", executorch::runtime::set_option("CudaBackend", options.view()));
  }
  Module module(argv[1], argv[2]);
  Check("load", module.load_forward());
  // [/option]

  for (int i = 0; i < kExecutions; ++i) {
    std::printf("execution %d\n", i + 1);
    Execute(module, inputs + i * kCount, outputs + i * kCount);
    Check(cudaDeviceSynchronize());
  }
  std::printf("results\n");
  Check(cudaMemcpy(host.data(), outputs, sizeof(host), cudaMemcpyDeviceToHost));
  std::ofstream(argv[4], std::ios::binary)
      .write(reinterpret_cast<const char*>(host.data()), sizeof(host));

  if (has("--time")) {
    std::printf("%.4f ms\n", Measure(module, inputs, outputs));
  }

  Check(cudaFree(inputs));
  Check(cudaFree(outputs));
  return 0;
}
