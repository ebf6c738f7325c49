#include "check.h"
#include <atomic>
#include <string>
#include <vector>

__global__ void set(int *p, int v) { *p = v; }

static std::atomic<int> calls{0};
static std::string order;

static void CUDART_CB host_function(void *data)
{
    order += *(char *)data;
    calls++;
}

static void CUDART_CB callback(cudaStream_t stream, cudaError_t status, void *data)
{
    CHECK(status == cudaSuccess);
    CHECK(*(cudaStream_t *)data == stream);
    order += 'S';
    calls++;
}

static int *pinned;
static void CUDART_CB read_back(void *data) { *(int *)data = *pinned + 1; }

int main()
{
    cudaStream_t s;
    CUDA(cudaStreamCreate(&s));
    int *d, seen = 0;
    CUDA(cudaMalloc(&d, sizeof(int)));
    CUDA(cudaMallocHost(&pinned, sizeof(int)));
    *pinned = 0;
    char a = 'a', b = 'b', c = 'c';
    CUDA(cudaLaunchHostFunc(s, host_function, &a));
    set<<<1, 1, 0, s>>>(d, 41);
    CUDA(cudaStreamAddCallback(s, callback, &s, 0));
    CUDA(cudaMemcpyAsync(pinned, d, sizeof(int), cudaMemcpyDeviceToHost, s));
    CUDA(cudaLaunchHostFunc(s, read_back, &seen)); // sees what the copy before it wrote
    CUDA(cudaLaunchHostFunc(s, host_function, &b));
    set<<<1, 1, 0, s>>>(d, 5);
    CUDA(cudaLaunchHostFunc(s, host_function, &c));
    CUDA(cudaStreamSynchronize(s));
    CHECK(calls == 4 && order == "aSbc" && seen == 42);
    cudaEvent_t e;
    CUDA(cudaEventCreate(&e));
    for (int i = 0; i < 50; i++) CUDA(cudaLaunchHostFunc(s, host_function, &a));
    CUDA(cudaEventRecord(e, s));
    CUDA(cudaEventSynchronize(e));
    CHECK(calls == 54);
    CUDA(cudaLaunchHostFunc(cudaStreamLegacy, host_function, &a));
    CUDA(cudaDeviceSynchronize());
    CHECK(calls == 55);
    EXPECT(cudaErrorInvalidValue, cudaLaunchHostFunc(s, nullptr, nullptr));
    puts("ok");
}
