// Which image of a program runs: the kernel says for which virtual architecture it was compiled.
#include "../programs/check.h"

__global__ void which(int *out)
{
#ifdef __CUDA_ARCH__
    *out = __CUDA_ARCH__;
#endif
}

int main()
{
    int *d, h = 0;
    cudaError_t e = cudaMalloc(&d, 4);
    if (e == cudaSuccess) {
        which<<<1, 1>>>(d);
        e = cudaGetLastError();
    }
    if (e == cudaSuccess) e = cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost);
    printf("%d %s\n", h, cudaGetErrorName(e));
    CUDA(cudaMalloc(&d, 64)); // the session lives
    CUDA(cudaDeviceSynchronize());
}
