#include "check.h"
#include <cstring>
#include <vector>

__global__ void twice(int *p, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] *= 2;
}

int main()
{
    const int n = 5000;
    // pinned, only copied
    int *h, *d;
    CUDA(cudaHostAlloc(&h, n * sizeof(int), cudaHostAllocDefault));
    CUDA(cudaMalloc(&d, n * sizeof(int)));
    for (int i = 0; i < n; i++) h[i] = i;
    CUDA(cudaMemcpyAsync(d, h, n * sizeof(int), cudaMemcpyHostToDevice));
    twice<<<(n + 255) / 256, 256>>>(d, n);
    CUDA(cudaMemcpyAsync(h, d, n * sizeof(int), cudaMemcpyDeviceToHost));
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) CHECK(h[i] == 2 * i);
    cudaPointerAttributes a;
    CUDA(cudaPointerGetAttributes(&a, h));
    CHECK(a.type == cudaMemoryTypeHost && a.hostPointer == h);
    CUDA(cudaPointerGetAttributes(&a, d));
    CHECK(a.type == cudaMemoryTypeDevice && a.devicePointer == d && a.device == 0);
    int on_stack;
    CUDA(cudaPointerGetAttributes(&a, &on_stack));
    CHECK(a.type == cudaMemoryTypeUnregistered);
    unsigned flags = 99;
    CUDA(cudaHostGetFlags(&flags, h));
    CUDA(cudaFreeHost(h));

    // registered
    std::vector<int> v(n, 3);
    CUDA(cudaHostRegister(v.data(), n * sizeof(int), cudaHostRegisterDefault));
    EXPECT(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(v.data(), n * sizeof(int), cudaHostRegisterDefault));
    (void)cudaGetLastError();
    CUDA(cudaMemcpy(d, v.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    twice<<<(n + 255) / 256, 256>>>(d, n);
    CUDA(cudaMemcpy(v.data(), d, n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int x : v) CHECK(x == 6);
    CUDA(cudaHostUnregister(v.data()));
    EXPECT(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(v.data()));
    (void)cudaGetLastError();
    EXPECT(cudaErrorInvalidValue, cudaFreeHost(v.data()));
    (void)cudaGetLastError();
    puts("ok");
}
