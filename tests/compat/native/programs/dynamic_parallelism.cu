// Kernels that launch kernels are not supported: that must be said, and not be a wrong number.
// build: -rdc=true -lcudadevrt
#include "check.h"

__global__ void child(int *p) { *p = 5; }
__global__ void parent(int *p) { child<<<1, 1>>>(p); }
__global__ void plain(int *p) { *p = 6; }

int main()
{
    int *d, h = 0;
    CUDA(cudaMalloc(&d, 4));
    CUDA(cudaMemset(d, 0, 4));
    parent<<<1, 1>>>(d);
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) e = cudaDeviceSynchronize();
    if (e == cudaSuccess) {
        CUDA(cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost));
        CHECK(h == 5);
    } else {
        fprintf(stderr, "refused: %s\n", cudaGetErrorName(e));
        CHECK(e == cudaErrorNotSupported || e == cudaErrorInvalidPtx || e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidKernelImage);
    }
    puts("ok");
}
