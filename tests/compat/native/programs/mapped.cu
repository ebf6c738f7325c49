#include "check.h"
#include <cstdlib>

__global__ void twice(int *p, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] *= 2;
}

int main()
{
    CUDA(cudaSetDeviceFlags(cudaDeviceMapHost));
    const int n = 5000;
    int *h, *d;
    CUDA(cudaHostAlloc(&h, n * sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
    CUDA(cudaHostGetDevicePointer(&d, h, 0));
    for (int i = 0; i < n; i++) h[i] = i;
    twice<<<(n + 255) / 256, 256>>>(d, n);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) CHECK(h[i] == 2 * i);
    h[7] = 100;
    twice<<<(n + 255) / 256, 256>>>(d, n);
    CUDA(cudaDeviceSynchronize());
    CHECK(h[7] == 200 && h[8] == 32);
    CUDA(cudaFreeHost(h));
    int *r = (int *)aligned_alloc(4096, 8192);
    for (int i = 0; i < 2048; i++) r[i] = 5;
    CUDA(cudaHostRegister(r, 8192, cudaHostRegisterMapped));
    CUDA(cudaHostGetDevicePointer(&d, r, 0));
    twice<<<8, 256>>>(d, 2048);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 2048; i++) CHECK(r[i] == 10);
    CUDA(cudaHostUnregister(r));
    free(r);
    puts("ok");
}
