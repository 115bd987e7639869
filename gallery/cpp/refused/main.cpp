// Makes the mistakes that a caller can make with device memory, and tells what each step returns.
// Every element of the input is 1.
//
//   caller PLANNED UNPLANNED WEIGHTS

#include <cuda_runtime_api.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

using executorch::aten::Device;
using executorch::aten::DeviceType;
using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;

using Values = std::array<float, 4 * 64>;

void Check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

float* DeviceBuffer() {
  void* data = nullptr;
  Check(cudaMalloc(&data, sizeof(Values)));
  return static_cast<float*>(data);
}

// The value that all elements have.
float Read(const float* data) {
  Values host{};
  Check(cudaMemcpy(host.data(), data, sizeof(host), cudaMemcpyDeviceToHost));
  const bool same = std::equal(host.begin() + 1, host.end(), host.begin());
  return same ? host[0] : NAN;
}

void Execute(const char* what, Module& module, const TensorPtr& input, const TensorPtr& output) {
  const Error set_output = module.set_output(output);
  std::printf("%s: set_output 0x%x", what, static_cast<uint32_t>(set_output));
  if (set_output == Error::Ok) {
    const auto result = module.forward(input);
    std::printf(", forward 0x%x", static_cast<uint32_t>(result.error()));
    if (result.ok()) {
      std::printf(", result %g", Read(result->at(0).toTensor().const_data_ptr<float>()));
    }
  }
  std::printf("\n");
}

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: caller PLANNED UNPLANNED WEIGHTS\n");
    return 2;
  }
  const std::string planned = argv[1], unplanned = argv[2], weights = argv[3];
  float* const input = DeviceBuffer();
  float* const output = DeviceBuffer();
  Values host{};
  host.fill(1);
  Check(cudaMemcpy(input, host.data(), sizeof(host), cudaMemcpyHostToDevice));

  const Device cuda(DeviceType::CUDA, 0);
  const TensorPtr input_tensor = from_blob(input, {4, 64}, ScalarType::Float, cuda);
  const TensorPtr output_tensor = from_blob(output, {4, 64}, ScalarType::Float, cuda);

  {
    // [arenas]
    Module module(planned, weights, Module::LoadMode::File, nullptr, nullptr, nullptr,
                  /*share_memory_arenas=*/true);
    const Error error = module.load_forward();
    // [/arenas]
    std::printf("shared arenas, planned: load 0x%x\n", static_cast<uint32_t>(error));
  }
  {
    Module module(unplanned, weights, Module::LoadMode::File, nullptr, nullptr, nullptr,
                  /*share_memory_arenas=*/true);
    Execute("shared arenas, unplanned", module, input_tensor, output_tensor);
  }
  {
    Module module(unplanned, weights);
    // [small]
    auto half = from_blob(output, {2, 64}, ScalarType::Float, cuda);
    // [/small]
    Execute("half a buffer", module, input_tensor, half);
  }
  {
    Module module(unplanned, weights);
    // [host]
    auto host_tensor = from_blob(host.data(), {4, 64}, ScalarType::Float);
    // [/host]
    Execute("host memory", module, input_tensor, host_tensor);
  }
  {
    Module module(unplanned, weights);
    // [label]
    const Device other(DeviceType::CUDA, 1);
    auto other_input = from_blob(input, {4, 64}, ScalarType::Float, other);
    auto other_output = from_blob(output, {4, 64}, ScalarType::Float, other);
    // [/label]
    Execute("label cuda:1", module, other_input, other_output);
  }
  {
    Module module(unplanned, weights);
    auto plain_input = from_blob(input, {4, 64}, ScalarType::Float);
    auto plain_output = from_blob(output, {4, 64}, ScalarType::Float);
    Execute("no label", module, plain_input, plain_output);
  }

  Check(cudaFree(input));
  Check(cudaFree(output));
  return 0;
}
