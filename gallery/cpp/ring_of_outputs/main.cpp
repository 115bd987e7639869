// Executes a CUDA program three times and keeps each result past the next execution, and may
// measure it then. Every element of the first input is 1, of the second 2, of the third 3.
//
//   caller PROGRAM WEIGHTS ring|copy [--time]
//
// ring: two output buffers in turn. copy: copies each result out of the program's own buffer.

#include <cuda_runtime_api.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

using executorch::aten::Device;
using executorch::aten::DeviceType;
using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::runtime::Error;

constexpr int kSide = 4096;
constexpr size_t kCount = size_t{kSide} * kSide, kBytes = kCount * sizeof(float);

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
  Check(cudaMalloc(&data, kBytes));
  return static_cast<float*>(data);
}

void Fill(float* data, float value) {
  const std::vector<float> host(kCount, value);
  Check(cudaMemcpy(data, host.data(), kBytes, cudaMemcpyHostToDevice));
}

// The value that all elements have.
float Read(const float* data) {
  std::vector<float> host(kCount);
  Check(cudaMemcpy(host.data(), data, kBytes, cudaMemcpyDeviceToHost));
  const bool same = std::equal(host.begin() + 1, host.end(), host.begin());
  return same ? host[0] : NAN;
}

const Device cuda(DeviceType::CUDA, 0);

// [ring]
// The program writes into the caller's buffer.
void ExecuteInto(Module& module, float* input, float* output) {
  auto input_tensor = from_blob(input, {kSide, kSide}, ScalarType::Float, cuda);
  auto output_tensor = from_blob(output, {kSide, kSide}, ScalarType::Float, cuda);
  Check("set_output", module.set_output(output_tensor));
  Check("forward", module.forward(input_tensor).error());
}
// [/ring]

// [copy]
// The program writes into its own buffer. The caller copies the result before the next call, or
// lets that overwrite it.
void ExecuteAndCopy(Module& module, float* input, float* output) {
  auto input_tensor = from_blob(input, {kSide, kSide}, ScalarType::Float, cuda);
  auto result = module.forward(input_tensor);
  Check("forward", result.error());
  if (output != nullptr) {
    const float* data = result->at(0).toTensor().const_data_ptr<float>();
    // The legacy default stream and the delegate's stream wait for each other.
    Check(cudaMemcpyAsync(output, data, kBytes, cudaMemcpyDeviceToDevice));
  }
}
// [/copy]

// The median of 100 calls, in milliseconds.
template <typename Call>
double Measure(Call call) {
  std::vector<double> times;
  for (int i = 0; i < 110; ++i) {
    Check(cudaDeviceSynchronize());
    const auto start = std::chrono::steady_clock::now();
    call(i);
    Check(cudaDeviceSynchronize());
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count());
  }
  times.erase(times.begin(), times.begin() + 10);  // to warm up
  std::nth_element(times.begin(), times.begin() + 50, times.end());
  return times[50];
}

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: caller PROGRAM WEIGHTS ring|copy [--time]\n");
    return 2;
  }
  const bool copies = std::string_view(argv[3]) == "copy";
  const bool time = argc > 4 && std::string_view(argv[4]) == "--time";
  const auto execute = copies ? ExecuteAndCopy : ExecuteInto;
  float* const input = DeviceBuffer();
  const std::array<float*, 2> ring = {DeviceBuffer(), DeviceBuffer()};
  Module module(argv[1], argv[2]);

  for (int i = 0; i < 3; ++i) {
    Fill(input, static_cast<float>(i + 1));
    std::printf("execution %d\n", i + 1);
    execute(module, input, ring[i % 2]);
    std::printf("result %d: %g\n", i + 1, Read(ring[i % 2]));
    if (i > 0) {
      std::printf("result %d: %g\n", i, Read(ring[(i - 1) % 2]));
    }
  }

  if (time) {
    std::printf("%.4f ms\n", Measure([&](int i) { execute(module, input, ring[i % 2]); }));
    if (copies) {
      std::printf("%.4f ms\n", Measure([&](int) { ExecuteAndCopy(module, input, nullptr); }));
    }
  }

  for (float* buffer : {input, ring[0], ring[1]}) {
    Check(cudaFree(buffer));
  }
  return 0;
}
