#include "check.h"
#include <cstring>

__global__ void fill(int *p) { p[threadIdx.x] = threadIdx.x; }
__global__ void trap() { asm volatile("trap;"); }
__global__ void misaligned(char *p) { *(int *)(p + 1) = 5; }

// The runtime says which of the two; the driver's word is CUDA_ERROR_INVALID_VALUE for all of them.
static bool configuration(cudaError_t e) { return e == cudaErrorInvalidConfiguration || e == cudaErrorInvalidValue; }

int main()
{
    // what a launch refuses at once is not sticky, is kept for one cudaGetLastError, and peeking leaves it
    int *d, h[4];
    CUDA(cudaMalloc(&d, 4096));
    fill<<<1, 2048>>>(d);
    CHECK(configuration(cudaPeekAtLastError()));
    CHECK(configuration(cudaGetLastError()));
    CUDA(cudaGetLastError());
    fill<<<0, 32>>>(d);
    CHECK(configuration(cudaGetLastError()));
    fill<<<dim3(1, 70000), 32>>>(d);
    CHECK(configuration(cudaGetLastError()));
    fill<<<dim3(1), dim3(1, 1, 65)>>>(d);
    CHECK(configuration(cudaGetLastError()));
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
    REFUSED(cudaErrorInvalidValue, cudaMemset((char *)d + 4000, 0, 200));
    REFUSED(cudaErrorInvalidValue, cudaFree((char *)d + 8));
    CUDA(cudaFree(nullptr));
    cudaError_t no_kernel = cudaLaunchKernel((void *)main, dim3(1), dim3(1), nullptr, 0, nullptr);
    CHECK(no_kernel == cudaErrorInvalidDeviceFunction || no_kernel == cudaErrorInvalidResourceHandle); // by the runtime or by the driver
    cudaFuncAttributes attributes;
    no_kernel = cudaFuncGetAttributes(&attributes, (void *)main);
    CHECK(no_kernel == cudaErrorInvalidDeviceFunction || no_kernel == cudaErrorInvalidResourceHandle);
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
        cudaError_t met = cudaDeviceSynchronize();
        if (kind == 1 && met == cudaErrorIllegalInstruction) want = met; // which of the two a trap is depends on the device
        CHECK(met == want);
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
