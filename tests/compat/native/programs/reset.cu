#include "check.h"

__device__ int variable = 11;
__global__ void bump(int *out) { variable += 1; *out = variable; }

int main()
{
    for (int round = 0; round < 3; round++) {
        int *d, h = 0;
        cudaStream_t s;
        CUDA(cudaStreamCreate(&s));
        CUDA(cudaMalloc(&d, 4));
        bump<<<1, 1, 0, s>>>(d);
        CUDA(cudaMemcpyAsync(&h, d, 4, cudaMemcpyDeviceToHost, s));
        CUDA(cudaStreamSynchronize(s));
        CHECK(h == 12); // modules are loaded afresh
        CUDA(cudaDeviceReset());
    }
    puts("ok");
}
