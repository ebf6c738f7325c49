#include "check.h"

__global__ void hello(int n)
{
    printf("thread %d of %d: %s %5.2f %c %x %llu %%|%-6d|%06d\n", threadIdx.x, n, threadIdx.x ? "odd" : "even", threadIdx.x * 1.5, 'A' + threadIdx.x,
           255u + threadIdx.x, 1ull << 40, 42, -42);
}

int main()
{
    printf("before\n");
    fflush(stdout);
    hello<<<1, 2>>>(2);
    CUDA(cudaDeviceSynchronize());
    printf("between\n");
    fflush(stdout);
    size_t size = 0;
    CUDA(cudaDeviceGetLimit(&size, cudaLimitPrintfFifoSize));
    CHECK(size >= 1 << 16);
    hello<<<1, 1>>>(1);
    CUDA(cudaDeviceSynchronize());
    puts("ok");
}
