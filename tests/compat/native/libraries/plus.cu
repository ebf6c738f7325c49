// A shared library that uses CUDA inside; `two_runtimes` opens it.
#include <cuda_runtime.h>

__device__ int calls;
static __global__ void plus(int *p, int v)
{
    p[threadIdx.x] += v;
    if (threadIdx.x == 0) calls++;
}

extern "C" int library_plus(int *p, int n, int v)
{
    plus<<<1, n>>>(p, v);
    return (int)cudaDeviceSynchronize();
}

struct AtUnload {
    int *p = nullptr;
    ~AtUnload() { cudaFree(p); }
} static at_unload;
