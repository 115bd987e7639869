// Prints the copies that a program asks the CUDA runtime for, through cudaMemcpy and
// cudaMemcpyAsync, and the graphs that it captures or launches.
//
//   LD_PRELOAD=libtrace_copies.so PROGRAM

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>

namespace {

// The function that would have been called without this library.
template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

const char* Name(cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return "HtoD";
    case cudaMemcpyDeviceToHost:
      return "DtoH";
    case cudaMemcpyDeviceToDevice:
      return "DtoD";
    default:
      return "other";
  }
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  std::printf("    copy %s\n", Name(kind));
  return Next<decltype(cudaMemcpy)>("cudaMemcpy")(to, from, size, kind);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  std::printf("    copy %s\n", Name(kind));
  return Next<decltype(cudaMemcpyAsync)>("cudaMemcpyAsync")(to, from, size, kind, stream);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  std::printf("    capture\n");
  return Next<decltype(cudaStreamBeginCapture)>("cudaStreamBeginCapture")(stream, mode);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  std::printf("    launch\n");
  return Next<decltype(cudaGraphLaunch)>("cudaGraphLaunch")(graph, stream);
}

}  // extern "C"
