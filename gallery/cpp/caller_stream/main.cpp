// Executes a CUDA program on the delegate's stream, then on the caller's, and tells when the result
// is there. Every element of the input is 1.
//
//   caller PROGRAM WEIGHTS

#include <cuda_runtime_api.h>
#include <executorch/extension/cuda/caller_stream.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>

using executorch::aten::Device;
using executorch::aten::DeviceType;
using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::extension::cuda::CallerStreamGuard;
using executorch::runtime::BackendOptions;
using executorch::runtime::Error;

using Values = std::array<float, 4 * 64>;

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

// The value that all elements have. This copy waits for the default stream, and so for every
// stream that is not a non-blocking one.
float Read(const float* data) {
  Values host{};
  Check(cudaMemcpy(host.data(), data, sizeof(host), cudaMemcpyDeviceToHost));
  const bool same = std::equal(host.begin() + 1, host.end(), host.begin());
  return same ? host[0] : NAN;
}

// Holds a stream up: what is queued on it later waits until the gate opens.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) { Check(cudaLaunchHostFunc(stream, Wait, this)); }
  void Open() { promise_.set_value(); }

 private:
  static void CUDART_CB Wait(void* gate) {
    static_cast<Gate*>(gate)->future_.wait_for(std::chrono::seconds(10));
  }
  std::promise<void> promise_;
  std::future<void> future_ = promise_.get_future();
};

Error Execute(Module& module, float* input, float* output) {
  const Device cuda(DeviceType::CUDA, 0);
  auto input_tensor = from_blob(input, {4, 64}, ScalarType::Float, cuda);
  auto output_tensor = from_blob(output, {4, 64}, ScalarType::Float, cuda);
  if (Error error = module.set_output(output_tensor); error != Error::Ok) {
    return error;
  }
  return module.forward(input_tensor).error();
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: caller PROGRAM WEIGHTS\n");
    return 2;
  }
  float* const input = DeviceBuffer();
  float* const output = DeviceBuffer();
  float* const next = DeviceBuffer();
  Values ones{};
  ones.fill(1);
  Check(cudaMemcpy(input, ones.data(), sizeof(ones), cudaMemcpyHostToDevice));

  // A non-blocking stream does not wait for the default stream, nor the default stream for it.
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  Module module(argv[1], argv[2]);
  Check("first execution", Execute(module, input, output));  // loads the kernels

  {
    Check(cudaMemset(output, 0, sizeof(Values)));
    Check(cudaDeviceSynchronize());
    Gate gate(stream);
    Check("without a guard", Execute(module, input, output));
    std::printf("without a guard: result %g while the caller's stream is held up\n", Read(output));
    gate.Open();
    Check(cudaStreamSynchronize(stream));
  }

  {
    Check(cudaMemset(output, 0, sizeof(Values)));
    Check(cudaDeviceSynchronize());
    Gate gate(stream);
    // [call]
    {
      // Selects the stream for this thread, until the end of the block.
      CallerStreamGuard guard(stream);
      Check("with a guard", Execute(module, input, output));
    }
    // What is queued on the same stream runs after the program.
    Check(cudaMemcpyAsync(next, output, sizeof(Values), cudaMemcpyDeviceToDevice, stream));
    // [/call]
    const bool queued = cudaStreamQuery(stream) == cudaErrorNotReady;
    std::printf("with a guard: forward has returned, the work is %s\n", queued ? "queued" : "done");
    std::printf("with a guard: result %g while the caller's stream is held up\n", Read(output));
    gate.Open();
    Check(cudaStreamSynchronize(stream));
    std::printf("with a guard: result %g after synchronizing\n", Read(output));
    std::printf("with a guard: the next step on the stream saw %g\n", Read(next));
  }

  // [graph]
  // The option counts for what is loaded after it.
  BackendOptions<1> options;
  Check("option", options.set_option("enable_cuda_graph_for_method", "forward"));
  Check("set_option", executorch::runtime::set_option("CudaBackend", options.view()));
  Module graph_module(argv[1], argv[2]);
  {
    CallerStreamGuard guard(stream);
    const Error error = Execute(graph_module, input, output);
    std::printf("CUDA graph, with a guard: 0x%x\n", static_cast<uint32_t>(error));
  }
  const Error error = Execute(graph_module, input, output);
  std::printf("CUDA graph, without a guard: 0x%x\n", static_cast<uint32_t>(error));
  // [/graph]

  Check(cudaDeviceSynchronize());
  Check(cudaStreamDestroy(stream));
  for (float* buffer : {input, output, next}) {
    Check(cudaFree(buffer));
  }
  return 0;
}
