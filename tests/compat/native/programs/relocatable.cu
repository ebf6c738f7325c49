// -rdc leaves calls between functions to nvcc's device linker, which makes machine code and keeps no PTX: the emulated device must say so.
// build: -rdc=true
#include "check.h"

__device__ int shared_variable = 3;
__device__ __noinline__ int helper(int x) { return x * shared_variable; }
__constant__ int table[4] = {1, 10, 100, 1000};
__global__ void work(int *p) { p[threadIdx.x] = helper(threadIdx.x) + table[threadIdx.x % 4]; }

int main()
{
    int *d, h[32], v = 7;
    CUDA(cudaMalloc(&d, sizeof h));
    cudaError_t e = cudaMemcpyToSymbol(shared_variable, &v, sizeof v);
    if (e == cudaErrorNoKernelImageForDevice) {
        work<<<1, 32>>>(d);
        EXPECT(cudaErrorNoKernelImageForDevice, cudaGetLastError());
        CUDA(cudaMemset(d, 0, sizeof h)); // the session lives
        CUDA(cudaDeviceSynchronize());
        puts("ok");
        return 0;
    }
    CUDA(e);
    work<<<1, 32>>>(d);
    CUDA(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    int t[] = {1, 10, 100, 1000};
    for (int i = 0; i < 32; i++) CHECK(h[i] == i * 7 + t[i % 4]);
    puts("ok");
}
