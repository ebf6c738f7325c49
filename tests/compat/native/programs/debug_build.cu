// build: -G -g
#include "check.h"

__device__ int helper(int x)
{
    int local[8];
    for (int i = 0; i < 8; i++) local[i] = x * i;
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += local[i];
    return sum;
}
__global__ void work(int *out)
{
    __shared__ int s[64];
    s[threadIdx.x] = helper(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}

int main()
{
    int *d, h[64];
    CUDA(cudaMalloc(&d, sizeof h));
    work<<<1, 64>>>(d);
    CUDA(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) CHECK(h[i] == (63 - i) * 28);
    puts("ok");
}
