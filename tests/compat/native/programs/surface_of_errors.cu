// Runtime calls with arguments that no program should give; each must answer an error, change nothing, and leave the session as it was.
#include "check.h"
#include <cstdint>

__global__ void set(int *p, int v) { *p = v; }

static void alive()
{
    int *d, h = 0;
    CUDA(cudaMalloc(&d, 4));
    set<<<1, 1>>>(d, 6);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost));
    CHECK(h == 6);
    CUDA(cudaFree(d));
}

#define FAILS(call)                                                                            \
    do {                                                                                       \
        cudaError_t got_ = (call);                                                             \
        if (got_ == cudaSuccess) got_ = cudaDeviceSynchronize();                               \
        if (got_ == cudaSuccess) { fprintf(stderr, "%d: %s succeeded\n", __LINE__, #call); exit(1); } \
        (void)cudaGetLastError();                                                              \
        alive();                                                                               \
    } while (0)

int main()
{
    alive();
    cudaStream_t stream, dead;
    cudaEvent_t event, gone;
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaStreamCreate(&dead));
    CUDA(cudaStreamDestroy(dead));
    CUDA(cudaEventCreate(&event));
    CUDA(cudaEventCreate(&gone));
    CUDA(cudaEventDestroy(gone));
    int *d, h[4] = {1, 2, 3, 4};
    CUDA(cudaMalloc(&d, 1024));

    FAILS(cudaStreamSynchronize(dead));
    FAILS(cudaStreamQuery(dead));
    FAILS(cudaStreamDestroy(dead));
    FAILS(cudaEventSynchronize(gone));
    FAILS(cudaEventDestroy(gone));
    FAILS(cudaEventRecord(gone, stream));
    FAILS(cudaEventRecord(event, dead));
    FAILS(cudaStreamWaitEvent(stream, gone));
    FAILS((set<<<1, 1, 0, dead>>>(d, 1), cudaGetLastError()));
    FAILS(cudaMemcpyAsync(d, h, 16, cudaMemcpyHostToDevice, dead));
    FAILS(cudaMemsetAsync(d, 0, 16, dead));
    FAILS(cudaStreamCreate(nullptr));
    FAILS(cudaStreamCreateWithFlags(&dead, 0x1000));
    FAILS(cudaEventCreate(nullptr));
    FAILS(cudaEventCreateWithFlags(&gone, 0x1000));
    FAILS(cudaEventElapsedTime(nullptr, event, event));
    FAILS(cudaGetDeviceProperties(nullptr, 0));
    cudaDeviceProp prop;
    FAILS(cudaGetDeviceProperties(&prop, 100));
    FAILS(cudaGetDeviceCount(nullptr));
    FAILS(cudaMallocHost((void **)nullptr, 16));
    FAILS(cudaMallocHost((void **)&h, SIZE_MAX / 2));
    FAILS(cudaMalloc((void **)&d + 0, SIZE_MAX));
    FAILS(cudaMemcpy((void *)0x10, h, 16, cudaMemcpyHostToDevice));
    FAILS(cudaMemcpy(h, (void *)0x10, 16, cudaMemcpyDeviceToHost));
    FAILS(cudaMemcpy(d, d + 4096, 1 << 20, cudaMemcpyDeviceToDevice));
    FAILS(cudaMemcpy2D(d, 16, h, 4, 8, 2, cudaMemcpyHostToDevice)); // a pitch below the width
    FAILS(cudaMemset2D(d, 4, 0, 16, 2));
    FAILS(cudaHostUnregister(h));
    FAILS(cudaHostRegister(nullptr, 4096, 0));
    FAILS(cudaFreeHost(h));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaGraphCreate(&graph, 0));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphExecDestroy(exec));
    FAILS(cudaGraphLaunch(exec, stream));
    FAILS(cudaGraphCreate(&graph, 77));
    FAILS(cudaGraphCreate(nullptr, 0));
    FAILS(cudaStreamEndCapture(stream, &graph));
    FAILS(cudaDeviceSetLimit((cudaLimit)99, 1));
    FAILS(cudaDeviceGetLimit(nullptr, cudaLimitStackSize));
    FAILS(cudaDeviceEnablePeerAccess(0, 0));
    FAILS(cudaFuncSetAttribute((void *)set, (cudaFuncAttribute)99, 1));
    FAILS(cudaMallocAsync((void **)nullptr, 4, stream));
    FAILS(cudaFreeAsync(h, stream));
    puts("ok");
}
