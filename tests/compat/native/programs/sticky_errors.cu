#include "check.h"
#include <cstring>

__global__ void fill(int *p) { p[threadIdx.x] = threadIdx.x; }
__global__ void trap() { asm volatile("trap;"); }
__global__ void misaligned(char *p) { *(int *)(p + 1) = 5; }

int main()
{
    // what a launch refuses at once is not sticky, is kept for one cudaGetLastError, and peeking leaves it
    int *d, h[4];
    CUDA(cudaMalloc(&d, 4096));
    fill<<<1, 2048>>>(d);
    EXPECT(cudaErrorInvalidConfiguration, cudaPeekAtLastError());
    EXPECT(cudaErrorInvalidConfiguration, cudaGetLastError());
    CUDA(cudaGetLastError());
    fill<<<0, 32>>>(d);
    EXPECT(cudaErrorInvalidConfiguration, cudaGetLastError());
    fill<<<dim3(1, 70000), 32>>>(d);
    EXPECT(cudaErrorInvalidConfiguration, cudaGetLastError());
    fill<<<dim3(1), dim3(1, 1, 65)>>>(d);
    EXPECT(cudaErrorInvalidConfiguration, cudaGetLastError());
    fill<<<1, 32, 1 << 30>>>(d);
    EXPECT(cudaErrorInvalidValue, cudaGetLastError());
    CUDA(cudaDeviceSynchronize());

    // host-side mistakes
    EXPECT(cudaErrorInvalidValue, cudaMalloc(nullptr, 4));
    EXPECT(cudaErrorInvalidValue, cudaGetLastError());
    EXPECT(cudaErrorInvalidValue, cudaMemcpy(d, nullptr, 16, cudaMemcpyHostToDevice));
    EXPECT(cudaErrorInvalidValue, cudaMemcpy(nullptr, h, 16, cudaMemcpyHostToDevice));
    EXPECT(cudaErrorInvalidMemcpyDirection, cudaMemcpy(d, h, 16, (cudaMemcpyKind)99));
    EXPECT(cudaErrorInvalidValue, cudaMemcpy(h, (char *)d + 4096, 16, cudaMemcpyDeviceToHost));
    EXPECT(cudaErrorInvalidValue, cudaMemset((char *)d + 4000, 0, 200));
    EXPECT(cudaErrorInvalidValue, cudaFree((char *)d + 8));
    CUDA(cudaFree(nullptr));
    EXPECT(cudaErrorInvalidDeviceFunction, cudaLaunchKernel((void *)main, dim3(1), dim3(1), nullptr, 0, nullptr));
    cudaFuncAttributes attributes;
    EXPECT(cudaErrorInvalidDeviceFunction, cudaFuncGetAttributes(&attributes, (void *)main));
    (void)cudaGetLastError();
    CHECK(strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);

    // out of memory, and on
    void *all[4], *p;
    EXPECT(cudaErrorMemoryAllocation, cudaMalloc(&p, (size_t)1 << 50));
    EXPECT(cudaErrorMemoryAllocation, cudaGetLastError());
    CUDA(cudaMalloc(&p, 1 << 20));
    CUDA(cudaFree(p));
    (void)all;
    fill<<<1, 32>>>(d);
    CUDA(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    CHECK(h[3] == 3);

    // faults of kernels stick until the device is reset
    for (int kind = 0; kind < 3; kind++) {
        cudaError_t want = kind == 0 ? cudaErrorIllegalAddress : kind == 1 ? cudaErrorLaunchFailure : cudaErrorMisalignedAddress;
        CUDA(cudaMalloc(&d, 4096));
        if (kind == 0) fill<<<1, 32>>>((int *)0x1000);
        else if (kind == 1) trap<<<1, 1>>>();
        else misaligned<<<1, 1>>>((char *)d);
        EXPECT(want, cudaDeviceSynchronize());
        EXPECT(want, cudaGetLastError());
        EXPECT(want, cudaMemcpy(h, d, 4, cudaMemcpyDeviceToHost));
        EXPECT(want, cudaMalloc(&p, 4));
        fill<<<1, 32>>>(d);
        EXPECT(want, cudaGetLastError());
        EXPECT(want, cudaStreamSynchronize(nullptr));
        CUDA(cudaDeviceReset());
        (void)cudaGetLastError();
        CUDA(cudaMalloc(&d, 4096));
        fill<<<1, 32>>>(d);
        CUDA(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
        CHECK(h[2] == 2);
    }
    puts("ok");
}
