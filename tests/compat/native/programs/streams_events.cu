#include "check.h"

__global__ void step(int *p, int n, int k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = p[i] * 3 + k;
}

int main()
{
    const int n = 1 << 14, lanes = 4;
    int *host[lanes], *device[lanes];
    cudaStream_t streams[lanes];
    cudaEvent_t begin, end, done[lanes];
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    int low, high;
    CUDA(cudaDeviceGetStreamPriorityRange(&low, &high));
    CHECK(high <= low);
    for (int s = 0; s < lanes; s++) {
        CUDA(cudaStreamCreateWithPriority(&streams[s], s % 2 ? cudaStreamNonBlocking : cudaStreamDefault, s == 0 ? high : low));
        CUDA(cudaEventCreateWithFlags(&done[s], cudaEventDisableTiming));
        CUDA(cudaMallocHost(&host[s], n * sizeof(int)));
        CUDA(cudaMalloc(&device[s], n * sizeof(int)));
        for (int i = 0; i < n; i++) host[s][i] = i + s;
        unsigned flags;
        int priority;
        CUDA(cudaStreamGetFlags(streams[s], &flags));
        CHECK(flags == (s % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
        CUDA(cudaStreamGetPriority(streams[s], &priority));
        CHECK(priority == (s == 0 ? high : low));
    }
    CUDA(cudaEventRecord(begin, streams[0]));
    for (int s = 0; s < lanes; s++) {
        CUDA(cudaMemcpyAsync(device[s], host[s], n * sizeof(int), cudaMemcpyHostToDevice, streams[s]));
        step<<<n / 256, 256, 0, streams[s]>>>(device[s], n, s);
        CUDA(cudaEventRecord(done[s], streams[s]));
        CUDA(cudaStreamWaitEvent(streams[0], done[s], 0));
        CUDA(cudaMemcpyAsync(host[s], device[s], n * sizeof(int), cudaMemcpyDeviceToHost, streams[s]));
    }
    CUDA(cudaEventRecord(end, streams[0]));
    CUDA(cudaEventSynchronize(end));
    float ms = -1;
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    CHECK(ms > 0 && ms < 60000);
    EXPECT(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, begin, done[0]));
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CUDA(cudaEventQuery(end));
    for (int s = 0; s < lanes; s++) {
        CUDA(cudaStreamSynchronize(streams[s]));
        CUDA(cudaStreamQuery(streams[s]));
        for (int i = 0; i < n; i++) CHECK(host[s][i] == (i + s) * 3 + s);
        CUDA(cudaStreamDestroy(streams[s]));
        CUDA(cudaEventDestroy(done[s]));
        CUDA(cudaFreeHost(host[s]));
        CUDA(cudaFree(device[s]));
    }
    cudaEvent_t never;
    CUDA(cudaEventCreate(&never));
    CUDA(cudaEventQuery(never)); // never recorded: complete
    EXPECT(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, begin, never));
    puts("ok");
}
