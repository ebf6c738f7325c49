#include "check.h"
#include <vector>

__global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main()
{
    const int n = 100003;
    std::vector<float> a(n), b(n), c(n);
    for (int i = 0; i < n; i++) { a[i] = i * 0.5f; b[i] = 7.0f - i; }
    float *x, *y, *z;
    CUDA(cudaMalloc(&x, n * sizeof(float)));
    CUDA(cudaMalloc(&y, n * sizeof(float)));
    CUDA(cudaMalloc(&z, n * sizeof(float)));
    CUDA(cudaMemcpy(x, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(y, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    add<<<(n + 255) / 256, 256>>>(x, y, z, n);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(c.data(), z, n * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) CHECK(c[i] == a[i] + b[i]);
    CUDA(cudaFree(x));
    CUDA(cudaFree(y));
    CUDA(cudaFree(z));
    puts("ok");
}
