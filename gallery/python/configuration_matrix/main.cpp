// Calls a program once, and prints where its result is, whose memory that is, and whether the
// values are right.
//
//   caller PROGRAM WEIGHTS INPUT OUTPUT
//
// INPUT is host or device: where the input tensor is. OUTPUT is none, host or device: where the
// tensor is that set_output gets, if any.

#include <cuda_runtime_api.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

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

int Fail(const char* step, Error error) {
  std::fprintf(stderr, "%s: error 0x%x\n", step, static_cast<uint32_t>(error));
  return 1;
}

// A buffer on the host or on the device, with these values.
float* Buffer(std::string_view place, const Values& values) {
  void* data = nullptr;
  if (place == "device") {
    Check(cudaMalloc(&data, sizeof(values)));
  } else {
    data = std::malloc(sizeof(values));
  }
  Check(cudaMemcpy(data, values.data(), sizeof(values), cudaMemcpyDefault));
  return static_cast<float*>(data);
}

TensorPtr Tensor(std::string_view place, float* data) {
  const auto type = place == "device" ? DeviceType::CUDA : DeviceType::CPU;
  return from_blob(data, {4, 64}, ScalarType::Float, Device(type, 0));
}

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: caller PROGRAM WEIGHTS host|device none|host|device\n");
    return 2;
  }
  const std::string_view input_place = argv[3], output_place = argv[4];
  alarm(30);

  Values values{}, expected{}, found{};
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    values[i] = static_cast<float>(i - 128);
    expected[i] = std::max(2 * values[i] + 1, 0.0f);
  }
  float* const input = Buffer(input_place, values);
  float* const output = output_place == "none" ? nullptr : Buffer(output_place, Values{});
  const char *memory = nullptr, *buffer = nullptr;

  {
    Module module(argv[1], argv[2]);
    if (output != nullptr) {
      const Error error = module.set_output(Tensor(output_place, output));
      if (error != Error::Ok) {
        return Fail("set_output", error);
      }
    }
    const auto result = module.forward(Tensor(input_place, input));
    if (!result.ok()) {
      return Fail("forward", result.error());
    }
    const float* const data = result->at(0).toTensor().const_data_ptr<float>();
    cudaPointerAttributes attributes{};
    Check(cudaPointerGetAttributes(&attributes, data));
    // This copy runs on the legacy default stream, which waits for the delegate's stream.
    Check(cudaMemcpy(found.data(), data, sizeof(found), cudaMemcpyDefault));
    memory = attributes.type == cudaMemoryTypeDevice ? "device" : "host";
    buffer = data == output ? "caller" : "program";
  }
  std::printf("{\"memory\": \"%s\", \"buffer\": \"%s\", \"verdict\": \"%s\"}\n", memory, buffer,
              found == expected ? "right" : "wrong");
  return 0;
}
